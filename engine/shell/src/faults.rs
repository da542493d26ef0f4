//! Faults that are injected into a reload, and what notices them.
//!
//! A context lies in host memory, and its device pages still hold what another request has left there. It is reloaded with
//! one fault, and then an answer is computed from it. What looks for faults: generations of pages, checksums of what was read,
//! poison in scores, another selection than the right one, another answer than the right one.

use std::sync::Arc;

use kvweft_core::{Component, Config, Dtype, Geometry, Layout, PageId, Role, Tier};
use kvweft_kernels::mix64;

use crate::ask::{Added, Addends, Found, Search};
use crate::model::Token;
use crate::platform::{Cell, Platform};
use crate::pool::{Half, Pools, load_bytes, sum_of, words_of};
use crate::recall::{MARK, POISON, RecallModel, Step, text};

/// Pages of the context.
const PAGES: usize = 12;
const LAYERS: u8 = 2;
const HEADS: usize = 4;
/// The generation that readers expect, and that of the pages' former owner.
const NEW: u32 = 2;
const OLD: u32 = 1;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing.
    None,
    /// A layer is read before its copy, and the pages hold what their former owner left.
    NoWait,
    /// The same, and the pages were poisoned when they were freed.
    NoWaitPoisoned,
    /// A layer is read behind the event of the layer before.
    EventOfOtherLayer,
    /// A layer is read in the middle of its copy.
    Torn,
    /// The reload leaves the index keys out.
    WithoutIndexK,
    /// The reload leaves the KV entries out.
    WithoutKv,
    /// Pages are published before their copy.
    PublishedEarly,
    /// Pages were given to another request behind the reload.
    Reused,
    /// The offload did not wait for the forward: the mirror of one page has nothing.
    StaleMirror,
    /// The mirror of the last page is of a time when it was half full.
    OlderVersion,
    /// Two pages stand in each other's place.
    Swapped,
    /// A layer has the pages of the layer before.
    OtherLayer,
    /// Index keys are copied as if their type were the next smaller one.
    SmallerLayout,
    /// One bit of one index key is wrong.
    KeyBit,
    /// One bit of one KV row is wrong.
    RowBit,
}

impl Fault {
    /// All, nothing first.
    pub const ALL: [Fault; 16] = [
        Fault::None,
        Fault::NoWait,
        Fault::NoWaitPoisoned,
        Fault::EventOfOtherLayer,
        Fault::Torn,
        Fault::WithoutIndexK,
        Fault::WithoutKv,
        Fault::PublishedEarly,
        Fault::Reused,
        Fault::StaleMirror,
        Fault::OlderVersion,
        Fault::Swapped,
        Fault::OtherLayer,
        Fault::SmallerLayout,
        Fault::KeyBit,
        Fault::RowBit,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::NoWait => "read before the copy",
            Fault::NoWaitPoisoned => "read before the copy, freed pages poisoned",
            Fault::EventOfOtherLayer => "read behind the event of the layer before",
            Fault::Torn => "read in the middle of the copy",
            Fault::WithoutIndexK => "reload without index-K",
            Fault::WithoutKv => "reload without KV",
            Fault::PublishedEarly => "published before the copy",
            Fault::Reused => "page given to another request",
            Fault::StaleMirror => "offload before the forward",
            Fault::OlderVersion => "mirror of an older, shorter page",
            Fault::Swapped => "two pages swapped",
            Fault::OtherLayer => "pages of the layer before",
            Fault::SmallerLayout => "index-K copied as a smaller layout",
            Fault::KeyBit => "one bit of an index key",
            Fault::RowBit => "one bit of a KV row",
        }
    }

    /// Whether a part of a page arrives: all of it, its first half, or nothing.
    fn arrives(self, layer: u8, component: Component) -> Arrival {
        match self {
            Fault::NoWait | Fault::NoWaitPoisoned | Fault::PublishedEarly => Arrival::Nothing,
            Fault::EventOfOtherLayer if layer > 0 => Arrival::Nothing,
            Fault::Torn => Arrival::Half,
            Fault::WithoutIndexK if component == Component::IndexK => Arrival::Nothing,
            Fault::WithoutKv if component == Component::Kv => Arrival::Nothing,
            Fault::SmallerLayout if component == Component::IndexK => Arrival::Smaller,
            _ => Arrival::All,
        }
    }

    /// Whether a layer was published before it was read.
    fn publishes(self, layer: u8) -> bool {
        match self {
            Fault::NoWait | Fault::NoWaitPoisoned | Fault::Torn => false,
            Fault::EventOfOtherLayer => layer == 0,
            _ => true,
        }
    }
}

enum Arrival {
    All,
    Half,
    Smaller,
    Nothing,
}

/// How often each detector has noticed a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// The fault.
    pub fault: Fault,
    /// How often it was injected.
    pub times: u32,
    /// By each of [`DETECTORS`].
    pub by: [u32; 5],
}

/// What looks for faults.
pub const DETECTORS: [&str; 5] = ["generation", "checksum", "poison", "selection", "answer"];

/// Injects each fault into so many reloads of different contexts.
pub fn matrix<P: Platform>(index: Dtype, times: u32) -> Vec<Noticed> {
    let geometry = Geometry::uniform(LAYERS, 64, Some(index));
    let model = RecallModel::new(&geometry, HEADS, 0).expect("the layouts are those of the model");
    let pools = Pools::new(&Config::new(Role::Together, geometry, PAGES as u32, PAGES as u32));
    let scene: Scene<P::Cell> = Scene { model: Arc::new(model), pools };
    let row = |fault: Fault| {
        let mut noticed = Noticed { fault, times, by: [0; 5] };
        for seed in 0..u64::from(times) {
            let found = scene.play(fault, seed);
            noticed.by.iter_mut().zip(found).for_each(|(count, found)| *count += u32::from(found));
        }
        noticed
    };
    Fault::ALL.map(row).to_vec()
}

struct Scene<C> {
    model: Arc<RecallModel>,
    pools: Pools<C>,
}

/// Letters, and a marker at the end, which asks for an answer.
fn tokens(seed: u64) -> Vec<Token> {
    let letter = |at: usize| Token::from(b'a' + (mix64(mix64(seed) ^ at as u64) % 26) as u8);
    (0..PAGES * 64 - 1).map(letter).chain([MARK]).collect()
}

/// Where a page of the context lies on the device.
fn slot(page: usize) -> PageId {
    PageId((page * 7 % PAGES) as u32)
}

impl<C: Cell> Scene<C> {
    fn page(&self, tokens: &[Token], unit: usize, page: usize) -> Vec<u8> {
        let unit = self.pools.units()[unit];
        self.model.expected_page(tokens, usize::from(unit.layer), unit.component, page)
    }

    fn fill(&self, tier: Tier, bytes: impl Fn(usize, usize) -> Vec<u8>) {
        let mut parts = Vec::new();
        for (unit, page) in self.cells() {
            let at = if tier == Tier::DEVICE { slot(page) } else { PageId(page as u32) };
            let bytes = bytes(unit, page);
            let (first, words) = words_of(&bytes, 0..bytes.len()).expect("a page has bytes");
            parts.push((self.pools.cell(tier, at, unit), first, words));
        }
        C::store_all(&parts);
    }

    fn cells(&self) -> impl Iterator<Item = (usize, usize)> + use<C> {
        let units = self.pools.units().len();
        (0..units).flat_map(|unit| (0..PAGES).map(move |page| (unit, page)))
    }

    /// Which detectors notice the fault.
    fn play(&self, fault: Fault, seed: u64) -> [bool; 5] {
        let (own, former, next) = (tokens(3 * seed), tokens(3 * seed + 1), tokens(3 * seed + 2));
        let poisoned = fault == Fault::NoWaitPoisoned;
        self.fill(Tier::DEVICE, |unit, page| {
            let left = self.page(&former, unit, page);
            if poisoned { vec![POISON; left.len()] } else { left }
        });
        self.fill(Tier::HOST, |unit, page| self.mirrored(fault, &own, unit, page, seed));
        self.reload(fault);
        let mut generations = [[OLD; PAGES]; LAYERS as usize];
        for (layer, generations) in (0..).zip(&mut generations) {
            generations.fill(if fault.publishes(layer) { NEW } else { OLD });
        }
        if fault == Fault::Reused {
            let page = mix64(seed) as usize % PAGES;
            let mut parts = Vec::new();
            for unit in 0..self.pools.units().len() {
                let bytes = self.page(&next, unit, page);
                let (first, words) = words_of(&bytes, 0..bytes.len()).expect("a page has bytes");
                parts.push((self.pools.cell(Tier::DEVICE, slot(page), unit), first, words));
            }
            C::store_all(&parts);
            generations.iter_mut().for_each(|generations| generations[page] = NEW + 1);
        }
        let mut noticed = self.answer(&own);
        noticed[0] = generations.iter().flatten().any(|generation| *generation != NEW);
        noticed
    }

    /// What the mirror holds of a page.
    fn mirrored(&self, fault: Fault, own: &[Token], unit: usize, page: usize, seed: u64) -> Vec<u8> {
        let layout = self.pools.units()[unit];
        let victim = mix64(seed ^ 0x51) as usize % PAGES;
        let flipped = |component: Component, bytes_of_entry: usize| {
            let mut bytes = self.page(own, unit, page);
            if layout.component == component && page == victim && layout.layer == 1 {
                let entry = mix64(seed ^ 0x52) as usize % 64;
                let bit = mix64(seed ^ 0x53) as usize % 8;
                bytes[entry * bytes_of_entry + mix64(seed ^ 0x54) as usize % 128] ^= 1 << bit;
            }
            bytes
        };
        let entry_bytes = usize::from(layout.layouts[1].bytes_per_entry);
        match fault {
            Fault::StaleMirror if page == victim => vec![POISON; self.page(own, unit, page).len()],
            Fault::OlderVersion if page == PAGES - 1 => self.page(&own[..own.len() - 32], unit, page),
            Fault::Swapped if page < 2 => self.page(own, unit, 1 - page),
            Fault::OtherLayer if layout.layer > 0 => {
                let before = self.pools.unit(layout.layer - 1, layout.component).expect("layers are alike");
                self.page(own, before, page)
            }
            Fault::KeyBit => flipped(Component::IndexK, entry_bytes),
            Fault::RowBit => flipped(Component::Kv, 656),
            _ => self.page(own, unit, page),
        }
    }

    fn reload(&self, fault: Fault) {
        let mut moves = Vec::new();
        for (unit, page) in self.cells() {
            let layout = self.pools.units()[unit];
            let from = self.pools.cell(Tier::HOST, PageId(page as u32), unit);
            let to = self.pools.cell(Tier::DEVICE, slot(page), unit);
            match fault.arrives(layout.layer, layout.component) {
                Arrival::All => moves.push((from, to, 0..from.len())),
                Arrival::Half => moves.push((from, to, Half::First.of(from.len()))),
                Arrival::Smaller => {
                    let smaller = if layout.layouts[0].dtype == Dtype::Bf16 { Dtype::Fp8 } else { Dtype::Fp4 };
                    moves.push((from, to, 0..Layout::index_k(smaller, 1, 64).page_bytes() as usize / 8));
                }
                Arrival::Nothing => {}
            }
        }
        C::copy_all(&moves);
    }

    /// Computes the answer from the device pages; what checksums, poison, selections and the answer say.
    fn answer(&self, own: &[Token]) -> [bool; 5] {
        let mut noticed = [false; 5];
        let mut step = Step::new(Arc::clone(&self.model), own.to_vec(), own.len());
        for layer in 0..LAYERS {
            let read = |component: Component| {
                let unit = self.pools.unit(layer, component).expect("layers are alike");
                let cells: Vec<&C> = (0..PAGES).map(|page| self.pools.cell(Tier::DEVICE, slot(page), unit)).collect();
                let right: Vec<Vec<u8>> = (0..PAGES).map(|page| self.page(own, unit, page)).collect();
                (cells, right)
            };
            let sums = |right: &[Vec<u8>]| right.iter().map(|page| sum_of(page)).collect::<Vec<u64>>();
            let (cells, right) = read(Component::IndexK);
            let search = step.search(layer.into()).expect("the layouts are known to devices");
            let expected = search.by_host(&right.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let found = search_in(search, cells);
            noticed[1] |= found.checksums != sums(&right);
            noticed[2] |= found.nan > 0;
            noticed[3] |= found.selected != expected.selected;
            step.selected(layer.into(), &found.selected);
            let (cells, right) = read(Component::Kv);
            let addends = step.addends(layer.into()).expect("as above");
            let added = add_in(addends, cells);
            noticed[1] |= added.checksums != sums(&right);
            step.added(layer.into(), &added.sums);
        }
        let (_, sampled) = step.sampled().expect("there is a marker");
        noticed[4] = text(&sampled) != self.model.answer(own);
        noticed
    }
}

/// Where the memory computes, there; else here.
fn search_in<C: Cell>(search: Search, cells: Vec<&C>) -> Found {
    if C::COMPUTES {
        return C::search(&[(search, cells)], true).swap_remove(0);
    }
    let (pages, checksums) = bytes(&cells);
    Found { checksums, ..search.by_host(&pages.iter().map(Vec::as_slice).collect::<Vec<_>>()) }
}

fn add_in<C: Cell>(addends: Addends, cells: Vec<&C>) -> Added {
    if C::COMPUTES {
        return C::add(&[(addends, cells)], true).swap_remove(0);
    }
    let (pages, checksums) = bytes(&cells);
    Added { checksums, ..addends.by_host(&pages.iter().map(Vec::as_slice).collect::<Vec<_>>()) }
}

/// The bytes of cells, whose pages are whole words, and their checksums.
fn bytes<C: Cell>(cells: &[&C]) -> (Vec<Vec<u8>>, Vec<u64>) {
    let parts: Vec<_> = cells.iter().map(|cell| (*cell, 0..cell.len() * 8)).collect();
    let pages = load_bytes(&parts);
    let sums = pages.iter().map(|page| sum_of(page)).collect();
    (pages, sums)
}
