//! What a step asks of the pages of a layer, for devices that compute where the pages lie; and the same on the host.

use kvweft_kernels::{IndexFormat, KvFormat, NOPE_DIM, Query, SUM_VALUE_MAX, decode_keys, logits, read_nope, top_k};

/// Entries of the pages that devices know.
pub const PAGE_ENTRIES: usize = 64;

/// Queries of one request over the cached entries of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// How the index keys are stored.
    pub format: IndexFormat,
    /// Heads of every query.
    pub heads: usize,
    /// `[heads]`, the same for every query.
    pub weights: Vec<f32>,
    /// What is looked for.
    pub wanted: Vec<Wanted>,
}

/// One query.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// `[heads, 128]`.
    pub q: Vec<f32>,
    /// The first entries, counted over pages of [`PAGE_ENTRIES`]: their keys are read.
    pub cached: usize,
    /// The logits of the entries behind them, which are known.
    pub known: Vec<f32>,
    /// How many to select of all of them.
    pub k: usize,
}

impl Wanted {
    /// All entries.
    pub fn entries(&self) -> usize {
        self.cached + self.known.len()
    }
}

/// What came of a [`Search`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// For each query, the selected entries in ascending order.
    pub selected: Vec<Vec<u32>>,
    /// Logits of all queries that are NaN: poison was scored.
    pub nan: u64,
    /// The checksum of each page that was scored, if it was asked for.
    pub checksums: Vec<u64>,
}

/// KV rows of one request that are to be added up, for several sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addends {
    /// How rows are stored.
    pub format: KvFormat,
    /// For each sum, the entries, counted over pages of [`PAGE_ENTRIES`].
    pub entries: Vec<Vec<u32>>,
}

/// What came of [`Addends`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Added {
    /// For each sum, the first 512 values. What is no integer of at most 2^15 in size counts as 0; a sum of more than 2^24
    /// may be rounded.
    pub sums: Vec<Vec<f32>>,
    /// The checksum of each page that was read, if it was asked for.
    pub checksums: Vec<u64>,
}

impl Search {
    /// The pages that the queries read.
    pub fn pages(&self) -> usize {
        self.wanted.iter().map(|wanted| wanted.cached.div_ceil(PAGE_ENTRIES)).max().unwrap_or(0)
    }

    /// The same on the host, from the bytes of the pages: what a device must agree with. Without checksums.
    ///
    /// # Panics
    /// If there are fewer pages than [`Search::pages`].
    pub fn by_host(&self, pages: &[&[u8]]) -> Found {
        let (mut keys, mut scales) = (Vec::new(), Vec::new());
        for page in &pages[..self.pages()] {
            decode_keys(self.format, page, PAGE_ENTRIES, 0..PAGE_ENTRIES, &mut keys, &mut scales);
        }
        let mut found = Found::default();
        for wanted in &self.wanted {
            let query = Query { heads: self.heads, q: &wanted.q, weights: &self.weights };
            let (mut scores, mut selected) = (Vec::new(), Vec::new());
            logits(&keys[..wanted.cached], &scales[..wanted.cached], &query, &mut scores);
            scores.extend_from_slice(&wanted.known);
            found.nan += u64::from(top_k(&scores, wanted.k, &mut selected).nan);
            found.selected.push(selected);
        }
        found
    }
}

/// What counts of a stored value: integers of at most 2^15 in size, and 0 of everything else.
pub fn sound(value: f32) -> i32 {
    let sound = value.abs() <= SUM_VALUE_MAX as f32 && value.round_ties_even() == value;
    if sound { value as i32 } else { 0 }
}

impl Addends {
    /// The same on the host, from the bytes of the pages: what a device must agree with. Entries of pages that are not there
    /// add nothing.
    pub fn by_host(&self, pages: &[&[u8]]) -> Added {
        let add = |entries: &Vec<u32>| {
            let mut sums = vec![0i32; NOPE_DIM];
            let mut values = [0.0; NOPE_DIM];
            for entry in entries.iter().map(|entry| *entry as usize) {
                let Some(page) = pages.get(entry / PAGE_ENTRIES) else { continue };
                let bytes = self.format.row_bytes();
                read_nope(self.format, &page[entry % PAGE_ENTRIES * bytes..][..bytes], 0..NOPE_DIM, &mut values);
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(sound(value)));
            }
            sums.into_iter().map(|sum| sum as f32).collect()
        };
        Added { sums: self.entries.iter().map(add).collect(), checksums: Vec::new() }
    }
}
