//! Page memory: for each tier, the cells of every page, in the real byte layouts.

use std::ops::Range;

use kvweft_core::{BlockRef, Component, Config, Layout, MovedPart, PageId, Role, Tier};

use kvweft_trace::event::Sum;

use crate::platform::Cell;

/// What fills memory that nobody may rely on.
pub const POISON: u8 = 0xff;

/// One component of one layer, as a pool lays it out.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The layer.
    pub layer: u8,
    /// The component.
    pub component: Component,
    /// How each tier lays it out: device, host.
    pub layouts: [Layout; 2],
}

/// Both pools of one engine.
#[derive(Debug)]
pub struct Pools<C> {
    units: Vec<Unit>,
    /// Unit of each layer: index keys, KV.
    by_layer: Vec<[Option<usize>; 2]>,
    /// Of each tier, for each unit, the cells of all pages.
    tiers: [Vec<Vec<C>>; 2],
}

/// Bytes of a page, up to a whole word.
fn words(layout: Layout) -> usize {
    (layout.page_bytes() as usize).div_ceil(8).max(1)
}

impl<C: Cell> Pools<C> {
    /// The pools of an engine, all poison.
    pub fn new(config: &Config) -> Pools<C> {
        let mut units = Vec::new();
        let mut by_layer = Vec::new();
        for layer in 0..config.geometry.layers {
            let mut here = [None; 2];
            for (at, component) in [Component::IndexK, Component::Kv].into_iter().enumerate() {
                let known = |c: &&kvweft_core::ComponentLayout| c.component == component && c.layers.has(layer);
                let Some(entry) = config.geometry.components.iter().find(known) else { continue };
                here[at] = Some(units.len());
                units.push(Unit { layer, component, layouts: [entry.layout, config.host_layout(entry)] });
            }
            by_layer.push(here);
        }
        let engine = u8::from(config.role == Role::Decode);
        let tier = |tier: Tier, pages: u32| {
            let cells = |unit: &Unit| C::pool(engine, tier, words(unit.layouts[usize::from(tier.0)]), pages as usize);
            units.iter().map(cells).collect()
        };
        let tiers = [tier(Tier::DEVICE, config.device_pages), tier(Tier::HOST, config.host_pages)];
        Pools { units, by_layer, tiers }
    }

    /// What a page consists of, in order.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The place of a component of a layer in a page.
    pub fn unit(&self, layer: u8, component: Component) -> Option<usize> {
        self.by_layer.get(usize::from(layer))?[usize::from(component == Component::Kv)]
    }

    /// How a tier lays out a unit.
    pub fn layout(&self, tier: Tier, unit: usize) -> Layout {
        self.units[unit].layouts[usize::from(tier.0)]
    }

    /// A cell of a page.
    pub fn cell(&self, tier: Tier, page: PageId, unit: usize) -> &C {
        &self.tiers[usize::from(tier.0)][unit][page.0 as usize]
    }

    /// A cell of the page that is meant; the generation is the manager's business.
    pub fn cell_of(&self, block: BlockRef, unit: usize) -> &C {
        self.cell(block.tier, block.page, unit)
    }

    /// All bytes of a cell.
    pub fn bytes(&self, block: BlockRef, unit: usize) -> Vec<u8> {
        load_bytes(&[self.whole(block, unit)]).swap_remove(0)
    }

    /// A cell, and the range of all its bytes.
    pub fn whole(&self, block: BlockRef, unit: usize) -> (&C, Range<usize>) {
        (self.cell_of(block, unit), 0..self.layout(block.tier, unit).page_bytes() as usize)
    }

    /// The checksums of cells.
    pub fn sums(&self, cells: impl IntoIterator<Item = (BlockRef, usize)>) -> Vec<Sum> {
        let parts: Vec<_> = cells.into_iter().map(|(block, unit)| self.whole(block, unit)).collect();
        load_bytes(&parts).iter().map(|bytes| Sum(sum_of(bytes))).collect()
    }

    /// Forgets what a page holds.
    pub fn poison(&self, block: BlockRef) {
        for unit in 0..self.units.len() {
            let cell = self.cell_of(block, unit);
            cell.store(0, &vec![u64::from_ne_bytes([POISON; 8]); cell.len()]);
        }
    }
}

/// The checksum of the bytes of a cell. Moving them does not change it.
pub fn sum_of(bytes: &[u8]) -> u64 {
    kvweft_kernels::checksum_bytes(bytes, 0)
}

/// The bytes of ranges of cells.
pub fn load_bytes<C: Cell>(parts: &[(&C, Range<usize>)]) -> Vec<Vec<u8>> {
    let words = |bytes: &Range<usize>| bytes.start / 8..bytes.end.div_ceil(8);
    let wanted: Vec<(&C, Range<usize>)> = parts.iter().map(|(cell, bytes)| (*cell, words(bytes))).collect();
    let bytes = |((_, bytes), words): (&(&C, Range<usize>), Vec<u64>)| {
        let mut out = vec![0u8; words.len() * 8];
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let before = bytes.start % 8;
        out.truncate(before + bytes.len());
        out.drain(..before);
        out
    };
    parts.iter().zip(C::load_all(&wanted)).map(bytes).collect()
}

/// The bytes of a page, of which only those in some ranges are known.
pub struct Patch<'a, C> {
    /// Where the page lies.
    pub cell: &'a C,
    /// The page.
    pub bytes: &'a mut [u8],
    /// What is known of it.
    pub ranges: &'a [Range<usize>],
}

/// Completes the words at the edges of ranges with what the cells hold.
pub fn load_edges<C: Cell>(patches: &mut [Patch<'_, C>]) {
    let edges = |ranges: &[Range<usize>]| {
        let ends = ranges.iter().flat_map(|range| [range.start, range.end]).filter(|at| at % 8 != 0);
        let mut words: Vec<usize> = ends.map(|at| at / 8).collect();
        words.dedup();
        words
    };
    let wanted =
        (0..).zip(&*patches).flat_map(|(at, patch)| edges(patch.ranges).into_iter().map(move |word| (at, word)));
    let wanted: Vec<(usize, usize)> = wanted.collect();
    let parts: Vec<_> = wanted.iter().map(|&(at, word)| (patches[at].cell, word * 8..word * 8 + 8)).collect();
    for ((at, word), bytes) in wanted.into_iter().zip(load_bytes(&parts)) {
        let Patch { bytes: page, ranges, .. } = &mut patches[at];
        for (at, byte) in (word * 8..page.len()).zip(bytes) {
            if !ranges.iter().any(|range| range.contains(&at)) {
                page[at] = byte;
            }
        }
    }
}

/// The words that hold a range of a page's bytes, and the place of the first; nothing of an empty range.
pub fn words_of(page: &[u8], range: Range<usize>) -> Option<(usize, Vec<u64>)> {
    let (first, end) = (range.start / 8, range.end.div_ceil(8));
    let word = |at: usize| {
        let bytes = &page[at * 8..page.len().min(at * 8 + 8)];
        let mut word = [POISON; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    (!range.is_empty()).then(|| (first, (first..end).map(word).collect()))
}

/// Where an entry lies in a page: its bytes, and the bytes of its scale.
pub fn entry(layout: Layout, entry: usize) -> (Range<usize>, Range<usize>) {
    let (row, scale) = (usize::from(layout.bytes_per_entry), usize::from(layout.scale_bytes_per_entry));
    let entries = usize::from(layout.page_tokens / layout.tokens_per_entry);
    let (at, scale_at) = match layout.scale {
        kvweft_core::Scale::PerRow => (entry * (row + scale), entry * (row + scale) + row),
        kvweft_core::Scale::PerPage => (entry * row, entries * row + entry * scale),
        kvweft_core::Scale::None => (entry * row, entry * row),
    };
    (at..at + row, scale_at..scale_at + scale)
}

/// Which half of a move is made: a copy is under way between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// From the begin on.
    First,
    /// Up to the end.
    Second,
}

impl Half {
    /// The part of `0..len` that is in this half.
    pub fn of(self, len: usize) -> Range<usize> {
        match self {
            Half::First => 0..len / 2,
            Half::Second => len / 2..len,
        }
    }

    /// The same of bytes, cut at a multiple of 16 if there is one between: what devices copy at once.
    pub fn of_bytes(self, len: usize) -> Range<usize> {
        let cut = if len < 32 { len / 2 } else { len / 2 / 16 * 16 };
        match self {
            Half::First => 0..cut,
            Half::Second => cut..len,
        }
    }
}

/// The words of one half of a page that is moved from one cell to another: as many as the assumed layout has, and both ends
/// have room for.
///
/// Where both pools and the copy agree that is the whole page. Where the copy takes the bytes for another layout, what lies
/// beyond is not moved, and stays what it was.
pub fn moved_words<C: Cell>(from: &C, to: &C, moved: &MovedPart, half: Half) -> Range<usize> {
    half.of(words(moved.moved).min(from.len()).min(to.len()))
}
