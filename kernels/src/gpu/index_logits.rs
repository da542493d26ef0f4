//! Scores index keys.
#![allow(unsafe_code)]

use super::PAGE_TOKENS;
use super::launch::{Args, Function, LaunchError, Module, multiprocessors};
use super::span::{PagePool, RawStream, Span};
use crate::{IndexFormat, KEY_DIM};

/// The most heads.
pub const LOGITS_HEADS_MAX: u32 = 128;

/// What to score.
#[derive(Clone, Copy, Debug)]
pub struct IndexLogitsArgs {
    /// [`IndexFormat::Fp8`] or [`IndexFormat::Bf16`].
    pub format: IndexFormat,
    /// `[rows, heads, 128]` in the format of the keys: e4m3 codes, whose scale is in the weights, or bf16.
    pub q: Span,
    /// `[rows, heads]`, `f32`.
    pub weights: Span,
    /// Heads, 1 to [`LOGITS_HEADS_MAX`]; 32 and multiples of 64 waste nothing.
    pub heads: u32,
    /// `[rows, table_stride]`, `i32` page numbers. A number that is not in the pool means an absent page, whose logits
    /// are -infinity.
    pub table: Span,
    /// Pages of a row of the table.
    pub table_stride: u32,
    /// `[rows]`, `i32`: tokens of each row. Negative ones count as 0, and long ones are cut to what table and logits
    /// have room for.
    pub lens: Span,
    /// How many queries.
    pub rows: u32,
    /// Pages of 64 keys.
    pub pool: PagePool,
    /// `[rows, logits_stride]`, `f32`. Behind a row's length it stays as it was.
    pub logits: Span,
    /// Logits from one row to the next.
    pub logits_stride: u64,
    /// A `u32` to which absent pages are added.
    pub violations: Span,
    /// How many blocks may share the device, at least one for each row; never more than it runs at a time.
    pub blocks: u32,
}

/// Scores index keys as [`page_logits`](crate::page_logits) does, in another order of sums: equal bits in the exact
/// mode, and otherwise within `f32` rounding.
#[derive(Debug)]
pub struct IndexLogits {
    fp8: Function,
    bf16: Function,
    /// Threads of a block.
    block: u32,
    /// Blocks that the device runs at a time.
    room: u32,
    /// Tokens that a block takes in a round: fp8, bf16.
    tokens: [u32; 2],
    _module: Module,
}

impl IndexLogits {
    /// From the image `index_logits`.
    ///
    /// # Errors
    ///
    /// If the module lacks a kernel or its shape.
    pub fn new(module: Module) -> Result<IndexLogits, LaunchError> {
        let shared = shared_bytes(LOGITS_HEADS_MAX);
        let [block, of_multiprocessor, fp8, bf16] = module.numbers("index_logits_shape")?;
        Ok(IndexLogits {
            fp8: module.function("index_logits_fp8", shared)?.early(),
            bf16: module.function("index_logits_bf16", shared)?.early(),
            block,
            room: of_multiprocessor * multiprocessors(),
            tokens: [fp8, bf16],
            _module: module,
        })
    }

    /// Writes the logits.
    ///
    /// # Errors
    ///
    /// If the format is fp4, there are too many heads, a span is too short or misaligned, or the driver refuses.
    pub fn launch(&self, stream: RawStream, args: &IndexLogitsArgs) -> Result<(), LaunchError> {
        let (rows, heads) = (u64::from(args.rows), u64::from(args.heads));
        if args.heads == 0 || args.heads > LOGITS_HEADS_MAX {
            return Err(LaunchError::Shape { what: "number of heads", got: heads });
        }
        let (function, tokens) = match args.format {
            IndexFormat::Fp8 => (&self.fp8, self.tokens[0]),
            IndexFormat::Bf16 => (&self.bf16, self.tokens[1]),
            IndexFormat::Fp4 => return Err(LaunchError::Shape { what: "key format, 4 bits", got: 4 }),
        };
        let value_bytes = args.format.key_bytes() / KEY_DIM;
        args.q.need("q", rows * heads * (KEY_DIM * value_bytes) as u64, 16)?;
        args.weights.need("weights", rows * heads * 4, 4)?;
        args.table.need("table", rows * u64::from(args.table_stride) * 4, 4)?;
        args.lens.need("lens", rows * 4, 4)?;
        args.logits.need("logits", rows * args.logits_stride * 4, 4)?;
        args.violations.need("violations", 4, 4)?;
        args.pool.need(args.format.page_bytes(PAGE_TOKENS) as u64)?;
        let len_max = (u64::from(args.table_stride) * PAGE_TOKENS as u64).min(args.logits_stride).min(1 << 30) as u32;
        if args.rows == 0 || len_max == 0 {
            return Ok(());
        }
        if args.rows > 65_535 {
            return Err(LaunchError::Shape { what: "number of rows", got: rows });
        }
        // Every block gets as many rounds as the next one: a last round of few blocks would be a whole round of time.
        let groups = len_max.div_ceil(tokens);
        let wanted = (args.blocks.clamp(1, self.room) / args.rows).max(1);
        let blocks = groups.div_ceil(groups.div_ceil(wanted));
        let list = Args::new().span(args.q).span(args.weights).u32(args.heads).span(args.table).u32(args.table_stride);
        let list = list.span(args.lens).span(args.pool.span).u64(args.pool.stride).u32(args.pool.pages);
        let list = list.span(args.logits).u64(args.logits_stride).u32(len_max).span(args.violations);
        let grid = [blocks, args.rows, 1];
        // SAFETY: arguments are the kernel's; lengths were checked above, and the kernel checks lengths of rows against
        // `len_max` and page numbers against the pool.
        unsafe { function.launch(stream, grid, self.block, shared_bytes(args.heads), list) }
    }
}

/// Queries, 256 bytes a head, and weights.
pub(super) const fn shared_bytes(heads: u32) -> u32 {
    (if heads <= 32 { 32 } else { heads.next_multiple_of(64) }) * (256 + 4)
}
