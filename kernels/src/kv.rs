//! Rows of latent KV: what attention reads of a token in a layer.

use core::ops::Range;

use half::bf16;

use crate::float8::{e4m3_from_f32, e4m3_to_f32};
use crate::scale::ScaleRule;

/// Values of a row that carry no position; attention's values are these, its keys are the whole row.
pub const NOPE_DIM: usize = 512;
/// Values of a row that carry the position.
pub const ROPE_DIM: usize = 64;
/// Values of a row.
pub const ROW_DIM: usize = NOPE_DIM + ROPE_DIM;

/// Values of an 8-bit row that share a scale.
const TILE: usize = 128;
const SCALES_AT: usize = NOPE_DIM;
const ROPE_AT: usize = SCALES_AT + 4 * (NOPE_DIM / TILE);

/// How a row is stored; every row is contiguous with its scales.
///
/// The layouts are those of DeepSeek-V3.2: the README and `tests/quant.py` of deepseek-ai/FlashMLA have the 8-bit one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// 512 bytes of e4m3, four `f32` scales of 128 values each, and 64 values of bf16 that have no scale.
    Fp8,
    /// 576 values of bf16.
    Bf16,
}

impl KvFormat {
    /// All formats.
    pub const ALL: [KvFormat; 2] = [KvFormat::Fp8, KvFormat::Bf16];

    /// Bytes of a row: 656 or 1152.
    pub const fn row_bytes(self) -> usize {
        match self {
            KvFormat::Fp8 => ROPE_AT + 2 * ROPE_DIM,
            KvFormat::Bf16 => 2 * ROW_DIM,
        }
    }

    #[track_caller]
    fn check(self, bytes: usize) {
        let expected = self.row_bytes();
        assert!(bytes == expected, "a row of {self:?} has {expected} bytes and not {bytes}");
    }
}

/// Stores a row: first the 512 values without position, then the 64 with it.
///
/// An 8-bit value is divided by its scale, in `f32`, and rounded to the nearest code; `rule` gives each tile of 128
/// values its scale, and means nothing for bf16. NaN reads back as NaN, and an infinity as what is not finite.
///
/// # Panics
///
/// If `row` has another length than the format's.
pub fn write_row(format: KvFormat, rule: ScaleRule, row: &mut [u8], values: &[f32; ROW_DIM]) {
    format.check(row.len());
    let wide = match format {
        KvFormat::Fp8 => {
            let (codes, behind) = row.split_at_mut(SCALES_AT);
            let (scales, rope) = behind.split_at_mut(ROPE_AT - SCALES_AT);
            let tiles = values[..NOPE_DIM].as_chunks::<TILE>().0.iter();
            let stored = codes.as_chunks_mut::<TILE>().0.iter_mut().zip(scales.as_chunks_mut::<4>().0);
            for (tile, (codes, stored_scale)) in tiles.zip(stored) {
                let scale = rule.scale(tile);
                *stored_scale = scale.to_le_bytes();
                for (code, value) in codes.iter_mut().zip(tile) {
                    *code = e4m3_from_f32(value / scale);
                }
            }
            (rope, &values[NOPE_DIM..])
        }
        KvFormat::Bf16 => (row, values.as_slice()),
    };
    for (bytes, value) in wide.0.as_chunks_mut::<2>().0.iter_mut().zip(wide.1) {
        *bytes = bf16::from_f32(*value).to_le_bytes();
    }
}

/// Reads a row with its scales applied.
///
/// # Panics
///
/// If `row` has another length than the format's.
pub fn read_row(format: KvFormat, row: &[u8], out: &mut [f32; ROW_DIM]) {
    let (nope, rope) = out.split_at_mut(NOPE_DIM);
    read_nope(format, row, 0..NOPE_DIM, nope);
    let behind = row.len() - 2 * ROPE_DIM;
    read_bf16(&row[behind..], rope);
}

/// Reads only these of the 512 values without position, with their scales applied: a few dimensions are enough to
/// tell rows apart.
///
/// # Panics
///
/// If `row` has another length than the format's, `dims` ends behind 512, or `out` has another length than `dims`.
pub fn read_nope(format: KvFormat, row: &[u8], dims: Range<usize>, out: &mut [f32]) {
    format.check(row.len());
    assert!(dims.start <= dims.end && dims.end <= NOPE_DIM, "dimensions {dims:?} of {NOPE_DIM}");
    assert!(out.len() == dims.len(), "{} values for dimensions {dims:?}", out.len());
    match format {
        KvFormat::Fp8 => {
            let scales = row[SCALES_AT..ROPE_AT].as_chunks::<4>().0;
            let mut done = 0;
            while done < out.len() {
                // Up to the end of the tile.
                let begin = dims.start + done;
                let end = dims.end.min((begin / TILE + 1) * TILE);
                let scale = f32::from_le_bytes(scales[begin / TILE]);
                for (value, code) in out[done..].iter_mut().zip(&row[begin..end]) {
                    *value = e4m3_to_f32(*code) * scale;
                }
                done += end - begin;
            }
        }
        KvFormat::Bf16 => read_bf16(&row[2 * dims.start..2 * dims.end], out),
    }
}

fn read_bf16(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *value = bf16::from_le_bytes(*bytes).to_f32();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> [f32; ROW_DIM] {
        core::array::from_fn(|i| (i as f32 * 0.61).sin() * (1 + i / TILE) as f32)
    }

    #[test]
    fn rows_have_the_published_sizes() {
        assert_eq!(KvFormat::ALL.map(KvFormat::row_bytes), [656, 1152]);
        assert_eq!((SCALES_AT, ROPE_AT), (512, 528));
    }

    #[test]
    fn small_integers_survive_with_scales_that_are_powers_of_two() {
        let values: [f32; ROW_DIM] = core::array::from_fn(|i| (crate::mix64(i as u64) % 17) as f32 - 8.0);
        for format in KvFormat::ALL {
            let (mut row, mut read) = (vec![0xff; format.row_bytes()], [0.0; ROW_DIM]);
            write_row(format, ScaleRule::PowerOfTwo, &mut row, &values);
            read_row(format, &row, &mut read);
            assert_eq!(read, values, "{format:?}");
        }
    }

    #[test]
    fn real_values_come_back_within_half_a_step_and_each_tile_has_its_scale() {
        let values = values();
        for (format, rule) in [(KvFormat::Fp8, ScaleRule::Amax), (KvFormat::Fp8, ScaleRule::PowerOfTwo)]
            .into_iter()
            .chain([(KvFormat::Bf16, ScaleRule::Amax)])
        {
            let (mut row, mut read) = (vec![0; format.row_bytes()], [0.0; ROW_DIM]);
            write_row(format, rule, &mut row, &values);
            read_row(format, &row, &mut read);
            for (i, (read, value)) in read.into_iter().zip(values).enumerate() {
                let wide = format == KvFormat::Bf16 || i >= NOPE_DIM;
                let bound = if wide { value.abs() / 256.0 } else { value.abs() / 16.0 + 1e-4 };
                assert!((read - value).abs() <= bound, "{format:?} {rule:?} {i}: {value} became {read}");
            }
        }
        let mut row = [0; 656];
        write_row(KvFormat::Fp8, ScaleRule::Amax, &mut row, &values);
        for (tile, bytes) in row[512..528].as_chunks::<4>().0.iter().enumerate() {
            let amax = values[tile * TILE..][..TILE].iter().fold(0.0f32, |max, value| max.max(value.abs()));
            assert_eq!(f32::from_le_bytes(*bytes), amax / 448.0);
        }
    }

    #[test]
    fn some_dimensions_are_those_of_the_whole_row() {
        for format in KvFormat::ALL {
            let (mut row, mut whole) = (vec![0; format.row_bytes()], [0.0; ROW_DIM]);
            write_row(format, ScaleRule::Amax, &mut row, &values());
            read_row(format, &row, &mut whole);
            for dims in [0..0, 0..1, 100..300, 127..129, 256..384, 511..512, 0..512] {
                let mut some = vec![0.0; dims.len()];
                read_nope(format, &row, dims.clone(), &mut some);
                assert_eq!(some, whole[dims.clone()], "{format:?} {dims:?}");
            }
        }
    }

    #[test]
    fn poison_reads_as_nan_everywhere() {
        for format in KvFormat::ALL {
            let mut read = [0.0; ROW_DIM];
            read_row(format, &vec![0xff; format.row_bytes()], &mut read);
            assert!(read.iter().all(|value| value.is_nan()), "{format:?}");
        }
    }
}
