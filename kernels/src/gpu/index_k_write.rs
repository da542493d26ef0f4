//! Writes index keys into pages.
#![allow(unsafe_code)]

use super::PAGE_TOKENS;
use super::launch::{Args, Function, LaunchError, Module};
use super::span::{PagePool, RawStream, Span};
use crate::{IndexFormat, KEY_DIM, ScaleRule};

/// Keys that a block writes.
const BLOCK_KEYS: u32 = 8;

/// How keys come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value.
    Bf16,
}

/// What to write, and where.
#[derive(Clone, Copy, Debug)]
pub struct IndexKWriteArgs {
    /// [`IndexFormat::Fp8`] or [`IndexFormat::Bf16`].
    pub format: IndexFormat,
    /// For [`IndexFormat::Fp8`].
    pub rule: ScaleRule,
    /// `[count, 128]`.
    pub keys: Span,
    /// The type of `keys`.
    pub key_type: KeyType,
    /// `[count]` pairs of `i32`: page, and token in the page. Pairs that name no token of the pool are skipped. Two
    /// pairs must not name the same token.
    pub slots: Span,
    /// How many keys.
    pub count: u32,
    /// Pages of 64 tokens.
    pub pool: PagePool,
    /// A `u32` to which the number of skipped keys is added.
    pub violations: Span,
}

/// Writes index keys, byte for byte as [`write_key`](crate::write_key) does; one warp a key.
#[derive(Debug)]
pub struct IndexKWrite {
    fp8: Function,
    bf16: Function,
    _module: Module,
}

impl IndexKWrite {
    /// From the image `index_k_write`.
    ///
    /// # Errors
    ///
    /// If the module lacks a kernel.
    pub fn new(module: Module) -> Result<IndexKWrite, LaunchError> {
        let (fp8, bf16) = (module.function("index_k_write_fp8", 0)?, module.function("index_k_write_bf16", 0)?);
        Ok(IndexKWrite { fp8, bf16, _module: module })
    }

    /// Writes the keys.
    ///
    /// # Errors
    ///
    /// If the format is fp4, a span is too short or misaligned, or the driver refuses.
    pub fn launch(&self, stream: RawStream, args: &IndexKWriteArgs) -> Result<(), LaunchError> {
        let count = u64::from(args.count);
        let value_bytes = if args.key_type == KeyType::Bf16 { 2 } else { 4 };
        args.keys.need("keys", count * KEY_DIM as u64 * value_bytes, 16)?;
        args.slots.need("slots", count * 8, 8)?;
        args.violations.need("violations", 4, 4)?;
        args.pool.need(args.format.page_bytes(PAGE_TOKENS) as u64)?;
        if args.count == 0 {
            return Ok(());
        }
        let key_type = u32::from(args.key_type == KeyType::Bf16);
        let common = Args::new().span(args.keys).u32(key_type).span(args.slots).u32(args.count);
        let common = common.span(args.pool.span).u64(args.pool.stride).u32(args.pool.pages);
        let (function, list) = match args.format {
            IndexFormat::Fp8 => (&self.fp8, common.u32(u32::from(args.rule == ScaleRule::PowerOfTwo))),
            IndexFormat::Bf16 => (&self.bf16, common),
            IndexFormat::Fp4 => return Err(LaunchError::Shape { what: "key format, 4 bits", got: 4 }),
        };
        let grid = [args.count.div_ceil(BLOCK_KEYS), 1, 1];
        // SAFETY: arguments are the kernel's; lengths were checked above, and slots are checked by the kernel.
        unsafe { function.launch(stream, grid, 32 * BLOCK_KEYS, 0, list.span(args.violations)) }
    }
}
