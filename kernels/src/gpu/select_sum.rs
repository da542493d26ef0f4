//! Sums selected rows exactly.
#![allow(unsafe_code)]

use super::PAGE_TOKENS;
use super::launch::{Args, Function, LaunchError, Module};
use super::span::{PagePool, RawStream, Span};
use crate::{KvFormat, NOPE_DIM, SUM_ROWS_MAX};

/// Blocks of a row, for 32 of the 512 values each.
const TILES: u32 = 16;

/// What to sum.
#[derive(Clone, Copy, Debug)]
pub struct SelectSumArgs {
    /// How rows of KV are stored.
    pub format: KvFormat,
    /// `[rows, k]`, `i32` positions; negative ones are none.
    pub selected: Span,
    /// Selected positions of each row, at most [`SUM_ROWS_MAX`].
    pub k: u32,
    /// `[rows, table_stride]`, `i32` page numbers. Positions whose page is not in the pool are left out.
    pub table: Span,
    /// Pages of a row of the table.
    pub table_stride: u32,
    /// How many queries.
    pub rows: u32,
    /// Pages of 64 rows of KV.
    pub pool: PagePool,
    /// `[rows, 512]`, `f32`.
    pub out: Span,
    /// `[rows]`, `u32`: bit 0 is set if a value is no integer of at most [`SUM_VALUE_MAX`](crate::SUM_VALUE_MAX), bit 1
    /// if a sum is too large. Other bits, and cleared ones, stay.
    pub status: Span,
    /// A `u32` to which positions in absent pages are added.
    pub violations: Span,
}

/// Sums as [`select_sum`](crate::select_sum) does, bit for bit.
#[derive(Debug)]
pub struct SelectSum {
    sum: Function,
    _module: Module,
}

impl SelectSum {
    /// From the image `select_sum`.
    ///
    /// # Errors
    ///
    /// If the module lacks its kernel.
    pub fn new(module: Module) -> Result<SelectSum, LaunchError> {
        Ok(SelectSum { sum: module.function("select_sum", 0)?, _module: module })
    }

    /// Writes the sums.
    ///
    /// # Errors
    ///
    /// If too many rows are selected, a span is too short or misaligned, or the driver refuses.
    pub fn launch(&self, stream: RawStream, args: &SelectSumArgs) -> Result<(), LaunchError> {
        let (rows, k) = (u64::from(args.rows), u64::from(args.k));
        if k > SUM_ROWS_MAX as u64 || rows > 65_535 {
            return Err(LaunchError::Shape { what: "number of rows", got: k.max(rows) });
        }
        args.selected.need("selection", rows * k * 4, 4)?;
        args.table.need("table", rows * u64::from(args.table_stride) * 4, 4)?;
        args.pool.need((args.format.row_bytes() * PAGE_TOKENS) as u64)?;
        args.out.need("sums", rows * NOPE_DIM as u64 * 4, 4)?;
        args.status.need("status", rows * 4, 4)?;
        args.violations.need("violations", 4, 4)?;
        if args.rows == 0 {
            return Ok(());
        }
        let list = Args::new().span(args.selected).u32(args.k).span(args.table).u32(args.table_stride);
        let list = list.span(args.pool.span).u64(args.pool.stride).u32(args.pool.pages);
        let list = list.u32(u32::from(args.format == KvFormat::Fp8));
        let list = list.span(args.out).span(args.status).span(args.violations);
        // SAFETY: arguments are the kernel's; lengths were checked above, and the kernel checks positions against the
        // table and page numbers against the pool.
        unsafe { self.sum.launch(stream, [TILES, args.rows, 1], 1024, 0, list) }
    }
}
