//! Poisons and verifies pages.
#![allow(unsafe_code)]

use super::launch::{Args, Function, LaunchError, Module};
use super::span::{PagePool, RawStream, Span};

const BLOCK: u32 = 256;
/// A multiple of any device's multiprocessors is not needed: pages are small.
const BLOCKS_MAX: u32 = 2048;

/// Which pages to poison.
#[derive(Clone, Copy, Debug)]
pub struct PoisonArgs {
    /// The pages.
    pub pool: PagePool,
    /// Bytes of a page, a multiple of 16, at most the stride.
    pub page_bytes: u32,
    /// `[count]`, `i32` page numbers; others are skipped.
    pub list: Span,
    /// How many.
    pub count: u32,
    /// A `u32` to which the number of skipped pages is added.
    pub violations: Span,
}

/// Which pages to verify.
#[derive(Clone, Copy, Debug)]
pub struct VerifyArgs {
    /// The pages.
    pub pool: PagePool,
    /// Bytes of a page, a multiple of 16, at most the stride.
    pub page_bytes: u32,
    /// `[count]`, `i32` page numbers; others are skipped.
    pub list: Span,
    /// `[count]`, `u64`: the key of each checksum.
    pub keys: Span,
    /// `[count]`, `u64`: the checksum of each page.
    pub expected: Span,
    /// How many.
    pub count: u32,
    /// `[count]`, `u64`: what each page's checksum is, or [`Span::NONE`].
    pub checksums: Span,
    /// Two `u32`, 0 and `u32::MAX` before: how many pages differ is added to the first, and the second is lowered to
    /// the first place in the list of one that does.
    pub result: Span,
    /// A `u32` to which the number of skipped pages is added.
    pub violations: Span,
}

/// Fills pages with `0xff`, and compares [`checksum`](fn@crate::checksum)s of pages.
#[derive(Debug)]
pub struct PageCare {
    poison: Function,
    verify: Function,
    _module: Module,
}

impl PageCare {
    /// From the image `page_care`.
    ///
    /// # Errors
    ///
    /// If the module lacks a kernel.
    pub fn new(module: Module) -> Result<PageCare, LaunchError> {
        let poison = module.function("page_poison", 0)?;
        Ok(PageCare { poison, verify: module.function("page_verify", 0)?, _module: module })
    }

    /// Poisons pages: every number in them then decodes to NaN, in every format.
    ///
    /// # Errors
    ///
    /// If a span is too short or misaligned, or the driver refuses.
    pub fn poison(&self, stream: RawStream, args: &PoisonArgs) -> Result<(), LaunchError> {
        page_bytes(&args.pool, args.page_bytes)?;
        args.list.need("list", u64::from(args.count) * 4, 4)?;
        args.violations.need("violations", 4, 4)?;
        if args.count == 0 {
            return Ok(());
        }
        let list = Args::new().span(args.pool.span).u64(args.pool.stride).u32(args.page_bytes).u32(args.pool.pages);
        let list = list.span(args.list).u32(args.count).span(args.violations);
        // SAFETY: arguments are the kernel's; lengths were checked above, and the kernel checks page numbers.
        unsafe { self.poison.launch(stream, [args.count.min(BLOCKS_MAX), 1, 1], BLOCK, 0, list) }
    }

    /// Computes the checksums of pages and counts those that differ.
    ///
    /// # Errors
    ///
    /// If a span is too short or misaligned, or the driver refuses.
    pub fn verify(&self, stream: RawStream, args: &VerifyArgs) -> Result<(), LaunchError> {
        page_bytes(&args.pool, args.page_bytes)?;
        let count = u64::from(args.count);
        args.list.need("list", count * 4, 4)?;
        args.keys.need("keys", count * 8, 8)?;
        args.expected.need("expected checksums", count * 8, 8)?;
        args.result.need("result", 8, 4)?;
        args.violations.need("violations", 4, 4)?;
        if args.checksums != Span::NONE {
            args.checksums.need("checksums", count * 8, 8)?;
        }
        if args.count == 0 {
            return Ok(());
        }
        let list = Args::new().span(args.pool.span).u64(args.pool.stride).u32(args.page_bytes).u32(args.pool.pages);
        let list = list.span(args.list).span(args.keys).span(args.expected).u32(args.count);
        let list = list.span(args.checksums).span(args.result).span(args.violations);
        // SAFETY: as above.
        unsafe { self.verify.launch(stream, [args.count.min(BLOCKS_MAX), 1, 1], BLOCK, 0, list) }
    }
}

fn page_bytes(pool: &PagePool, bytes: u32) -> Result<(), LaunchError> {
    if !bytes.is_multiple_of(16) {
        return Err(LaunchError::Shape { what: "length of a page", got: u64::from(bytes) });
    }
    pool.need(u64::from(bytes))
}
