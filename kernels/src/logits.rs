//! The indexer's scores of keys.

use core::ops::Range;

use crate::index_k::{IndexFormat, KEY_DIM, decode_key};

/// Partial sums of a dot product.
const LANES: usize = 16;

/// What one token asks of the indexer.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Heads of the indexer: 64 in DeepSeek-V3.2 and V4.
    pub heads: usize,
    /// `[heads, 128]`.
    pub q: &'a [f32],
    /// `[heads]`, with all constant factors and the scales of `q` in them.
    pub weights: &'a [f32],
}

impl Query<'_> {
    fn check(&self) {
        let expected = (self.heads * KEY_DIM, self.heads);
        let got = (self.q.len(), self.weights.len());
        assert!(got == expected, "lengths of q and weights: expected {expected:?}, got {got:?}");
    }
}

/// Appends the logits of some tokens of a page, decoding each key once.
///
/// # Panics
///
/// If the page has no such tokens or is shorter than its layout, or if lengths in the query differ from its heads.
pub fn page_logits(
    format: IndexFormat,
    page: &[u8],
    page_tokens: usize,
    tokens: Range<usize>,
    query: &Query,
    out: &mut Vec<f32>,
) {
    query.check();
    out.extend(tokens.map(|token| {
        let (key, scale) = decode_key(format, page, page_tokens, token);
        logit(&key, scale, query)
    }));
}

/// Appends the keys of some tokens of a page, and the scales that [`fn@logits`] is to apply after the dot products.
///
/// # Panics
///
/// If the page has no such tokens or is shorter than its layout.
pub fn decode_keys(
    format: IndexFormat,
    page: &[u8],
    page_tokens: usize,
    tokens: Range<usize>,
    out: &mut Vec<[f32; KEY_DIM]>,
    scales: &mut Vec<f32>,
) {
    out.reserve(tokens.len());
    scales.reserve(tokens.len());
    for token in tokens {
        let (key, scale) = decode_key(format, page, page_tokens, token);
        out.push(key);
        scales.push(scale);
    }
}

/// Appends the logit of each key, `scale * sum over heads of weight * relu(q . key)`, all in `f32`.
///
/// Source of the rule: class `Indexer` in `inference/model.py` of deepseek-ai/DeepSeek-V3.2-Exp. The order of sums is
/// fixed: lane `l` of 16 adds the products of dimensions `l`, `l + 16`, ... in turn; lanes are added in halves (`l` and
/// `l + 8`, then `l + 4`, ...); heads are added in turn, from 0. The relu keeps NaN.
///
/// # Panics
///
/// If there is not one scale for each key, or if lengths in the query differ from its heads.
pub fn logits(keys: &[[f32; KEY_DIM]], scales: &[f32], query: &Query, out: &mut Vec<f32>) {
    query.check();
    assert!(keys.len() == scales.len(), "{} keys and {} scales", keys.len(), scales.len());
    out.extend(keys.iter().zip(scales).map(|(key, scale)| logit(key, *scale, query)));
}

#[inline]
fn logit(key: &[f32; KEY_DIM], scale: f32, query: &Query) -> f32 {
    let heads = query.q.as_chunks::<KEY_DIM>().0;
    let mut sum = 0.0;
    for (q, weight) in heads.iter().zip(query.weights) {
        sum += weight * relu(dot(q, key));
    }
    scale * sum
}

/// 0 for what is below 0, and anything else as it is: `f32::max` would turn NaN into 0 and so hide a poisoned page.
#[inline]
fn relu(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}

#[inline]
fn dot(a: &[f32; KEY_DIM], b: &[f32; KEY_DIM]) -> f32 {
    let mut lanes = [0.0; LANES];
    products(a, b, &mut lanes);
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sums the products of each lane. A function of its own, through memory: compilers that see the halving of lanes too
/// make vectors of two for both.
#[inline(never)]
fn products(a: &[f32; KEY_DIM], b: &[f32; KEY_DIM], sums: &mut [f32; LANES]) {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    *sums = lanes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScaleRule, mix64, write_key};

    const PAGE: usize = 64;

    /// Integers of at most `limit` in size.
    fn integers(seed: u64, count: usize, limit: u64) -> Vec<i64> {
        let integer = |i: u64| (mix64(mix64(seed) ^ i) % (2 * limit + 1)) as i64 - limit as i64;
        (0..count as u64).map(integer).collect()
    }

    fn floats(values: &[i64]) -> Vec<f32> {
        values.iter().map(|value| *value as f32).collect()
    }

    /// Keys that 4-bit floats hold exactly, too: of every block, the largest is 8 in size at most.
    fn exact_keys(seed: u64) -> Vec<i64> {
        let magnitudes = [0, 1, 2, 3, 4, 6, 8];
        let choice = |v: &i64| magnitudes[v.unsigned_abs() as usize] * v.signum();
        integers(seed, PAGE * KEY_DIM, 6).iter().map(choice).collect()
    }

    fn page_of(format: IndexFormat, keys: &[i64]) -> Vec<u8> {
        let mut page = vec![0xff; format.page_bytes(PAGE)];
        for (token, key) in floats(keys).as_chunks::<KEY_DIM>().0.iter().enumerate() {
            write_key(format, ScaleRule::PowerOfTwo, &mut page, PAGE, token, key);
        }
        page
    }

    fn oracle(keys: &[i64], q: &[i64], weights: &[i64]) -> Vec<i64> {
        let product = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>();
        let logit = |key: &[i64]| {
            let heads = q.as_chunks::<KEY_DIM>().0.iter().zip(weights);
            heads.map(|(q, w)| w * product(q, key).max(0)).sum::<i64>()
        };
        keys.as_chunks::<KEY_DIM>().0.iter().map(|key| logit(key)).collect()
    }

    fn run(format: IndexFormat, page: &[u8], heads: usize, q: &[f32], weights: &[f32]) -> Vec<u32> {
        let mut out = Vec::new();
        page_logits(format, page, PAGE, 0..PAGE, &Query { heads, q, weights }, &mut out);
        out.iter().map(|logit| logit.to_bits()).collect()
    }

    fn bits(logits: &[i64]) -> Vec<u32> {
        logits.iter().map(|logit| (*logit as f32).to_bits()).collect()
    }

    #[test]
    fn the_exact_mode_equals_integers_bit_for_bit_in_every_format() {
        for (seed, heads) in [(1, 1), (2, 4), (3, 32), (4, 64)] {
            let (q, weights) = (integers(seed, heads * KEY_DIM, 8), integers(seed + 100, heads, 32));
            for format in IndexFormat::ALL {
                let fp4 = format == IndexFormat::Fp4;
                let keys = if fp4 { exact_keys(seed) } else { integers(seed + 200, PAGE * KEY_DIM, 8) };
                let expected = bits(&oracle(&keys, &q, &weights));
                assert_eq!(run(format, &page_of(format, &keys), heads, &floats(&q), &floats(&weights)), expected);
            }
        }
    }

    #[test]
    fn the_exact_mode_is_exact_at_its_largest_logit() {
        let (q, weights) = (vec![8; 64 * KEY_DIM], vec![32; 64]);
        let keys = vec![8; PAGE * KEY_DIM];
        assert_eq!(oracle(&keys, &q, &weights), [1 << 24; PAGE]);
        for format in IndexFormat::ALL {
            let got = run(format, &page_of(format, &keys), 64, &floats(&q), &floats(&weights));
            assert_eq!(got, bits(&[1 << 24; PAGE]), "{format:?}");
        }
    }

    #[test]
    fn in_the_exact_mode_no_order_of_dimensions_or_heads_matters() {
        let heads = 64;
        let (q, weights) = (integers(5, heads * KEY_DIM, 8), integers(6, heads, 32));
        let keys = integers(7, PAGE * KEY_DIM, 8);
        let turn = |values: &[i64]| {
            let rows = values.as_chunks::<KEY_DIM>().0;
            rows.iter().flat_map(|row| (0..KEY_DIM).map(|i| row[(i * 37 + 5) % KEY_DIM])).collect::<Vec<_>>()
        };
        let back: Vec<i64> = turn(&q).as_chunks::<KEY_DIM>().0.iter().rev().flatten().copied().collect();
        let weights_back: Vec<i64> = weights.iter().rev().copied().collect();
        for format in [IndexFormat::Fp8, IndexFormat::Bf16] {
            let straight = run(format, &page_of(format, &keys), heads, &floats(&q), &floats(&weights));
            let turned = page_of(format, &turn(&keys));
            assert_eq!(run(format, &turned, heads, &floats(&back), &floats(&weights_back)), straight);
        }
    }

    #[test]
    fn real_values_agree_with_sums_in_f64() {
        let real = |seed: u64, count| -> Vec<f32> {
            integers(seed, count, 1 << 20).iter().map(|v| *v as f32 / (1 << 18) as f32).collect()
        };
        let (heads, q, weights) = (64, real(1, 64 * KEY_DIM), real(2, 64));
        for format in IndexFormat::ALL {
            let mut page = vec![0; format.page_bytes(PAGE)];
            for (token, key) in real(3, PAGE * KEY_DIM).as_chunks::<KEY_DIM>().0.iter().enumerate() {
                write_key(format, ScaleRule::Amax, &mut page, PAGE, token, key);
            }
            let mut got = Vec::new();
            page_logits(format, &page, PAGE, 0..PAGE, &Query { heads, q: &q, weights: &weights }, &mut got);
            for (token, got) in got.into_iter().enumerate() {
                let key = crate::read_key(format, &page, PAGE, token);
                let dot = |q: &[f32]| q.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(b)).sum::<f64>();
                let terms = q.as_chunks::<KEY_DIM>().0.iter().zip(&weights);
                let terms: Vec<f64> = terms.map(|(q, w)| f64::from(*w) * dot(q).max(0.0)).collect();
                let size: f64 = terms.iter().map(|term| term.abs()).sum();
                assert!((terms.iter().sum::<f64>() - f64::from(got)).abs() <= 2e-6 * size, "{format:?} {token}");
            }
        }
    }

    #[test]
    fn decoding_first_gives_the_same_bits_and_appends() {
        let (q, weights) = (floats(&integers(1, 4 * KEY_DIM, 1000)), floats(&integers(2, 4, 1000)));
        let query = Query { heads: 4, q: &q, weights: &weights };
        for format in IndexFormat::ALL {
            let page = page_of(format, &integers(3, PAGE * KEY_DIM, 1000));
            let (mut keys, mut scales, mut apart, mut direct) = (Vec::new(), Vec::new(), vec![1.0], vec![1.0]);
            for tokens in [0..0, 0..10, 10..64] {
                decode_keys(format, &page, PAGE, tokens.clone(), &mut keys, &mut scales);
                page_logits(format, &page, PAGE, tokens, &query, &mut direct);
            }
            logits(&keys, &scales, &query, &mut apart);
            assert_eq!((apart.len(), &apart), (65, &direct), "{format:?}");
        }
    }

    #[test]
    fn a_poisoned_key_gives_nan_and_leaves_its_neighbours() {
        let keys = exact_keys(9);
        for format in IndexFormat::ALL {
            let mut page = page_of(format, &keys);
            let (key, scale) = crate::key_sections(format, PAGE, 3);
            key.chain(scale).for_each(|byte| page[byte] = 0xff);
            let query = Query { heads: 1, q: &[-1.0; KEY_DIM], weights: &[1.0] };
            let mut out = Vec::new();
            page_logits(format, &page, PAGE, 0..PAGE, &query, &mut out);
            let nan: Vec<usize> = (0..PAGE).filter(|token| out[*token].is_nan()).collect();
            assert_eq!(nan, [3], "{format:?}");
        }
    }
}
