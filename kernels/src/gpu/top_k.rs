//! Selects the largest logits.
#![allow(unsafe_code)]

use super::launch::{Args, Function, LaunchError, Module, fill};
use super::span::{RawStream, Span};

/// Bytes of a row's histograms, states and counts: three of 2048 bins, three of 16 bytes, and 16 bytes.
const ROW_BYTES: u64 = 3 * 2048 * 4 + 3 * 16 + 16;
const BLOCK: u32 = 1024;
const SPLIT_BLOCK: u32 = 512;
/// Logits of a block of a split row, at least.
const PART_MIN: u32 = 4096;
/// Blocks of a split row, at most.
const SPLITS_MAX: u32 = 256;

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

    fn common(&self) -> Args {
        Args::new().span(self.logits).u64(self.stride).span(self.lens).u32(self.len_max).u32(self.k)
    }
}

/// Selects exactly as [`top_k`](fn@crate::top_k) does, on one block a row or on several: bits are the same.
#[derive(Debug)]
pub struct TopKRows {
    whole: Function,
    count: Function,
    tally: Function,
    emit: Function,
    _module: Module,
}

impl TopKRows {
    /// From the image `top_k`.
    ///
    /// # Errors
    ///
    /// If the module lacks a kernel.
    pub fn new(module: Module) -> Result<TopKRows, LaunchError> {
        Ok(TopKRows {
            whole: module.function("top_k", 0)?,
            count: module.function("top_k_split_count", 0)?,
            tally: module.function("top_k_split_tally", 0)?,
            emit: module.function("top_k_split_emit", 0)?,
            _module: module,
        })
    }

    /// The longest row for which one block is the faster way, measured on an H200 with 1, 8 and 64 rows: at 8,192 logits
    /// 16 us against 25, at 32,768 45 us against 26.
    pub const WHOLE_MAX: u32 = 16_384;

    /// One block a row, one launch: best for rows of at most [`TopKRows::WHOLE_MAX`] logits.
    ///
    /// # Errors
    ///
    /// If a span is too short or misaligned, the stride is not a multiple of 4, or the driver refuses.
    pub fn launch(&self, stream: RawStream, args: &TopKArgs) -> Result<(), LaunchError> {
        args.check()?;
        if args.rows == 0 {
            return Ok(());
        }
        let list = args.common().span(args.out).span(args.stats);
        // SAFETY: arguments are the kernel's; lengths were checked, and the kernel cuts lengths of rows to `len_max`.
        unsafe { self.whole.launch(stream, [args.rows, 1, 1], BLOCK, 0, list) }
    }

    /// Bytes that [`TopKRows::launch_split`] needs for its own use, whatever was in them.
    pub fn workspace_bytes(rows: u32, len_max: u32) -> u64 {
        u64::from(rows) * (ROW_BYTES + u64::from(splits(len_max)) * 8)
    }

    /// Several blocks a row, in five launches and a fill: best for longer rows.
    ///
    /// # Errors
    ///
    /// As [`TopKRows::launch`], or if the workspace is shorter than [`TopKRows::workspace_bytes`].
    pub fn launch_split(&self, stream: RawStream, args: &TopKArgs, workspace: Span) -> Result<(), LaunchError> {
        args.check()?;
        workspace.need("workspace", Self::workspace_bytes(args.rows, args.len_max), 16)?;
        if args.rows == 0 {
            return Ok(());
        }
        let rows_bytes = u64::from(args.rows) * ROW_BYTES;
        let rows = workspace.part(0, rows_bytes);
        let splits = splits(args.len_max);
        let tallies = workspace.part(rows_bytes, u64::from(args.rows) * u64::from(splits) * 8);
        let part = args.len_max.div_ceil(splits).next_multiple_of(4);
        let grid = [splits, args.rows, 1];
        fill(stream, rows, 0)?;
        for pass in 0..3 {
            let list = args.common().u32(part).u32(pass).span(rows);
            // SAFETY: as in `launch`; `rows` and `tallies` have room for every row and block.
            unsafe { self.count.launch(stream, grid, SPLIT_BLOCK, 0, list)? };
        }
        let list = args.common().u32(part).span(rows).span(tallies);
        // SAFETY: as above.
        unsafe { self.tally.launch(stream, grid, SPLIT_BLOCK, 0, list)? };
        let list = args.common().u32(part).span(rows).span(tallies).span(args.out).span(args.stats);
        // SAFETY: as above.
        unsafe { self.emit.launch(stream, grid, SPLIT_BLOCK, 0, list) }
    }
}

fn splits(len_max: u32) -> u32 {
    len_max.div_ceil(PART_MIN).clamp(1, SPLITS_MAX)
}
