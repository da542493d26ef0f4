//! The exact stand-in for attention: the sum of the selected rows.

use core::fmt;
use core::ops::Range;

/// The largest size of a value that [`select_sum`] takes.
pub const SUM_VALUE_MAX: i32 = 1 << 15;
/// The most rows that [`select_sum`] takes: sums of so many of the largest values fit in 32 bits.
pub const SUM_ROWS_MAX: usize = (1 << 16) - 1;

/// The largest size up to which every integer is an `f32`.
const EXACT_MAX: i32 = 1 << 24;
/// 1.5 * 2^23: numbers of this size, somewhat larger or smaller, are integers, so that adding it rounds to one.
const ROUNDER: f32 = 12_582_912.0;
/// Dimensions that are summed together, on the stack.
const TILE: usize = 64;

/// Why there is no exact sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumError {
    /// A value is not an integer of at most [`SUM_VALUE_MAX`] in size: it was never written in the exact mode, or the
    /// row is poisoned.
    Value {
        /// The row, as counted in the argument.
        row: usize,
        /// The dimension.
        dim: usize,
    },
    /// A sum is larger than 2^24 in size, so that an `f32` may not hold it.
    Sum {
        /// The dimension.
        dim: usize,
    },
}

impl fmt::Display for SumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SumError::Value { row, dim } => {
                write!(
                    f,
                    "expected an integer of at most {SUM_VALUE_MAX} at row {row}, dimension {dim}; got another value"
                )
            }
            SumError::Sum { dim } => write!(f, "expected a sum of at most 2^24 in dimension {dim}; got a larger one"),
        }
    }
}

impl core::error::Error for SumError {}

/// Sums rows of integers, dimension by dimension, exactly: attention with equal weights, without division.
///
/// Recall is measured with it: equal outputs mean equal sums over the selected rows, in whatever order a device adds
/// them, where outputs of a softmax would differ by rounding. `rows` are `[selected][out.len()]`; sums are taken in
/// `i32` and do not depend on the order of rows. If rows hold distinct powers of two, or random integers, a wrong
/// selection changes the sum.
///
/// # Errors
///
/// The first value (by tiles of 64 dimensions, then rows) that is no small integer, or the first sum that is too large.
/// `out` then holds sums of earlier tiles only.
///
/// # Panics
///
/// If there are more than [`SUM_ROWS_MAX`] rows, or if a row has another length than `out`.
pub fn select_sum(rows: &[&[f32]], out: &mut [f32]) -> Result<(), SumError> {
    assert!(rows.len() <= SUM_ROWS_MAX, "{} rows of at most {SUM_ROWS_MAX}", rows.len());
    for (i, row) in rows.iter().enumerate() {
        assert!(row.len() == out.len(), "row {i} has {} values and not {}", row.len(), out.len());
    }
    for (tile, out) in out.chunks_mut(TILE).enumerate() {
        let dims = tile * TILE..tile * TILE + out.len();
        let (mut sums, mut unsound) = ([0; TILE], [0; TILE]);
        for row in rows {
            match row[dims.clone()].as_chunks::<TILE>() {
                ([values], _) => add(values, &mut sums, &mut unsound),
                (_, values) => {
                    let mut filled = [0.0; TILE];
                    filled[..values.len()].copy_from_slice(values);
                    add(&filled, &mut sums, &mut unsound);
                }
            }
        }
        if unsound != [0; TILE] {
            return Err(first_unsound(rows, dims));
        }
        if let Some(dim) = sums.iter().position(|sum| sum.abs() > EXACT_MAX) {
            return Err(SumError::Sum { dim: dims.start + dim });
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum as f32;
        }
    }
    Ok(())
}

/// Adds values as integers, and marks those that are no small ones: their sums mean nothing.
#[inline]
fn add(values: &[f32; TILE], sums: &mut [i32; TILE], unsound: &mut [u32; TILE]) {
    for i in 0..TILE {
        // Neighbours of the rounder in size have neighbouring bits.
        let integer = (values[i] + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
        sums[i] = sums[i].wrapping_add(integer);
        unsound[i] |= u32::from(!is_small_integer(values[i]));
    }
}

#[cold]
fn first_unsound(rows: &[&[f32]], dims: Range<usize>) -> SumError {
    let find = |row: &[f32]| row[dims.clone()].iter().position(|value| !is_small_integer(*value));
    let found = rows.iter().enumerate().find_map(|(row, values)| Some((row, find(values)?)));
    let (row, dim) = found.expect("one of these values was marked");
    SumError::Value { row, dim: dims.start + dim }
}

#[inline]
fn is_small_integer(value: f32) -> bool {
    let rounded = (value + ROUNDER) - ROUNDER;
    (rounded == value) & (value.abs() <= SUM_VALUE_MAX as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix64;

    fn rows(count: usize, dims: usize, limit: u64) -> Vec<Vec<f32>> {
        let value = |i: usize| (mix64(i as u64) % (2 * limit + 1)) as f32 - limit as f32;
        (0..count).map(|row| (0..dims).map(|dim| value(row * dims + dim)).collect()).collect()
    }

    fn sum(rows: &[Vec<f32>], dims: usize) -> Result<Vec<f32>, SumError> {
        let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let mut out = vec![7.0; dims];
        select_sum(&rows, &mut out).map(|()| out)
    }

    #[test]
    fn sums_equal_integers_in_any_order_of_rows() {
        for (count, dims) in [(0, 5), (1, 512), (100, 1), (2048, 130), (300, 576)] {
            let mut rows = rows(count, dims, 8000);
            let exact = |dim: usize| rows.iter().map(|row| row[dim] as i64).sum::<i64>() as f32;
            let expected: Vec<f32> = (0..dims).map(exact).collect();
            assert_eq!(sum(&rows, dims), Ok(expected.clone()));
            rows.reverse();
            assert_eq!(sum(&rows, dims), Ok(expected));
        }
    }

    #[test]
    fn a_value_that_is_no_small_integer_is_named() {
        for bad in [0.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 32769.0, -32769.0, 1e30, f32::from_bits(1)] {
            for dim in [0, 63, 64, 99] {
                let mut rows = rows(3, 100, 8);
                rows[2][dim] = bad;
                assert_eq!(sum(&rows, 100), Err(SumError::Value { row: 2, dim }), "{bad}");
            }
        }
    }

    #[test]
    fn sums_are_exact_up_to_two_to_the_24_and_refused_above() {
        let mut rows = vec![vec![0.0, 0.0, 32768.0]; 512];
        assert_eq!(sum(&rows, 3), Ok(vec![0.0, 0.0, 16_777_216.0]));
        rows.push(vec![0.0, 0.0, 1.0]);
        assert_eq!(sum(&rows, 3), Err(SumError::Sum { dim: 2 }));
        let most = vec![vec![-32768.0]; SUM_ROWS_MAX];
        assert_eq!(sum(&most, 1), Err(SumError::Sum { dim: 0 }));
    }
}
