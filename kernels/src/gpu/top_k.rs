//! Selects the largest logits.
#![allow(unsafe_code)]

use super::launch::{Args, Function, LaunchError, Module, multiprocessors};
use super::span::{RawStream, Span};

const BLOCK: u32 = 1024;
/// Blocks of a row, at most: as many as a cluster may have.
const BLOCKS_MAX: u32 = 16;
/// Logits that a block keeps in registers.
const KEPT: u32 = 16_384;
/// Logits of a block below which more blocks bring less than their barriers cost.
const PART_MIN: u32 = 8192;

/// What to select.
#[derive(Clone, Copy, Debug)]
pub struct TopKArgs {
    /// `[rows, stride]`, `f32`, at a multiple of 16.
    pub logits: Span,
    /// Logits from one row to the next, a multiple of 4.
    pub stride: u64,
    /// `[rows]`, `i32`: logits of each row. Negative ones count as 0, and long ones are cut to `len_max`.
    pub lens: Span,
    /// The most logits of a row, at most `stride`.
    pub len_max: u32,
    /// How many rows.
    pub rows: u32,
    /// How many positions to select of each.
    pub k: u32,
    /// `[rows, k]`, `i32`: positions, ascending, and then -1 if there are fewer.
    pub out: Span,
    /// `[rows, 2]`, `u32`: NaN logits, and logits left out that equal the smallest selected one, as in
    /// [`TopK`](crate::TopK).
    pub stats: Span,
}

impl TopKArgs {
    fn check(&self) -> Result<(), LaunchError> {
        let rows = u64::from(self.rows);
        if !self.stride.is_multiple_of(4) || u64::from(self.len_max) > self.stride || self.len_max > 1 << 30 {
            return Err(LaunchError::Shape { what: "stride of logits", got: self.stride });
        }
        if self.rows > 65_535 {
            return Err(LaunchError::Shape { what: "number of rows", got: rows });
        }
        self.logits.need("logits", rows * self.stride * 4, 16)?;
        self.lens.need("lens", rows * 4, 4)?;
        self.out.need("selection", rows * u64::from(self.k) * 4, 4)?;
        self.stats.need("stats", rows * 8, 4)
    }
}

/// Selects exactly as [`top_k`](fn@crate::top_k) does, in one launch, with one cluster of blocks a row.
#[derive(Debug)]
pub struct TopKRows {
    function: Function,
    blocks_max: u32,
    multiprocessors: u32,
    _module: Module,
}

impl TopKRows {
    /// From the image `top_k`. Asks the device how many blocks its clusters may have.
    ///
    /// # Errors
    ///
    /// If the module lacks a kernel.
    pub fn new(module: Module) -> Result<TopKRows, LaunchError> {
        let function = module.function("top_k", 0)?.early();
        let blocks_max = function.cluster_max(BLOCKS_MAX, BLOCK);
        Ok(TopKRows { function, blocks_max, multiprocessors: multiprocessors(), _module: module })
    }

    /// The most blocks that a row can have on this device: a power of two.
    pub const fn blocks_max(&self) -> u32 {
        self.blocks_max
    }

    /// How many blocks a row should have.
    pub fn blocks(&self, rows: u32, len_max: u32) -> u32 {
        blocks(rows, len_max, self.blocks_max, self.multiprocessors)
    }

    /// Selects, with [`TopKRows::blocks`] blocks a row.
    ///
    /// # Errors
    ///
    /// If a span is too short or misaligned, the stride is not a multiple of 4, or the driver refuses.
    pub fn launch(&self, stream: RawStream, args: &TopKArgs) -> Result<(), LaunchError> {
        self.launch_on(stream, args, self.blocks(args.rows, args.len_max))
    }

    /// Selects with so many blocks a row: bits are the same for any number.
    ///
    /// # Errors
    ///
    /// As [`TopKRows::launch`], or if the number is not a power of two, or more than [`TopKRows::blocks_max`].
    pub fn launch_on(&self, stream: RawStream, args: &TopKArgs, blocks: u32) -> Result<(), LaunchError> {
        args.check()?;
        if !blocks.is_power_of_two() || blocks > self.blocks_max {
            return Err(LaunchError::Shape { what: "number of blocks of a row", got: u64::from(blocks) });
        }
        if args.rows == 0 {
            return Ok(());
        }
        let list = Args::new().span(args.logits).u64(args.stride).span(args.lens).u32(args.len_max).u32(args.k);
        let list = list.span(args.out).span(args.stats);
        // SAFETY: arguments are the kernel's; lengths were checked, and the kernel cuts lengths of rows to `len_max`.
        unsafe { self.function.launch_clusters(stream, [blocks, args.rows, 1], blocks, BLOCK, 0, list) }
    }
}

/// Enough blocks for little work each, but not more than run at a time.
fn blocks(rows: u32, len_max: u32, blocks_max: u32, multiprocessors: u32) -> u32 {
    let of = |part: u32| len_max.div_ceil(part).max(1).next_power_of_two().min(blocks_max);
    // More than eight in a cluster find room less easily: only for what eight cannot keep.
    let wanted = of(PART_MIN).min(if len_max > 8 * KEPT { blocks_max } else { 8 });
    let room = multiprocessors / rows.max(1);
    wanted.min(if room == 0 { 1 } else { 1 << room.ilog2() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_have_many_blocks_and_many_rows_have_few() {
        let on_h200 = |rows, len| blocks(rows, len, 16, 132);
        assert_eq!(
            [1, 8192, 8193, 32_768, 131_072, 131_073, 1 << 20].map(|len| on_h200(1, len)),
            [1, 1, 2, 4, 8, 16, 16]
        );
        assert_eq!([8, 64, 132, 1000].map(|rows| on_h200(rows, 1 << 20)), [16, 2, 1, 1]);
        assert_eq!([1, 2, 8].map(|most| blocks(1, 1 << 20, most, 132)), [1, 2, 8]);
    }
}
