//! A token sequence and what its pages must hold: the part of the model that no cache is needed for.

use core::ops::Range;
use std::sync::Arc;

use kvweft_kernels::{ScaleRule, key_sections, write_key};

use super::answer::{NIBBLES, answer};
use super::chain::{Use, below, keyed, word};
use super::codes::{CODES_MAX, Codes, key};
use super::layer::LayerShape;
use super::model::RecallModel;
use super::row::{self, Nibbles, WORD, add_pure};
use super::{MARK, Token};

/// Half the bits of each byte: 8 nibbles with room for a carry.
const SPREAD: u64 = 0x0f0f_0f0f_0f0f_0f0f;

/// A prompt whose answer is wanted, in whole or in part.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// The position of its marker.
    pub(super) marker: usize,
    /// The pages that the answer sums over: all that are full with the marker.
    pub(super) pages: usize,
    /// The bytes that are wanted.
    pub(super) bytes: Range<usize>,
    /// Whether what is read is compared with what is expected.
    pub(super) checked: bool,
}

/// The sums of one layer for one [`Ask`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    /// Over what the tokens say.
    pub(super) expected: Nibbles,
    /// Over what was selected and read.
    pub(super) actual: Nibbles,
}

impl Sums {
    /// The nibbles of the wanted bytes that differ from the expected ones, and by how much.
    pub(super) fn wrong(&self, ask: &Ask) -> impl Iterator<Item = (usize, u8)> {
        let nibbles = 2 * ask.bytes.start..2 * ask.bytes.end;
        let differences = nibbles.map(|at| (at, self.actual[at].wrapping_sub(self.expected[at]) & 15));
        differences.filter(|(_, difference)| *difference != 0)
    }
}

/// Which entry of a page has a code.
pub(super) type Table = [u8; CODES_MAX];

/// A token sequence under a model.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) model: Arc<RecallModel>,
    pub(super) tokens: Arc<[Token]>,
    prefixes: Vec<u64>,
}

impl Sequence {
    pub(super) fn new(model: Arc<RecallModel>, tokens: Arc<[Token]>) -> Sequence {
        let prefixes = model.prefixes(&tokens);
        Sequence { model, tokens, prefixes }
    }

    pub(super) fn shape(&self, layer: usize) -> &LayerShape {
        &self.model.layers[layer]
    }

    /// All of the answer to the prompt that ends at `marker`.
    pub(super) fn ask(&self, marker: usize) -> Ask {
        Ask { marker, pages: (marker + 1) / self.model.page_tokens, bytes: 0..self.model.answer_max, checked: true }
    }

    /// The code that each wanted byte looks for in a layer with index keys.
    pub(super) fn asked(&self, layer: usize, ask: &Ask) -> impl Iterator<Item = (usize, u8)> + use<> {
        let key = keyed(self.prefixes[ask.marker + 1], Use::Query, layer);
        let entries = self.shape(layer).entries();
        ask.bytes.clone().map(move |byte| (byte, below(word(key, byte), entries) as u8))
    }

    /// Whether an entry is the row of a marker: it holds a share and no values, so that no later answer sums it.
    pub(super) fn is_share(&self, layer: usize, page: usize, entry: usize) -> bool {
        self.model.closes(layer) && self.tokens[self.last_token(layer, page, entry)] == MARK
    }

    /// The page and the entry, in all closing layers, of the row of a marker. A marker that does not complete an entry
    /// has none.
    pub(super) fn share(&self, marker: usize) -> Option<(u32, u32)> {
        let RecallModel { page_tokens, align, .. } = *self.model;
        let entry = (marker % page_tokens / align) as u32;
        (marker + 1).is_multiple_of(align).then_some(((marker / page_tokens) as u32, entry))
    }

    /// The token that completes an entry.
    pub(super) fn last_token(&self, layer: usize, page: usize, entry: usize) -> usize {
        page * self.model.page_tokens + (entry + 1) * self.shape(layer).tokens_per_entry() - 1
    }

    /// The entry of each code in a full page.
    pub(super) fn table(&self, layer: usize, page: usize) -> Table {
        let mut table = [0; CODES_MAX];
        let entries = self.shape(layer).entries();
        for (entry, code) in self.codes(layer, page, entries).enumerate() {
            table[code as usize] = entry as u8;
        }
        table
    }

    /// Adds what an entry adds to the bytes that select it.
    pub(super) fn add(&self, layer: usize, page: usize, entry: usize, bytes: &[u8], sums: &mut Nibbles) {
        if !self.is_share(layer, page, entry) {
            let key = self.key(Use::Value, layer, page, entry);
            bytes.iter().for_each(|byte| add_pure(key, *byte as usize, sums));
        }
    }

    /// Adds some entries of a dense layer, counted over pages, to all bytes.
    pub(super) fn add_dense(&self, layer: usize, entries: Range<usize>, sums: &mut Nibbles) {
        let per_page = self.shape(layer).entries();
        let mut halves = [[0u64; 2]; NIBBLES / WORD];
        let halves = &mut halves[..self.model.nibbles().div_ceil(WORD)];
        for (page, entry) in entries.map(|at| (at / per_page, at % per_page)) {
            if self.is_share(layer, page, entry) {
                continue;
            }
            let key = self.key(Use::Value, layer, page, entry);
            for (n, [even, odd]) in halves.iter_mut().enumerate() {
                let word = word(key, n);
                *even = (*even + (word & SPREAD)) & SPREAD;
                *odd = (*odd + (word >> 4 & SPREAD)) & SPREAD;
            }
        }
        for (sums, halves) in sums.as_chunks_mut::<WORD>().0.iter_mut().zip(halves) {
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add((halves[at % 2] >> (8 * (at / 2))) as u8 & 15);
            }
        }
    }

    /// The sums of a layer if every page is right. `tables` are those of the pages of a layer with index keys.
    pub(super) fn expected(&self, layer: usize, ask: &Ask, tables: &[Table]) -> Nibbles {
        let mut sums = [0; NIBBLES];
        if self.shape(layer).index.is_none() {
            self.add_dense(layer, 0..ask.pages * self.shape(layer).entries(), &mut sums);
            return sums;
        }
        let asked: Vec<(usize, u8)> = self.asked(layer, ask).collect();
        for (page, table) in tables[..ask.pages].iter().enumerate() {
            for (byte, code) in &asked {
                self.add(layer, page, table[*code as usize].into(), &[*byte as u8], &mut sums);
            }
        }
        sums
    }

    /// The tables of the first pages of each layer with index keys.
    pub(super) fn tables(&self, pages: usize) -> Vec<Vec<Table>> {
        let tables = |layer| match self.shape(layer).index {
            Some(_) => (0..pages).map(|page| self.table(layer, page)).collect(),
            None => Vec::new(),
        };
        (0..self.model.layers.len()).map(tables).collect()
    }

    /// The closing share of a layer: the right nibbles' part that falls to it, less the expected sums of all layers
    /// that it closes, plus twice what those up to it have read wrong. `sums` are those of all layers; without them,
    /// everything was read right.
    pub(super) fn closing(&self, ask: &Ask, layer: usize, sums: &[Sums]) -> Nibbles {
        let mut share = self.right_share(ask.marker, layer);
        let tables = if sums.is_empty() { self.tables(ask.pages) } else { Vec::new() };
        for of in (0..self.model.layers.len()).filter(|of| self.model.closed_by(*of) == layer) {
            let right;
            let (expected, actual) = match sums.get(of) {
                Some(sums) => (&sums.expected, if of <= layer { &sums.actual } else { &sums.expected }),
                None => {
                    right = self.expected(of, ask, &tables[of]);
                    (&right, &right)
                }
            };
            for ((share, expected), actual) in share.iter_mut().zip(expected).zip(actual) {
                let wrong = actual.wrapping_sub(*expected);
                *share = share.wrapping_sub(*expected).wrapping_add(wrong.wrapping_mul(2));
            }
        }
        share.map(|nibble| nibble & 15)
    }

    /// The nibbles of the right answer, zeros behind it.
    pub(super) fn right(&self, marker: usize) -> Nibbles {
        let answer = answer(&self.tokens[..=marker], self.prefixes[marker + 1], self.model.answer_max);
        let mut nibbles = [0; NIBBLES];
        for (pair, byte) in nibbles.as_chunks_mut::<2>().0.iter_mut().zip(answer) {
            *pair = [byte & 15, byte >> 4];
        }
        nibbles
    }

    /// The part of the right nibbles that falls to a layer: arbitrary, and what is left for the last one.
    fn right_share(&self, marker: usize, layer: usize) -> Nibbles {
        let share = |layer| -> Nibbles {
            let key = keyed(self.prefixes[marker + 1], Use::Share, layer);
            core::array::from_fn(|at| (word(key, at / WORD) >> (4 * (at % WORD)) & 15) as u8)
        };
        let mut closing = self.model.closing_layers();
        if closing.next_back() != Some(layer) {
            return share(layer);
        }
        let mut left = self.right(marker);
        for other in closing.map(share) {
            left.iter_mut().zip(other).for_each(|(left, other)| *left = left.wrapping_sub(other));
        }
        left
    }

    /// Writes index keys into a page.
    pub(super) fn write_keys(&self, layer: usize, page: usize, entries: Range<usize>, bytes: &mut [u8]) {
        let shape = self.shape(layer);
        let format = shape.format().expect("a layer with index keys");
        let codes = self.codes(layer, page, entries.end).enumerate().skip(entries.start);
        for (entry, code) in codes {
            let key = key(code, self.key(Use::Dust, layer, page, entry));
            write_key(format, ScaleRule::PowerOfTwo, bytes, shape.entries(), entry, &key);
        }
    }

    /// Writes KV rows into a page. `closing` gives the share of the layer at the marker's position; `garble` changes
    /// the values unless it is 0.
    pub(super) fn write_rows(
        &self,
        layer: usize,
        page: usize,
        entries: Range<usize>,
        (garble, closing): (u64, impl Fn(usize) -> Nibbles),
        bytes: &mut [u8],
    ) {
        let shape = self.shape(layer);
        for entry in entries {
            let closing = self.is_share(layer, page, entry).then(|| closing(self.last_token(layer, page, entry)));
            let closing = closing.as_ref().map(|closing| &closing[..self.model.nibbles()]);
            let (value, filler) = (self.key(Use::Value, layer, page, entry), self.key(Use::Filler, layer, page, entry));
            let [row, scale] = pair(bytes, shape.row(entry), shape.scale(entry));
            row::write(shape, value ^ garble, filler, closing, row, scale);
        }
    }

    /// Where the index keys of some entries lie in a page: keys, and scales if there are any.
    pub(super) fn key_ranges(&self, layer: usize, entries: Range<usize>) -> Vec<Range<usize>> {
        let shape = self.shape(layer);
        let Some(format) = shape.format() else { return Vec::new() };
        let section = |entry| key_sections(format, shape.entries(), entry);
        spans(entries, |entry| section(entry).0, |entry| section(entry).1)
    }

    /// Where the KV rows of some entries lie in a page, with their scales.
    pub(super) fn row_ranges(&self, layer: usize, entries: Range<usize>) -> Vec<Range<usize>> {
        let shape = self.shape(layer);
        spans(entries, |entry| shape.row(entry), |entry| shape.scale(entry))
    }

    /// The codes of the first entries of a page.
    fn codes(&self, layer: usize, page: usize, entries: usize) -> impl Iterator<Item = u8> + '_ {
        let mut codes = Codes::new(self.shape(layer).entries());
        (0..entries).map(move |entry| codes.take(self.key(Use::Code, layer, page, entry)))
    }

    /// The key of an entry: it depends on all tokens up to its last one.
    fn key(&self, purpose: Use, layer: usize, page: usize, entry: usize) -> u64 {
        keyed(self.prefixes[self.last_token(layer, page, entry) + 1], purpose, layer)
    }
}

/// Two parts of a slice; the second lies behind the first or is empty.
fn pair(bytes: &mut [u8], first: Range<usize>, second: Range<usize>) -> [&mut [u8]; 2] {
    if second.is_empty() {
        return [&mut bytes[first], &mut []];
    }
    let (front, back) = bytes.split_at_mut(second.start);
    [&mut front[first], &mut back[..second.len()]]
}

/// Joins the first ranges of neighbouring entries, and the second ones; and both, where they alternate.
fn spans(
    entries: Range<usize>,
    first: impl Fn(usize) -> Range<usize>,
    second: impl Fn(usize) -> Range<usize>,
) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let ranges = entries.clone().map(&first).chain(entries.map(&second));
    let mut ranges: Vec<Range<usize>> = ranges.filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    for range in ranges {
        match spans.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => spans.push(range),
        }
    }
    spans
}
