//! Shadow memory: whose bytes each cell holds, and who is touching it.

use kvweft_core::{BlockRef, Generation, PageId, Tier};
use kvweft_trace::Content;

/// One component of one layer of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) content: Content,
    /// Writes that have begun and not ended.
    pub(crate) writers: u8,
    /// Copies and sends that are reading it.
    pub(crate) readers: u8,
}

/// Who has a page, as the manager's effects tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    #[default]
    Free,
    Taken,
    Draining,
}

/// One page of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) owner: Owner,
    pub(crate) generation: Generation,
    pub(crate) cells: Vec<Cell>,
}

/// Both tiers of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) tiers: [Vec<Page>; 2],
}

impl Memory {
    pub(crate) fn new(pages: [u32; 2], units: usize) -> Memory {
        let tier = |count: u32| {
            let page = Page { cells: vec![Cell::default(); units], ..Page::default() };
            vec![page; count as usize]
        };
        Memory { tiers: [tier(pages[0]), tier(pages[1])] }
    }

    pub(crate) fn page(&self, tier: Tier, page: PageId) -> &Page {
        &self.tiers[usize::from(tier.0)][page.0 as usize]
    }

    pub(crate) fn page_mut(&mut self, block: BlockRef) -> &mut Page {
        &mut self.tiers[usize::from(block.tier.0)][block.page.0 as usize]
    }

    pub(crate) fn cell(&self, block: BlockRef, unit: usize) -> Cell {
        self.page(block.tier, block.page).cells[unit]
    }

    pub(crate) fn cell_mut(&mut self, block: BlockRef, unit: usize) -> &mut Cell {
        &mut self.page_mut(block).cells[unit]
    }

    /// Whether an operation issued for this life of the page may touch it.
    pub(crate) fn owned(&self, block: BlockRef) -> bool {
        let page = self.page(block.tier, block.page);
        page.owner != Owner::Free && page.generation == block.generation
    }
}
