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
    /// KV, index keys.
    pub(crate) content: [Tag; 2],
    pub(crate) generation: u32,
    /// The write of each component that is under way: a move by its number, or the step that runs.
    pub(crate) writers: [u32; 2],
    /// The reload into it that is queued and has not begun.
    pub(crate) coming: u32,
    /// Requests whose steps read it again and again, and that found it right.
    pub(crate) watchers: u16,
    /// Moves that read it.
    pub(crate) readers: u16,
    /// Two writes of one component were under way at once.
    pub(crate) clash: bool,
    /// Written or freed while moves read it.
    pub(crate) disturbed: bool,
    /// Its content came from the host tier.
    pub(crate) reloaded: bool,
}

const _: () = assert!(std::mem::size_of::<Page>() <= 40);

impl Default for Page {
    fn default() -> Page {
        Page {
            content: [POISON; 2],
            generation: 0,
            writers: [NIL; 2],
            coming: NIL,
            watchers: 0,
            readers: 0,
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
    /// Of each page. Apart, since adding everything up reads them all and nothing else of a page.
    owners: Vec<Owner>,
    pub(crate) taken: u32,
}

impl Tier {
    pub(crate) fn new(pages: u32) -> Tier {
        Tier { pages: vec![Page::default(); pages as usize], owners: vec![Owner::Free; pages as usize], taken: 0 }
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

    /// Pages that somebody has.
    pub(crate) fn owned(&self) -> u64 {
        self.owners.iter().filter(|owner| **owner != Owner::Free).count() as u64
    }

    /// Gives a page to somebody else; says who had it.
    pub(crate) fn give(&mut self, page: PageId, owner: Owner) -> Owner {
        std::mem::replace(&mut self.owners[page.0 as usize], owner)
    }

    /// Whether an operation issued for this life of a page may touch it.
    pub(crate) fn owns(&self, block: BlockRef) -> bool {
        self.owners[block.page.0 as usize] != Owner::Free && self.page(block.page).generation == block.generation.0
    }
}

impl Page {
    /// A write of some components begins, KV first.
    pub(crate) fn begin_write(&mut self, writer: u32, components: [bool; 2]) {
        self.disturbed |= self.readers > 0;
        for (known, writes) in self.writers.iter_mut().zip(components) {
            if writes {
                self.clash |= *known != NIL;
                *known = writer;
            }
        }
    }

    /// A write ends; the contents that it leaves, KV first.
    pub(crate) fn end_write(&mut self, writer: u32, left: [Option<Tag>; 2]) {
        for (component, left) in left.into_iter().enumerate() {
            if let Some(tag) = left {
                self.content[component] = if self.clash { TORN } else { tag };
            }
        }
        for known in &mut self.writers {
            if *known == writer {
                *known = NIL;
            }
        }
        self.clash &= self.writers[0] != NIL || self.writers[1] != NIL;
    }

    /// Whether anybody is writing a component, KV first.
    pub(crate) fn is_written(&self, component: usize) -> bool {
        self.writers[component] != NIL
    }
}
