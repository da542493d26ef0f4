//! Attention over selected rows.
#![allow(unsafe_code)]

use core::f32::consts::LOG2_E;

use super::PAGE_TOKENS;
use super::launch::{Args, Function, LaunchError, Module};
use super::span::{PagePool, RawStream, Span};
use crate::{KvFormat, NOPE_DIM, ROW_DIM};

const BLOCK: u32 = 256;
const MERGE_BLOCK: u32 = 128;
/// Up to so many heads wgmma's tiles of 64 would mostly be empty, which costs more than it saves where rows are decoded.
const FEW_HEADS: u32 = 32;
/// Heads of a block of `sparse_attention_wgmma.cu`.
const HEADS_WGMMA: u32 = 64;
/// Parts that a group of threads of the merging kernel takes; it has as many groups as that asks for, up to four.
const MERGE_PARTS: u32 = 8;
const MERGE_GROUPS_MAX: u32 = 4;
/// `struct Memory` of `sparse_attention.cu` and of `sparse_attention_wgmma.cu`.
pub(super) const SHARED_BYTES: u32 = 58_880;
pub(super) const SHARED_BYTES_WGMMA: u32 = 222_336;

/// What to attend to.
#[derive(Clone, Copy, Debug)]
pub struct SparseAttentionArgs {
    /// How rows of KV are stored.
    pub format: KvFormat,
    /// `[rows, heads, 576]`, bf16, in the order of a row of KV.
    pub q: Span,
    /// Heads.
    pub heads: u32,
    /// `[rows, k]`, `i32` positions; negative ones are none.
    pub selected: Span,
    /// Selected positions of each row.
    pub k: u32,
    /// `[rows, table_stride]`, `i32` page numbers. Positions whose page is not in the pool count as not selected.
    pub table: Span,
    /// Pages of a row of the table.
    pub table_stride: u32,
    /// How many queries.
    pub rows: u32,
    /// Pages of 64 rows of KV.
    pub pool: PagePool,
    /// The factor of every score.
    pub scale: f32,
    /// `[heads]`, `f32`, or [`Span::NONE`].
    pub sink: Span,
    /// Into how many parts each selection is cut, for as many blocks. The result depends on it by rounding.
    pub splits: u32,
    /// Of [`SparseAttention::workspace_bytes`], whatever was in them.
    pub workspace: Span,
    /// `[rows, heads, 512]`, `f32`.
    pub out: Span,
    /// `[rows, heads]`, `f32`: without the sink.
    pub lse: Span,
    /// A `u32` to which positions in absent pages are added.
    pub violations: Span,
}

/// Attends as [`sparse_attention`](crate::sparse_attention) does, with weights rounded to bf16: outputs are
/// within about 1% of the largest value of a row.
#[derive(Debug)]
pub struct SparseAttention {
    attend: Attend,
    /// For fp8 rows and at most [`FEW_HEADS`] heads.
    few: Attend,
    merge: Function,
    _merge: Module,
}

/// The kernels of one source.
#[derive(Debug)]
struct Attend {
    fp8: Function,
    bf16: Function,
    /// Heads of a block, and selected rows of a tile.
    heads: u32,
    tile: u32,
    shared_bytes: u32,
    _module: Module,
}

impl Attend {
    fn new(module: Module) -> Result<Attend, LaunchError> {
        let [heads, tile] = module.numbers("sparse_attention_shape")?;
        let shared_bytes = if heads == HEADS_WGMMA { SHARED_BYTES_WGMMA } else { SHARED_BYTES };
        Ok(Attend {
            fp8: module.function("sparse_attention_fp8", shared_bytes)?.early(),
            bf16: module.function("sparse_attention_bf16", shared_bytes)?.early(),
            heads,
            tile,
            shared_bytes,
            _module: module,
        })
    }
}

impl SparseAttention {
    /// From the images `sparse_attention`, `sparse_attention_few` and `attention_merge`.
    ///
    /// # Errors
    ///
    /// If a module lacks its kernel or its shape.
    pub fn new(attend: Module, few: Module, merge: Module) -> Result<SparseAttention, LaunchError> {
        let merging = merge.function("attention_merge", 0)?.early();
        Ok(SparseAttention { attend: Attend::new(attend)?, few: Attend::new(few)?, merge: merging, _merge: merge })
    }

    /// Bytes of parts that are still to be merged.
    pub fn workspace_bytes(rows: u32, heads: u32, splits: u32) -> u64 {
        u64::from(rows) * u64::from(heads) * u64::from(splits) * (NOPE_DIM as u64 * 4 + 8)
    }

    /// How many parts fill so many multiprocessors, each of which has room for one block, without a second round.
    pub fn splits(&self, rows: u32, heads: u32, k: u32, multiprocessors: u32) -> u32 {
        splits(rows * heads.div_ceil(self.attend.heads), k.div_ceil(self.attend.tile), multiprocessors)
    }

    /// Writes outputs and the logarithms of sums, in two launches.
    ///
    /// # Errors
    ///
    /// If a span is too short or misaligned, or the driver refuses.
    pub fn launch(&self, stream: RawStream, args: &SparseAttentionArgs) -> Result<(), LaunchError> {
        let (rows, heads) = (u64::from(args.rows), u64::from(args.heads));
        if args.rows > 65_535 || args.splits == 0 || args.splits > 65_535 || args.heads > 65_535 {
            return Err(LaunchError::Shape { what: "number of rows or splits", got: rows.max(u64::from(args.splits)) });
        }
        args.q.need("q", rows * heads * ROW_DIM as u64 * 2, 16)?;
        args.selected.need("selection", rows * u64::from(args.k) * 4, 4)?;
        args.table.need("table", rows * u64::from(args.table_stride) * 4, 4)?;
        args.pool.need((args.format.row_bytes() * PAGE_TOKENS) as u64)?;
        args.workspace.need("workspace", Self::workspace_bytes(args.rows, args.heads, args.splits), 16)?;
        args.out.need("outputs", rows * heads * NOPE_DIM as u64 * 4, 16)?;
        args.lse.need("lse", rows * heads * 4, 4)?;
        args.violations.need("violations", 4, 4)?;
        if args.sink != Span::NONE {
            args.sink.need("sink", heads * 4, 4)?;
        }
        if args.rows == 0 || args.heads == 0 {
            return Ok(());
        }
        let parts = rows * heads * u64::from(args.splits);
        let values = args.workspace.part(0, parts * NOPE_DIM as u64 * 4);
        let sums = args.workspace.part(values.bytes(), parts * 8);
        let list = Args::new().span(args.q).u32(args.heads).span(args.selected).u32(args.k);
        let list = list.span(args.table).u32(args.table_stride);
        let list = list.span(args.pool.span).u64(args.pool.stride).u32(args.pool.pages);
        let list = list.f32(args.scale * LOG2_E).span(values).span(sums).span(args.violations);
        let (attend, kernel) = match args.format {
            KvFormat::Fp8 if args.heads <= FEW_HEADS => (&self.few, &self.few.fp8),
            KvFormat::Fp8 => (&self.attend, &self.attend.fp8),
            KvFormat::Bf16 => (&self.attend, &self.attend.bf16),
        };
        let grid = [args.splits, args.heads.div_ceil(attend.heads), args.rows];
        // SAFETY: arguments are the kernel's; lengths were checked above, and the kernel checks positions against the
        // table and page numbers against the pool.
        unsafe { kernel.launch(stream, grid, BLOCK, attend.shared_bytes, list)? };
        let list = Args::new().span(values).span(sums).u32(args.splits).u32(args.heads);
        let list = list.span(args.sink).span(args.out).span(args.lse);
        let block = MERGE_BLOCK * args.splits.div_ceil(MERGE_PARTS).min(MERGE_GROUPS_MAX);
        // SAFETY: as above.
        unsafe { self.merge.launch(stream, [args.heads, args.rows, 1], block, 0, list) }
    }
}

/// Parts of so many tiles, for each of so many blocks that have all tiles.
fn splits(blocks: u32, tiles: u32, multiprocessors: u32) -> u32 {
    let tiles = tiles.max(1);
    let wanted = (multiprocessors / blocks.max(1)).clamp(1, tiles);
    tiles.div_ceil(tiles.div_ceil(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_fill_the_device_once_and_leave_no_part_without_rows() {
        for (blocks, tiles, multiprocessors) in [(4, 64, 132), (16, 32, 132), (64, 16, 188), (1, 1, 1), (0, 0, 132)] {
            let splits = splits(blocks, tiles, multiprocessors);
            let what = format!("{splits} splits of {tiles} tiles, {blocks} blocks");
            assert!(splits >= 1 && (splits - 1) * tiles.div_ceil(splits) < tiles.max(1), "{what}");
            assert!(splits == 1 || blocks * splits <= multiprocessors, "{what}");
        }
        assert_eq!([splits(16, 32, 132), splits(2, 32, 132), splits(8, 8, 132)], [8, 32, 8]);
        assert_eq!(SparseAttention::workspace_bytes(1, 2, 3), 6 * (2048 + 8));
    }
}
