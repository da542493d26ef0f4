//! KV rows: integers from 0 to 15 as floats, filler behind them, and a scale of 1.

use core::ops::Range;

use kvweft_core::Dtype;
use kvweft_kernels::{KvFormat, e4m3_to_f32};

use super::answer::NIBBLES;
use super::chain::word;
use super::layer::LayerShape;
use crate::ask::sound;

/// One nibble per byte; byte `j` of an answer is nibbles `2 j` (low) and `2 j + 1` (high). Sums wrap, and only their low
/// four bits count.
pub(super) type Nibbles = [u8; NIBBLES];

/// Values that one pseudo-random word holds.
pub(super) const WORD: usize = 16;

/// 0 to 15 as e4m3.
const E4M3: [u8; 16] = [0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57];

/// Where the kernels find the scales of a row that they know, one for 128 values each: behind 512 values, whatever lies
/// behind the row.
const SCALES: Range<usize> = 512..528;

/// Writes a row and its scale. The values are those of `key`; `closing`, no longer than a row, takes the place of the
/// first ones.
pub(super) fn write(
    shape: &LayerShape,
    key: u64,
    filler: u64,
    closing: Option<&[u8]>,
    row: &mut [u8],
    scale: &mut [u8],
) {
    let mut values = [0; 512];
    let count = shape.values();
    for (n, values) in values[..count.next_multiple_of(WORD)].as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        let word = word(key, n);
        *values = core::array::from_fn(|at| (word >> (4 * at) & 15) as u8);
    }
    if let Some(closing) = closing {
        values[..closing.len()].copy_from_slice(closing);
    }
    let used = match shape.kv.dtype {
        Dtype::Bf16 => {
            for (bytes, value) in row.as_chunks_mut::<2>().0.iter_mut().zip(&values[..count]) {
                *bytes = ((f32::from(*value & 15).to_bits() >> 16) as u16).to_le_bytes();
            }
            2 * count
        }
        Dtype::Fp8 | Dtype::Fp4 => {
            for (byte, value) in row.iter_mut().zip(&values[..count]) {
                *byte = E4M3[*value as usize & 15];
            }
            count
        }
    };
    fill(&mut row[used..], filler, 0);
    fill(scale, filler, 1 << 20);
    if shape.kv_format() == Some(KvFormat::Fp8) {
        row[SCALES].as_chunks_mut::<4>().0.fill(1f32.to_le_bytes());
    }
    if let Some(scale) = scale.first_chunk_mut::<4>() {
        *scale = 1f32.to_le_bytes();
    }
}

fn fill(bytes: &mut [u8], key: u64, from: usize) {
    for (n, bytes) in bytes.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&word(key, from + n).to_le_bytes()[..bytes.len()]);
    }
}

/// Adds the values of answer byte `byte` to `sums`, straight from the stream that they come from.
#[inline]
pub(super) fn add_pure(key: u64, byte: usize, sums: &mut Nibbles) {
    let word = word(key, 2 * byte / WORD) >> (4 * (2 * byte % WORD));
    sums[2 * byte] = sums[2 * byte].wrapping_add((word & 15) as u8);
    sums[2 * byte + 1] = sums[2 * byte + 1].wrapping_add((word >> 4 & 15) as u8);
}

/// A row as it was read.
pub(super) struct Reader<'a> {
    dtype: Dtype,
    row: &'a [u8],
    /// Of each 128 values.
    scales: [f32; 4],
}

impl<'a> Reader<'a> {
    pub(super) fn new(shape: &LayerShape, row: &'a [u8], scale: &[u8]) -> Reader<'a> {
        let expected = (shape.kv.bytes_per_entry as usize, shape.scale(0).len());
        let got = (row.len(), scale.len());
        assert!(got == expected, "bytes of a row and its scale: expected {expected:?}, got {got:?}");
        let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        let scales = if shape.kv_format() == Some(KvFormat::Fp8) {
            let scales = row[SCALES].as_chunks::<4>().0;
            core::array::from_fn(|tile| number(&scales[tile]))
        } else {
            [scale.first_chunk::<4>().map_or(1.0, number); 4]
        };
        Reader { dtype: shape.kv.dtype, row, scales }
    }

    /// The value of a dimension, modulo 16. What was never written as a value counts as 0.
    pub(super) fn nibble(&self, dim: usize) -> u8 {
        let stored = match self.dtype {
            Dtype::Bf16 => {
                let bytes = [self.row[2 * dim], self.row[2 * dim + 1]];
                f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
            }
            Dtype::Fp8 | Dtype::Fp4 => e4m3_to_f32(self.row[dim]),
        };
        sound(stored * self.scales[dim / 128]).rem_euclid(16) as u8
    }

    /// Adds the values of answer byte `byte` to `sums`.
    pub(super) fn add(&self, byte: usize, sums: &mut Nibbles) {
        for dim in [2 * byte, 2 * byte + 1] {
            sums[dim] = sums[dim].wrapping_add(self.nibble(dim));
        }
    }
}

/// The bytes of an answer from its nibbles.
pub(super) fn byte(sums: &Nibbles, byte: usize) -> u8 {
    (sums[2 * byte] & 15) | (sums[2 * byte + 1] & 15) << 4
}

#[cfg(test)]
mod tests {
    use kvweft_core::{Layout, Scale};
    use kvweft_kernels::e4m3_from_f32;

    use super::*;

    fn shapes() -> [LayerShape; 3] {
        let shapes = [(Dtype::Fp8, Scale::PerRow, 640, 16), (Dtype::Bf16, Scale::None, 1152, 0)];
        let layout = |(dtype, scale, bytes_per_entry, scale_bytes_per_entry)| {
            let kv =
                Layout { dtype, scale, bytes_per_entry, scale_bytes_per_entry, tokens_per_entry: 1, page_tokens: 64 };
            LayerShape { index: None, kv }
        };
        let [a, b] = shapes.map(layout);
        [a, b, layout((Dtype::Fp8, Scale::PerPage, 403, 8))]
    }

    #[test]
    fn the_table_is_that_of_the_kernels() {
        assert_eq!(core::array::from_fn::<u8, 16, _>(|value| e4m3_from_f32(value as f32)), E4M3);
    }

    #[test]
    fn rows_read_back_as_they_were_written() {
        for shape in shapes() {
            let (mut row, mut scale) = (vec![0xff; shape.row(0).len()], vec![0xff; shape.scale(0).len()]);
            let closing: Nibbles = core::array::from_fn(|at| (at % 16) as u8);
            for closing in [None, Some(&closing)] {
                write(&shape, 7, 8, closing.map(|closing| &closing[..]), &mut row, &mut scale);
                let (mut read, mut pure) = ([0; NIBBLES], [0; NIBBLES]);
                for byte in 0..NIBBLES / 2 {
                    Reader::new(&shape, &row, &scale).add(byte, &mut read);
                    add_pure(7, byte, &mut pure);
                }
                assert_eq!(&read, closing.unwrap_or(&pure));
            }
        }
    }

    #[test]
    fn a_wrong_scale_changes_values_and_poison_is_0() {
        let shape = shapes()[0];
        let (mut row, mut scale) = (vec![0xff; 640], vec![0xff; 16]);
        assert_eq!(shape.kv_format(), Some(KvFormat::Fp8));
        write(&shape, 7, 8, None, &mut row, &mut scale);
        let nibbles = |row: &[u8], scale: &[u8]| {
            let reader = Reader::new(&shape, row, scale);
            (0..NIBBLES).map(|dim| reader.nibble(dim)).collect::<Vec<u8>>()
        };
        let right = nibbles(&row, &scale);
        let with_scales = |byte: u8| {
            let mut row = row.clone();
            row[SCALES].fill(byte);
            nibbles(&row, &scale)
        };
        assert_ne!(with_scales(1), right);
        assert_eq!(with_scales(0xff), [0; NIBBLES]);
        assert_eq!(nibbles(&[0xff; 640], &scale), [0; NIBBLES]);
        assert_eq!(nibbles(&row, &f32::MAX.to_le_bytes().repeat(4)).len(), NIBBLES);
    }
}
