//! Pages of index keys: the keys that the sparse indexer scores.

use core::ops::Range;

use half::bf16;

use crate::float4::{e2m1_from_f32, e2m1_to_f32};
use crate::float8::{e4m3_from_f32, e4m3_to_f32};
use crate::scale::{ScaleRule, fp4_scale, ue8m0_to_f32};

/// Values of a key.
pub const KEY_DIM: usize = 128;
/// Values of a 4-bit key that share a scale.
const FP4_BLOCK: usize = 32;

/// How the keys of a page are stored. Scales lie in a section of their own behind *all* keys of the page, so that no
/// token is contiguous with its scale.
///
/// The layouts are those of DeepSeek-V3.2's and V4's indexers: `tests/test_attention.py` of deepseek-ai/DeepGEMM has
/// the 8-bit one, and SGLang's pools have all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexFormat {
    /// 128 bytes of e4m3 per token; then one `f32` scale per token.
    Fp8,
    /// 256 bytes of bf16 per token, without scales.
    Bf16,
    /// 64 bytes per token of e2m1 pairs, the even dimension in the low half; then four ue8m0 bytes per token, one for
    /// each 32 dimensions.
    Fp4,
}

impl IndexFormat {
    /// All formats.
    pub const ALL: [IndexFormat; 3] = [IndexFormat::Fp8, IndexFormat::Bf16, IndexFormat::Fp4];

    /// Bytes of a token's key, without its scale.
    pub const fn key_bytes(self) -> usize {
        match self {
            IndexFormat::Fp8 => KEY_DIM,
            IndexFormat::Bf16 => 2 * KEY_DIM,
            IndexFormat::Fp4 => KEY_DIM / 2,
        }
    }

    /// Bytes of a token's scale or scales.
    pub const fn scale_bytes(self) -> usize {
        match self {
            IndexFormat::Fp8 => 4,
            IndexFormat::Bf16 => 0,
            IndexFormat::Fp4 => KEY_DIM / FP4_BLOCK,
        }
    }

    /// Bytes of a page of `page_tokens` tokens: 132, 256 or 68 for each.
    pub const fn page_bytes(self, page_tokens: usize) -> usize {
        (self.key_bytes() + self.scale_bytes()) * page_tokens
    }
}

/// Where a token's key and its scale lie in a page, in bytes. The second range is empty if the format has no scales.
///
/// # Panics
///
/// If the page has no such token.
pub fn key_sections(format: IndexFormat, page_tokens: usize, token: usize) -> (Range<usize>, Range<usize>) {
    assert!(token < page_tokens, "token {token} of a page of {page_tokens}");
    let (key, scale) = (format.key_bytes(), format.scale_bytes());
    let behind = key * page_tokens + scale * token;
    (key * token..key * (token + 1), behind..behind + scale)
}

/// Stores a token's key. Bytes of other tokens, and bytes behind the page's layout, stay as they are.
///
/// A value is divided by its scale, in `f32`, and rounded to the nearest code. `rule` is for [`IndexFormat::Fp8`];
/// 4-bit keys always have powers of two, `amax / 6` rounded up, and 16-bit keys have no scale.
///
/// Values should be finite. NaN reads back as NaN; with an infinity, at least that value (in 4-bit keys its block, in
/// 8-bit keys the whole key) reads back as what is not finite.
///
/// # Panics
///
/// If the page has no such token, or is shorter than its layout.
pub fn write_key(
    format: IndexFormat,
    rule: ScaleRule,
    page: &mut [u8],
    page_tokens: usize,
    token: usize,
    key: &[f32; KEY_DIM],
) {
    let (keys, scales) = sections_in(format, page.len(), page_tokens, token);
    match format {
        IndexFormat::Fp8 => {
            let scale = rule.scale(key);
            for (byte, value) in page[keys].iter_mut().zip(key) {
                *byte = e4m3_from_f32(value / scale);
            }
            page[scales].copy_from_slice(&scale.to_le_bytes());
        }
        IndexFormat::Bf16 => {
            for (bytes, value) in page[keys].as_chunks_mut::<2>().0.iter_mut().zip(key) {
                *bytes = bf16::from_f32(*value).to_le_bytes();
            }
        }
        IndexFormat::Fp4 => {
            let blocks = key.as_chunks::<FP4_BLOCK>().0;
            for (block, values) in blocks.iter().enumerate() {
                let code = fp4_scale(values);
                let scale = ue8m0_to_f32(code);
                let begin = keys.start + block * FP4_BLOCK / 2;
                for (byte, pair) in page[begin..begin + FP4_BLOCK / 2].iter_mut().zip(values.as_chunks::<2>().0) {
                    let [low, high] = pair.map(|value| e2m1_from_f32(value / scale));
                    *byte = high << 4 | low;
                }
                page[scales.start + block] = code;
            }
        }
    }
}

/// A token's key with its scale applied: the values that the page stands for.
///
/// # Panics
///
/// As [`write_key`].
pub fn read_key(format: IndexFormat, page: &[u8], page_tokens: usize, token: usize) -> [f32; KEY_DIM] {
    let (key, scale) = decode_key(format, page, page_tokens, token);
    key.map(|value| value * scale)
}

/// A token's key and the scale that is still to be applied to it, as the indexer's kernel has them: the scale comes
/// after the dot product. It is 1 for 16-bit keys, and for 4-bit keys, whose block scales are in the values.
///
/// # Panics
///
/// As [`write_key`].
pub fn decode_key(format: IndexFormat, page: &[u8], page_tokens: usize, token: usize) -> ([f32; KEY_DIM], f32) {
    let (keys, scales) = sections_in(format, page.len(), page_tokens, token);
    let (keys, scales) = (&page[keys], &page[scales]);
    let mut key = [0.0; KEY_DIM];
    match format {
        IndexFormat::Fp8 => {
            for (value, byte) in key.iter_mut().zip(keys) {
                *value = e4m3_to_f32(*byte);
            }
            let scale = scales.as_chunks::<4>().0[0];
            (key, f32::from_le_bytes(scale))
        }
        IndexFormat::Bf16 => {
            for (value, bytes) in key.iter_mut().zip(keys.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
            (key, 1.0)
        }
        IndexFormat::Fp4 => {
            let blocks = key.as_chunks_mut::<FP4_BLOCK>().0.iter_mut();
            for ((values, bytes), code) in blocks.zip(keys.as_chunks::<{ FP4_BLOCK / 2 }>().0).zip(scales) {
                let scale = ue8m0_to_f32(*code);
                for (pair, byte) in values.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
                    *pair = [e2m1_to_f32(*byte) * scale, e2m1_to_f32(*byte >> 4) * scale];
                }
            }
            (key, 1.0)
        }
    }
}

/// [`key_sections`] of a page that has them.
fn sections_in(format: IndexFormat, bytes: usize, page_tokens: usize, token: usize) -> (Range<usize>, Range<usize>) {
    let needed = format.page_bytes(page_tokens);
    assert!(bytes >= needed, "a page of {page_tokens} tokens has {needed} bytes and not {bytes}");
    key_sections(format, page_tokens, token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 64;

    fn key(seed: u64, limit: i64) -> [f32; KEY_DIM] {
        let integer = |i: usize| crate::mix64(seed << 32 | i as u64) as i64 % (limit + 1);
        core::array::from_fn(|i| integer(i) as f32)
    }

    #[test]
    fn pages_of_64_tokens_have_the_published_sizes() {
        assert_eq!(IndexFormat::ALL.map(|format| format.page_bytes(PAGE)), [8448, 16384, 4352]);
        assert_eq!(key_sections(IndexFormat::Fp8, PAGE, 3), (384..512, 8204..8208));
        assert_eq!(key_sections(IndexFormat::Fp4, PAGE, 63), (4032..4096, 4348..4352));
        let (key, scale) = key_sections(IndexFormat::Bf16, PAGE, 1);
        assert!(key == (256..512) && scale.is_empty());
    }

    #[test]
    fn the_sections_of_all_tokens_tile_the_page() {
        for format in IndexFormat::ALL {
            let mut hits = vec![0; format.page_bytes(PAGE)];
            for token in 0..PAGE {
                let (key, scale) = key_sections(format, PAGE, token);
                key.chain(scale).for_each(|byte| hits[byte] += 1);
            }
            assert!(hits.iter().all(|hit| *hit == 1), "{format:?}");
        }
    }

    #[test]
    fn a_write_touches_its_own_sections_only() {
        for format in IndexFormat::ALL {
            let mut page = vec![0xa5; format.page_bytes(PAGE) + 16];
            write_key(format, ScaleRule::Amax, &mut page, PAGE, 5, &[0.0; KEY_DIM]);
            let (key, scale) = key_sections(format, PAGE, 5);
            for (i, byte) in page.iter().enumerate() {
                let own = key.contains(&i) || scale.contains(&i);
                assert!(own || *byte == 0xa5, "{format:?}: byte {i}");
            }
            assert_eq!(read_key(format, &page, PAGE, 5), [0.0; KEY_DIM]);
        }
    }

    #[test]
    fn small_integers_survive_with_scales_that_are_powers_of_two() {
        for (format, limit) in [(IndexFormat::Fp8, 8), (IndexFormat::Bf16, 8), (IndexFormat::Fp4, 4)] {
            let mut page = vec![0xff; format.page_bytes(PAGE)];
            for token in 0..PAGE {
                write_key(format, ScaleRule::PowerOfTwo, &mut page, PAGE, token, &key(token as u64, limit));
            }
            for token in 0..PAGE {
                assert_eq!(read_key(format, &page, PAGE, token), key(token as u64, limit), "{format:?}");
            }
        }
    }

    #[test]
    fn real_values_come_back_within_half_a_step_of_their_format() {
        let values: [f32; KEY_DIM] = core::array::from_fn(|i| (i as f32 * 0.37).sin() * 3.0);
        // Half of the last mantissa bit, and half of the smallest step, as parts of a value and of the largest value.
        for (format, relative, absolute) in
            [(IndexFormat::Fp8, 1.0 / 16.0, 1e-5), (IndexFormat::Bf16, 1.0 / 256.0, 0.0), (IndexFormat::Fp4, 0.25, 0.1)]
        {
            for rule in ScaleRule::ALL {
                let mut page = vec![0; format.page_bytes(1)];
                write_key(format, rule, &mut page, 1, 0, &values);
                for (read, value) in read_key(format, &page, 1, 0).into_iter().zip(values) {
                    let bound = value.abs() * relative + 3.0 * absolute;
                    assert!((read - value).abs() <= bound, "{format:?} {rule:?}: {value} became {read}");
                }
            }
        }
    }

    #[test]
    fn the_bytes_of_a_4_bit_key_are_low_half_first() {
        let mut key = [0.0; KEY_DIM];
        (key[0], key[1], key[33]) = (6.0, -0.5, 12.0);
        let mut page = [0; 68];
        write_key(IndexFormat::Fp4, ScaleRule::Amax, &mut page, 1, 0, &key);
        assert_eq!((page[0], page[1], page[16], &page[64..]), (0x97, 0, 0x70, [127, 128, 1, 1].as_slice()));
    }

    #[test]
    fn poison_and_values_that_are_not_finite_show() {
        for format in IndexFormat::ALL {
            let mut page = vec![0xff; format.page_bytes(2)];
            assert!(read_key(format, &page, 2, 1).iter().all(|value| value.is_nan()), "{format:?}");
            for (bad, rule) in [(f32::NAN, ScaleRule::Amax), (f32::INFINITY, ScaleRule::PowerOfTwo)] {
                let mut key = [1.0; KEY_DIM];
                key[77] = bad;
                write_key(format, rule, &mut page, 2, 0, &key);
                assert!(!read_key(format, &page, 2, 0)[77].is_finite(), "{format:?} {bad}");
            }
        }
    }
}
