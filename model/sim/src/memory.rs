//! Whose bytes every page holds, and who is touching it.
//!
//! A page has one content a component, not one a layer: what is under way is in the record of the operation, which knows
//! when each layer lands. So a page of sixty layers costs as much as one of two.

use kvweft_core::{BlockRef, PageId};

/// The content of a page of one component, as a number: equal numbers are equal contents.
pub(crate) type Tag = u64;

/// Never written, or left behind by an owner that is gone.
pub(crate) const POISON: Tag = 0;
/// Bytes of several writes, or read while they were written.
pub(crate) const TORN: Tag = 1;
/// Added to the tag of bytes that were moved by the rules of another layout.
const MISLAID: Tag = 1 << 63;

/// The tag of a block.
pub(crate) fn tag(name: u64) -> Tag {
    (name & !MISLAID).max(2)
}

/// The same bytes, moved by the rules of another layout.
pub(crate) fn mislaid(tag: Tag) -> Tag {
    if tag == POISON || tag == TORN { tag } else { tag | MISLAID }
}

/// Nobody.
pub(crate) const NIL: u32 = u32::MAX;
/// The forward step that runs.
pub(crate) const STEP: u32 = u32::MAX - 1;

/// Who has a page, as the manager's effects tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    #[default]
    Free,
    Taken,
    Draining,
}

/// One page of one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) kv: Tag,
    pub(crate) index: Tag,
    pub(crate) generation: u32,
    /// The write under way: a move by its number, or the step that runs.
    pub(crate) writer: u32,
    /// Requests whose steps read it again and again, and that found it right.
    pub(crate) watchers: u16,
    /// Moves that read it.
    pub(crate) readers: u16,
    pub(crate) owner: Owner,
    /// Two writes were under way at once.
    pub(crate) clash: bool,
    /// Written or freed while moves read it.
    pub(crate) disturbed: bool,
    /// Its content came from the host tier.
    pub(crate) reloaded: bool,
}

const _: () = assert!(std::mem::size_of::<Page>() <= 32);

impl Default for Page {
    fn default() -> Page {
        Page {
            kv: POISON,
            index: POISON,
            generation: 0,
            writer: NIL,
            watchers: 0,
            readers: 0,
            owner: Owner::Free,
            clash: false,
            disturbed: false,
            reloaded: false,
        }
    }
}

/// All pages of one tier.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pages: Vec<Page>,
    pub(crate) taken: u32,
}

impl Tier {
    pub(crate) fn new(pages: u32) -> Tier {
        Tier { pages: vec![Page::default(); pages as usize], taken: 0 }
    }

    pub(crate) fn page(&self, page: PageId) -> &Page {
        &self.pages[page.0 as usize]
    }

    pub(crate) fn page_mut(&mut self, page: PageId) -> &mut Page {
        &mut self.pages[page.0 as usize]
    }

    pub(crate) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    pub(crate) fn count(&self, which: impl Fn(&Page) -> bool) -> u64 {
        self.pages.iter().filter(|page| which(page)).count() as u64
    }
}

impl Page {
    /// Whether an operation issued for this life of the page may touch it.
    pub(crate) fn owned_as(&self, block: BlockRef) -> bool {
        self.owner != Owner::Free && self.generation == block.generation.0
    }

    /// A write begins; whether it clashes with another one.
    pub(crate) fn begin_write(&mut self, writer: u32) {
        self.clash |= self.writer != NIL;
        self.disturbed |= self.readers > 0;
        self.writer = writer;
    }

    /// A write ends; the contents that it leaves.
    pub(crate) fn end_write(&mut self, writer: u32, [kv, index]: [Option<Tag>; 2]) {
        let clash = self.clash;
        if self.writer == writer {
            self.writer = NIL;
            self.clash = false;
        }
        if let Some(kv) = kv {
            self.kv = if clash { TORN } else { kv };
        }
        if let Some(index) = index {
            self.index = if clash { TORN } else { index };
        }
    }
}
