//! Codes of entries, index keys that spell them, and queries that look for them.

use kvweft_kernels::KEY_DIM;

use super::chain::below;

/// Codes, and so entries of a page with index keys, at most. The other rows of the Hadamard matrix are dust.
pub(super) const CODES_MAX: usize = 64;

/// Gives each entry of a page a code of its own, in order. A code depends on all tokens up to its entry and on none
/// behind it, so that pages which differ anywhere differ in keys from there on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes {
    left: [u8; CODES_MAX],
    count: usize,
}

impl Codes {
    pub(super) fn new(entries: usize) -> Codes {
        assert!(entries <= CODES_MAX, "{entries} entries have no codes of their own");
        Codes { left: core::array::from_fn(|code| code as u8), count: entries }
    }

    /// The code of the next entry; `random` belongs to the entry.
    pub(super) fn take(&mut self, random: u64) -> u8 {
        let at = below(random, self.count);
        self.count -= 1;
        let code = self.left[at];
        self.left[at] = self.left[self.count];
        code
    }
}

/// A row of the Hadamard matrix.
fn sign(row: usize, dim: usize) -> f32 {
    if (row & dim).count_ones() & 1 == 0 { 1.0 } else { -1.0 }
}

/// The key of an entry: the row of its code, and half the row of its dust, which no query sees.
pub(super) fn key(code: u8, dust: u64) -> [f32; KEY_DIM] {
    let (code, dust) = (code as usize, CODES_MAX + below(dust, KEY_DIM - CODES_MAX));
    core::array::from_fn(|dim| sign(code, dim) + 0.5 * sign(dust, dim))
}

/// `(factor, weight)` of a head: the query of a head is its factor times the row of the code. Every fourth head looks
/// away, and its relu gives 0.
fn head(head: usize) -> (f32, f32) {
    [(1.0, 1.0), (2.0, 2.0), (0.5, 4.0), (-1.0, 3.0)][head % 4]
}

/// `[heads, 128]` for one code.
pub(super) fn query(heads: usize, code: u8) -> Vec<f32> {
    let row = |(factor, _): (f32, f32)| (0..KEY_DIM).map(move |dim| factor * sign(code as usize, dim));
    (0..heads).flat_map(|at| row(head(at))).collect()
}

/// `[heads]`.
pub(super) fn weights(heads: usize) -> Vec<f32> {
    (0..heads).map(|at| head(at).1).collect()
}

/// The logit of a key of the code that is looked for. That of all others is 0.
pub(super) fn hit(heads: usize) -> f32 {
    (0..heads).map(head).map(|(factor, weight)| KEY_DIM as f32 * factor.max(0.0) * weight).sum()
}

#[cfg(test)]
mod tests {
    use kvweft_kernels::{IndexFormat, Query, ScaleRule, decode_keys, logits, mix64, write_key};

    use super::*;

    #[test]
    fn a_query_hits_its_own_code_and_nothing_else_in_every_format() {
        for format in IndexFormat::ALL {
            let mut page = vec![0xff; format.page_bytes(CODES_MAX)];
            for code in 0..CODES_MAX {
                let key = key(code as u8, mix64(code as u64));
                write_key(format, ScaleRule::PowerOfTwo, &mut page, CODES_MAX, code, &key);
            }
            let (mut keys, mut scales) = (Vec::new(), Vec::new());
            decode_keys(format, &page, CODES_MAX, 0..CODES_MAX, &mut keys, &mut scales);
            for (heads, code) in (1..9).flat_map(|heads| (0..CODES_MAX as u8).map(move |code| (heads, code))) {
                let mut got = Vec::new();
                let (q, weights) = (query(heads, code), weights(heads));
                logits(&keys, &scales, &Query { heads, q: &q, weights: &weights }, &mut got);
                let expected = |at| if at == code as usize { hit(heads) } else { 0.0 };
                assert!(got.iter().enumerate().all(|(at, logit)| *logit == expected(at)), "{format:?} {heads} {code}");
            }
        }
    }

    #[test]
    fn the_codes_of_a_page_are_a_permutation() {
        for entries in [1, 2, 7, 64] {
            let mut codes = Codes::new(entries);
            let mut taken: Vec<u8> = (0..entries).map(|entry| codes.take(mix64(entry as u64 + 9))).collect();
            taken.sort_unstable();
            assert!(taken.iter().enumerate().all(|(at, code)| at == *code as usize), "{entries}");
        }
    }
}
