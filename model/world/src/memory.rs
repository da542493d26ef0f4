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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) owner: Owner,
    pub(crate) generation: Generation,
}

/// One tier: its pages, and the cells of all of them in a row.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pub(crate) pages: Vec<Page>,
    cells: Vec<Cell>,
    units: usize,
}

/// Both tiers of an engine.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) tiers: [Pages; 2],
}

crate::reuse::clone_in_place!(Pages { pages, cells, units });
crate::reuse::clone_in_place!(Memory { tiers });

impl Pages {
    /// The cells of a page.
    pub(crate) fn cells(&self, page: usize) -> &[Cell] {
        &self.cells[page * self.units..(page + 1) * self.units]
    }
}

impl Memory {
    pub(crate) fn new(pages: [u32; 2], units: usize) -> Memory {
        let tier = |count: u32| Pages {
            pages: vec![Page::default(); count as usize],
            cells: vec![Cell::default(); count as usize * units],
            units,
        };
        Memory { tiers: [tier(pages[0]), tier(pages[1])] }
    }

    pub(crate) fn page(&self, tier: Tier, page: PageId) -> &Page {
        &self.tiers[usize::from(tier.0)].pages[page.0 as usize]
    }

    pub(crate) fn page_mut(&mut self, block: BlockRef) -> &mut Page {
        &mut self.tiers[usize::from(block.tier.0)].pages[block.page.0 as usize]
    }

    pub(crate) fn cell(&self, block: BlockRef, unit: usize) -> Cell {
        self.tiers[usize::from(block.tier.0)].cells(block.page.0 as usize)[unit]
    }

    pub(crate) fn cell_mut(&mut self, block: BlockRef, unit: usize) -> &mut Cell {
        let tier = &mut self.tiers[usize::from(block.tier.0)];
        &mut tier.cells[block.page.0 as usize * tier.units + unit]
    }

    /// Forgets what a page holds.
    pub(crate) fn poison(&mut self, block: BlockRef) {
        let tier = &mut self.tiers[usize::from(block.tier.0)];
        let first = block.page.0 as usize * tier.units;
        for cell in &mut tier.cells[first..first + tier.units] {
            cell.content = Content::Poison;
        }
    }

    /// Whether an operation issued for this life of the page may touch it.
    pub(crate) fn owned(&self, block: BlockRef) -> bool {
        let page = self.page(block.tier, block.page);
        page.owner != Owner::Free && page.generation == block.generation
    }
}
