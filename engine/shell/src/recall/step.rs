//! One item of a forward step, layer by layer.

use core::ops::Range;
use std::sync::Arc;

use kvweft_kernels::{IndexFormat, mix64};

use self::select::{Asked, Reads};
use super::answer::{END, NIBBLES};
use super::model::RecallModel;
use super::row::{Nibbles, Reader, byte};
use super::sequence::{Ask, Sequence, Sums, Table};
use super::{MARK, Token};
use crate::ask::{Addends, PAGE_ENTRIES, Search};

mod select;

/// Bytes of the answer that a step without a marker asks for, for nothing but to notice what it reads wrong.
const PROBE: usize = 16;

/// What a device computes for one request in one forward pass.
///
/// For each layer in turn: [`Step::select`] with the index keys of all cached pages, [`Step::take`] for each row that
/// [`Step::wanted`] names, [`Step::write`] for each page of [`Step::pages`]. Then [`Step::sampled`].
#[derive(Clone, Debug)]
pub struct Step {
    sequence: Sequence,
    first: usize,
    /// What is sampled belongs to the last one, if there is a marker.
    asks: Vec<Ask>,
    /// Whether the markers are among the new tokens, so that this step writes their rows.
    closes: bool,
    /// The last marker of all, if there is any: its position.
    marker: Option<usize>,
    /// For each ask, those of all layers.
    sums: Vec<Vec<Sums>>,
    /// For each layer, those of the pages that the checked asks look at.
    tables: Vec<Vec<Table>>,
    /// For each layer, the row of the marker as it was read.
    shares: Vec<Nibbles>,
    layers: Vec<Reads>,
    /// A digest of what the first layers have read wrong, and how many those are. It garbles the rows of new tokens, as
    /// a wrong read does in any model; 0 if all was right.
    garble: (u64, usize),
}

/// What a [`Step::write`] has changed, in bytes of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// In the page of index keys.
    pub index: Vec<Range<usize>>,
    /// In the page of KV entries.
    pub kv: Vec<Range<usize>>,
}

impl Step {
    /// `tokens` are all tokens up to the end of what this step computes: `first..` now, those before are in the cache. A step
    /// without new tokens samples the answer to a prompt that is all in the cache.
    ///
    /// # Panics
    ///
    /// If there are no tokens at all.
    pub fn new(model: Arc<RecallModel>, tokens: impl Into<Arc<[Token]>>, first: usize) -> Step {
        let sequence = Sequence::new(model, tokens.into());
        let tokens = &sequence.tokens;
        assert!(first <= tokens.len() && !tokens.is_empty(), "a step of tokens {first}..{}", tokens.len());
        let new = (first..tokens.len()).filter(|at| tokens[*at] == MARK);
        let mut asks: Vec<Ask> = new.map(|marker| sequence.ask(marker)).collect();
        let closes = !asks.is_empty();
        let marker = asks.last().map(|ask| ask.marker);
        let marker = marker.or_else(|| tokens[..first].iter().rposition(|token| *token == MARK));
        let new = tokens.len() - first;
        if !closes && new > 0 && (marker.is_none() || new > 1) {
            asks.push(Ask { bytes: 0..PROBE, ..sequence.ask(first) });
        }
        if let (false, Some(marker)) = (closes, marker) {
            let place = |end: usize| (end - marker).min(sequence.model.answer_max);
            // A prompt that is all in the cache is asked about as a whole.
            let bytes = if new > 0 { place(first)..place(tokens.len()) } else { 0..sequence.model.answer_max };
            asks.push(Ask { bytes, checked: new == 0, ..sequence.ask(marker) });
        }
        let checked = asks.iter().filter(|ask| ask.checked).map(|ask| ask.pages).max();
        let tables = checked.map_or(Vec::new(), |pages| sequence.tables(pages));
        let (layers, zero) = (sequence.model.layers.len(), [0; NIBBLES]);
        let sums_of = |ask: &Ask| {
            let expected =
                |layer: usize| if ask.checked { sequence.expected(layer, ask, &tables[layer]) } else { zero };
            (0..layers).map(|layer| Sums { expected: expected(layer), actual: zero }).collect()
        };
        let sums = asks.iter().map(sums_of).collect();
        let (shares, layers) = (vec![zero; layers], vec![Reads::default(); layers]);
        Step { sequence, first, asks, closes, marker, sums, tables, shares, layers, garble: (0, 0) }
    }

    /// Layers of the model.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The position of the first new token.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The pages that new tokens lie in.
    pub fn pages(&self) -> Range<usize> {
        let page_tokens = self.sequence.model.page_tokens;
        self.first / page_tokens..self.sequence.tokens.len().div_ceil(page_tokens)
    }

    /// The pages that cached tokens lie in. The last one may be shared with new tokens.
    pub fn cached_pages(&self) -> usize {
        self.first.div_ceil(self.sequence.model.page_tokens)
    }

    /// The position of the marker whose answer is sampled: the last one of all.
    pub fn asks(&self) -> Option<usize> {
        self.marker
    }

    /// Scores the cached index keys of a layer and selects. `pages` are the bytes of all cached pages, in order of
    /// position; a layer without index keys gets none and selects everything.
    ///
    /// # Panics
    ///
    /// If pages that the context needs are missing or too short.
    pub fn select(&mut self, layer: usize, pages: &[&[u8]]) {
        let shape = *self.sequence.shape(layer);
        let context = self.context() * shape.entries();
        let cached = self.cached_entries(layer).min(context);
        if shape.index.is_none() {
            self.select_all(layer, cached);
        } else {
            let needed = cached.div_ceil(shape.entries());
            assert!(pages.len() >= needed, "pages of index keys: expected {needed}, got {}", pages.len());
            self.select_scored(layer, cached, pages);
        }
        self.want_share(layer);
    }

    /// What [`Step::select`] looks for among cached index keys, for a device that scores by itself: nothing if there are
    /// none, or if they are not stored as devices know them.
    pub fn search(&self, layer: usize) -> Option<Search> {
        let shape = self.sequence.shape(layer);
        let format = shape.format().filter(|format| *format != IndexFormat::Fp4)?;
        let cached = self.cached_entries(layer).min(self.context() * shape.entries());
        (shape.entries() == PAGE_ENTRIES && cached > 0).then(|| self.search_scored(layer, format, cached))
    }

    /// Takes what a device has selected by [`Step::search`], in place of [`Step::select`].
    ///
    /// # Panics
    ///
    /// If that are not the selections of as many queries.
    pub fn selected(&mut self, layer: usize, selected: &[Vec<u32>]) {
        let cached = self.cached_entries(layer).min(self.context() * self.sequence.shape(layer).entries());
        let asked = self.asked(layer);
        assert!(asked.len() == selected.len(), "selections of {} queries, got {}", asked.len(), selected.len());
        self.take_selected(layer, cached, asked, selected);
        self.want_share(layer);
    }

    /// Wants the row of the marker, too, if something is sampled that it adds to.
    fn want_share(&mut self, layer: usize) {
        let samples = self.asks.last().is_some_and(|ask| !ask.bytes.is_empty());
        if let (Some(row), true) = (self.share(layer), samples) {
            let wanted = &mut self.layers[layer].wanted;
            // Never there before: the row of a marker holds no values, so that no selection wants it.
            wanted.insert(wanted.partition_point(|at| *at < row), row);
        }
    }

    /// The cached KV rows that the layer's selection wants, `(page, entry)`, sorted and each once: those selected, and
    /// that of the marker.
    pub fn wanted(&self, layer: usize) -> &[(u32, u32)] {
        &self.layers[layer].wanted
    }

    /// Takes a wanted row and its scale, which may be empty.
    ///
    /// # Panics
    ///
    /// If the lengths are not those of the layout.
    pub fn take(&mut self, layer: usize, page: u32, entry: u32, row: &[u8], scale: &[u8]) {
        let shape = self.sequence.shape(layer);
        let reader = Reader::new(shape, row, scale);
        if self.share(layer) == Some((page, entry)) {
            let share = &mut self.shares[layer];
            self.asks.last().into_iter().flat_map(|ask| ask.bytes.clone()).for_each(|byte| reader.add(byte, share));
            return;
        }
        if shape.index.is_none() {
            for (ask, sums) in self.asks.iter().zip(&mut self.sums) {
                if (page as usize) < ask.pages {
                    ask.bytes.clone().for_each(|byte| reader.add(byte, &mut sums[layer].actual));
                }
            }
            return;
        }
        let Reads { picks, asked, .. } = &self.layers[layer];
        let begin = picks.partition_point(|pick| pick.at < (page, entry));
        for pick in picks[begin..].iter().take_while(|pick| pick.at == (page, entry)) {
            let asked = &asked[pick.asked as usize];
            let sums = &mut self.sums[asked.ask][layer].actual;
            asked.bytes.iter().for_each(|byte| reader.add(*byte as usize, sums));
        }
    }

    /// The rows that [`Step::wanted`] names, as sums for a device: one for each query, then, if it is wanted, the row of the
    /// marker by itself. Nothing where rows are not selected, or not stored as devices know them.
    pub fn addends(&self, layer: usize) -> Option<Addends> {
        let shape = self.sequence.shape(layer);
        let Reads { picks, asked, wanted } = &self.layers[layer];
        let format = shape.kv_format().filter(|_| shape.index.is_some() && shape.entries() == PAGE_ENTRIES)?;
        let flat = |(page, entry): (u32, u32)| page * PAGE_ENTRIES as u32 + entry;
        let mut entries = vec![Vec::new(); asked.len()];
        picks.iter().for_each(|pick| entries[pick.asked as usize].push(flat(pick.at)));
        let share = self.share(layer).filter(|share| wanted.binary_search(share).is_ok());
        entries.extend(share.map(|share| vec![flat(share)]));
        Some(Addends { format, entries })
    }

    /// Takes the sums of [`Step::addends`], in place of every [`Step::take`].
    ///
    /// # Panics
    ///
    /// If there are fewer sums.
    pub fn added(&mut self, layer: usize, sums: &[Vec<f32>]) {
        let add = |bytes: &mut dyn Iterator<Item = usize>, from: &[f32], to: &mut Nibbles| {
            for dim in bytes.flat_map(|byte| [2 * byte, 2 * byte + 1]) {
                to[dim] = to[dim].wrapping_add((from[dim] as i32).rem_euclid(16) as u8);
            }
        };
        let asked = &self.layers[layer].asked;
        for (Asked { ask, bytes, .. }, sum) in asked.iter().zip(sums) {
            let to = &mut self.sums[*ask][layer].actual;
            add(&mut bytes.iter().map(|byte| *byte as usize), sum, to);
        }
        if let (Some(share), Some(ask)) = (sums.get(asked.len()), self.asks.last()) {
            add(&mut ask.bytes.clone(), share, &mut self.shares[layer]);
        }
    }

    /// Writes the entries of a page that new tokens complete, once the layer has taken what it wanted. The buffers are
    /// whole pages; other bytes stay as they are. Without `index`, no keys are written.
    ///
    /// # Panics
    ///
    /// If a buffer is too short for its layout.
    pub fn write(&mut self, layer: usize, page: usize, index: Option<&mut [u8]>, kv: &mut [u8]) -> Changed {
        let garble = self.garble(layer);
        let (shape, begin) = (self.sequence.shape(layer), page * self.sequence.model.page_tokens);
        let complete = |tokens: usize| shape.complete(tokens.saturating_sub(begin));
        let entries = complete(self.first)..complete(self.sequence.tokens.len());
        let closing = |marker| {
            let at = self.asks.iter().position(|ask| ask.marker == marker).expect("new markers are asked about");
            self.sequence.closing(&self.asks[at], layer, &self.sums[at])
        };
        self.sequence.write_rows(layer, page, entries.clone(), (garble, closing), kv);
        let kv = self.sequence.row_ranges(layer, entries.clone());
        let index = index.filter(|_| shape.index.is_some()).map(|index| {
            self.sequence.write_keys(layer, page, entries.clone(), index);
            self.sequence.key_ranges(layer, entries)
        });
        Changed { index: index.unwrap_or_default(), kv }
    }

    /// After the last layer: the bytes that this step samples, and the place of the first one in the answer. A step
    /// that computes the marker, or no token, drafts all [`RecallModel::answer_max`] bytes; a later one gives a byte for each new
    /// token. Bytes behind the answer are [`END`]. Nothing without a marker.
    pub fn sampled(&self) -> Option<(usize, Vec<u8>)> {
        self.marker?;
        let (ask, sums) = (self.asks.last()?, self.sums.last()?);
        let mut total = [0u8; NIBBLES];
        let mut add =
            |nibbles: &Nibbles| total.iter_mut().zip(nibbles).for_each(|(sum, n)| *sum = sum.wrapping_add(*n));
        sums.iter().for_each(|sums| add(&sums.actual));
        let closed = self.sequence.share(ask.marker).is_some();
        for layer in self.sequence.model.closing_layers().filter(|_| closed) {
            if self.closes {
                add(&self.sequence.closing(ask, layer, sums));
            } else {
                add(&self.shares[layer]);
            }
        }
        let mut bytes: Vec<u8> = ask.bytes.clone().map(|at| byte(&total, at)).collect();
        if self.closes {
            self.spoil(ask, sums, &mut bytes[0]);
            return Some((0, bytes));
        }
        match self.sequence.tokens.len() - self.first {
            0 => {
                self.spoil(ask, sums, &mut bytes[0]);
                Some((0, bytes))
            }
            new => {
                bytes.resize(new, END);
                Some((self.first - ask.marker, bytes))
            }
        }
    }

    /// Makes sure that the first byte is wrong if anything was read wrong, though the first byte itself, or a layer
    /// behind the last closing share, need not show it.
    fn spoil(&self, ask: &Ask, sums: &[Sums], first: &mut u8) {
        let wrong: usize = sums.iter().map(|sums| sums.wrong(ask).count()).sum();
        if wrong > 0 && *first == byte(&self.sequence.right(ask.marker), 0) {
            *first ^= 1 + (wrong % 15) as u8;
        }
    }

    /// The digest of what the layers up to `layer` have read wrong.
    fn garble(&mut self, layer: usize) -> u64 {
        let (mut digest, from) = self.garble;
        for layer in from..=layer {
            let checked = self.asks.iter().zip(&self.sums).filter(|(ask, _)| ask.checked);
            for (at, difference) in checked.flat_map(|(ask, sums)| sums[layer].wrong(ask)) {
                digest = mix64(digest ^ (layer << 32 | at << 8) as u64 ^ u64::from(difference)) | 1;
            }
        }
        self.garble = (digest, from.max(layer + 1));
        digest
    }

    /// Where a layer keeps the closing share of the marker that is asked about, if it does and an earlier step has
    /// written it.
    fn share(&self, layer: usize) -> Option<(u32, u32)> {
        let cached = !self.closes && self.sequence.model.closes(layer);
        self.marker.filter(|_| cached).and_then(|marker| self.sequence.share(marker))
    }

    /// The pages that any ask looks at.
    fn context(&self) -> usize {
        self.asks.iter().map(|ask| ask.pages).max().unwrap_or(0)
    }

    /// Entries of a layer that lie in the cache: the first ones, counted over pages.
    fn cached_entries(&self, layer: usize) -> usize {
        let (shape, page_tokens) = (self.sequence.shape(layer), self.sequence.model.page_tokens);
        self.first / page_tokens * shape.entries() + shape.complete(self.first % page_tokens)
    }
}
