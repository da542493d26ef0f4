//! Which entries a step wants.

use kvweft_kernels::{IndexFormat, KEY_DIM, Query, decode_keys, logits, top_k};

use super::Step;
use crate::ask::{Search, Wanted};
use crate::recall::codes::{CODES_MAX, hit, query, weights};

/// What a layer reads from the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    pub(super) wanted: Vec<(u32, u32)>,
    /// Sorted; not used by dense layers, where every ask wants every row.
    pub(super) picks: Vec<Pick>,
    pub(super) asked: Vec<Asked>,
}

/// The bytes of an answer that look for the same code.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) code: u8,
    pub(super) ask: usize,
    pub(super) bytes: Vec<u8>,
}

/// That an entry was selected: `asked` is a place in [`Reads::asked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pick {
    pub(super) at: (u32, u32),
    pub(super) asked: u32,
}

impl Step {
    /// Selects the first `cached` entries, and adds up new ones.
    pub(super) fn select_all(&mut self, layer: usize, cached: usize) {
        let entries = self.sequence.shape(layer).entries();
        for (ask, sums) in self.asks.iter().zip(&mut self.sums) {
            let context = ask.pages * entries;
            self.sequence.add_dense(layer, cached.min(context)..context, &mut sums[layer].actual);
        }
        if self.asks.iter().all(|ask| ask.bytes.is_empty()) {
            return;
        }
        let all = (0..cached).map(|at| (at / entries, at % entries));
        let all = all.filter(|(page, entry)| !self.sequence.is_share(layer, *page, *entry));
        self.layers[layer].wanted = all.map(|(page, entry)| (page as u32, entry as u32)).collect();
    }

    /// Selects by the scores of the first `cached` entries, which are read, and of new ones, which are known.
    pub(super) fn select_scored(&mut self, layer: usize, cached: usize, pages: &[&[u8]]) {
        let entries = self.sequence.shape(layer).entries();
        let asked = self.asked(layer);
        let mut codes: Vec<u8> = asked.iter().map(|asked| asked.code).collect();
        codes.dedup();
        let mut scores = self.scores(layer, cached, pages, &codes);
        for (code, scores) in codes.iter().zip(&mut scores) {
            self.score_new(layer, *code, scores);
        }
        let mut rows = codes.iter().zip(&scores).peekable();
        let select = |Asked { code, ask, .. }: &Asked| {
            while rows.next_if(|(of, _)| *of != code).is_some() {}
            let (_, scores) = rows.peek().expect("each code was scored");
            let (pages, mut selected) = (self.asks[*ask].pages, Vec::new());
            top_k(&scores[..pages * entries], pages, &mut selected);
            selected
        };
        let selected: Vec<Vec<u32>> = asked.iter().map(select).collect();
        self.take_selected(layer, cached, asked, &selected);
    }

    /// The same as something to look for: what is asked is in the order of [`Step::asked`].
    pub(super) fn search_scored(&self, layer: usize, format: IndexFormat, cached: usize) -> Search {
        let (heads, entries) = (self.sequence.model.heads, self.sequence.shape(layer).entries());
        let wanted = |Asked { code, ask, .. }: Asked| {
            let k = self.asks[ask].pages;
            let cached = cached.min(k * entries);
            let mut known = vec![0.0; cached];
            if cached < k * entries {
                self.score_new(layer, code, &mut known);
                known.truncate(k * entries);
            }
            Wanted { q: query(heads, code), cached, known: known.split_off(cached), k }
        };
        let wanted = self.asked(layer).into_iter().map(wanted).collect();
        Search { format, heads, weights: weights(heads), wanted }
    }

    /// Keeps which cached entries were selected, and adds up new ones.
    pub(super) fn take_selected(&mut self, layer: usize, cached: usize, asked: Vec<Asked>, selected: &[Vec<u32>]) {
        let entries = self.sequence.shape(layer).entries();
        let mut picks = Vec::new();
        for ((place, Asked { ask, bytes, .. }), selected) in (0u32..).zip(&asked).zip(selected) {
            let sums = &mut self.sums[*ask][layer].actual;
            for flat in selected.iter().map(|flat| *flat as usize) {
                let (page, entry) = (flat / entries, flat % entries);
                if flat >= cached {
                    self.sequence.add(layer, page, entry, bytes, sums);
                } else if !self.sequence.is_share(layer, page, entry) {
                    picks.push(Pick { at: (page as u32, entry as u32), asked: place });
                }
            }
        }
        picks.sort_unstable();
        let mut wanted: Vec<(u32, u32)> = picks.iter().map(|pick| pick.at).collect();
        wanted.dedup();
        self.layers[layer] = Reads { wanted, picks, asked };
    }

    /// For each code, the logits of the first `cached` entries. Each key is decoded once.
    fn scores(&self, layer: usize, cached: usize, pages: &[&[u8]], codes: &[u8]) -> Vec<Vec<f32>> {
        let shape = self.sequence.shape(layer);
        let (format, entries) = (shape.format().expect("a layer with index keys"), shape.entries());
        let heads = self.sequence.model.heads;
        let (weights, context) = (weights(heads), self.context() * entries);
        let queries: Vec<Vec<f32>> = codes.iter().map(|code| query(heads, *code)).collect();
        let mut scores: Vec<Vec<f32>> = codes.iter().map(|_| Vec::with_capacity(context)).collect();
        let (mut keys, mut scales) = (Vec::<[f32; KEY_DIM]>::new(), Vec::new());
        for (page, bytes) in pages.iter().take(cached.div_ceil(entries)).enumerate() {
            let here = (cached - page * entries).min(entries);
            keys.clear();
            scales.clear();
            decode_keys(format, bytes, entries, 0..here, &mut keys, &mut scales);
            for (q, scores) in queries.iter().zip(&mut scores) {
                logits(&keys, &scales, &Query { heads, q, weights: &weights }, scores);
            }
        }
        scores
    }

    /// What the bytes of all asks look for, by code.
    pub(super) fn asked(&self, layer: usize) -> Vec<Asked> {
        let mut codes: [Vec<Asked>; CODES_MAX] = [const { Vec::new() }; CODES_MAX];
        for (at, ask) in self.asks.iter().enumerate() {
            for (byte, code) in self.sequence.asked(layer, ask) {
                let asked = &mut codes[code as usize];
                match asked.last_mut().filter(|asked| asked.ask == at) {
                    Some(asked) => asked.bytes.push(byte as u8),
                    None => asked.push(Asked { code, ask: at, bytes: vec![byte as u8] }),
                }
            }
        }
        codes.into_iter().flatten().collect()
    }

    /// Appends the scores of new entries, which are not read but known.
    fn score_new(&self, layer: usize, code: u8, scores: &mut Vec<f32>) {
        let entries = self.sequence.shape(layer).entries();
        let (cached, pages, hit) = (scores.len(), self.context(), hit(self.sequence.model.heads));
        scores.resize(pages * entries, 0.0);
        for page in cached / entries..pages {
            // Pages that new tokens fill and an answer looks at come before a new marker: their tables exist.
            let flat = page * entries + self.tables[layer][page][code as usize] as usize;
            if flat >= cached {
                scores[flat] = hit;
            }
        }
    }
}
