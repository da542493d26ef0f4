//! What a step looks for among the index keys of a layer, for devices that score where the pages lie.

use kvweft_kernels::{IndexFormat, Query, decode_keys, logits, top_k};

/// Entries of the pages that devices score.
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
    /// The checksum of each page that was scored, if it was asked for.
    pub sums: Vec<u64>,
}

impl Search {
    /// The pages that the queries read.
    pub fn pages(&self) -> usize {
        self.wanted.iter().map(|wanted| wanted.cached.div_ceil(PAGE_ENTRIES)).max().unwrap_or(0)
    }

    /// The same on the host, from the bytes of the pages: what a device must agree with.
    ///
    /// # Panics
    /// If there are fewer pages than [`Search::pages`].
    pub fn by_host(&self, pages: &[&[u8]]) -> Vec<Vec<u32>> {
        let (mut keys, mut scales) = (Vec::new(), Vec::new());
        for page in &pages[..self.pages()] {
            decode_keys(self.format, page, PAGE_ENTRIES, 0..PAGE_ENTRIES, &mut keys, &mut scales);
        }
        let select = |wanted: &Wanted| {
            let query = Query { heads: self.heads, q: &wanted.q, weights: &self.weights };
            let (mut scores, mut selected) = (Vec::new(), Vec::new());
            logits(&keys[..wanted.cached], &scales[..wanted.cached], &query, &mut scores);
            scores.extend_from_slice(&wanted.known);
            top_k(&scores, wanted.k, &mut selected);
            selected
        };
        self.wanted.iter().map(select).collect()
    }
}
