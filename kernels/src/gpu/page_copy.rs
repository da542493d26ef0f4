//! Copies pages between memories, with checksums.
#![allow(unsafe_code)]

use super::launch::{Args, Function, LaunchError, Module};
use super::span::{RawStream, Span};

/// Bytes of a job in device memory.
pub const JOB_BYTES: u64 = 32;

/// The kernel's slots.
pub(super) const RING_BYTES: u32 = 22 * 4352;
/// One thread that loads, one that stores, and eleven warps that sum.
const RING_BLOCK: u32 = 2 * 32 + 11 * 32;

/// One page to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    source: Span,
    destination: Span,
    slot: u32,
    key: u64,
}

impl Job {
    /// Copies `source` to `destination`, which do not overlap, and writes the checksum under `key` to place `slot`.
    ///
    /// # Errors
    ///
    /// If lengths differ, or an address or the length is not a multiple of 16.
    pub fn new(source: Span, destination: Span, slot: u32, key: u64) -> Result<Job, LaunchError> {
        source.need("source", destination.bytes(), 16)?;
        destination.need("destination", source.bytes(), 16)?;
        if !source.bytes().is_multiple_of(16) || source.bytes() > 1 << 30 {
            return Err(LaunchError::Shape { what: "length of a page", got: source.bytes() });
        }
        Ok(Job { source, destination, slot, key })
    }

    /// As the kernel reads it: addresses, bytes, slot, key.
    pub fn to_bytes(self) -> [u8; JOB_BYTES as usize] {
        let mut bytes = [0; JOB_BYTES as usize];
        bytes[..8].copy_from_slice(&self.source.address().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.destination.address().to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.source.bytes() as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&self.slot.to_le_bytes());
        bytes[24..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyMethod {
    /// Through registers: 512 threads a block with four 16-byte vectors in flight each.
    Registers,
    /// Through a ring in shared memory, by bulk copies: more bytes in flight a block.
    Ring,
}

impl CopyMethod {
    /// Both.
    pub const ALL: [CopyMethod; 2] = [CopyMethod::Registers, CopyMethod::Ring];
}

/// Copies pages and computes [`checksum`](fn@crate::checksum) of each on the way.
#[derive(Debug)]
pub struct PageCopy {
    registers: Function,
    ring: Function,
    _module: Module,
}

impl PageCopy {
    /// From the image `page_copy`.
    ///
    /// # Errors
    ///
    /// If the module lacks a kernel.
    pub fn new(module: Module) -> Result<PageCopy, LaunchError> {
        let registers = module.function("page_copy_registers", 0)?;
        Ok(PageCopy { registers, ring: module.function("page_copy_ring", RING_BYTES)?, _module: module })
    }

    /// Copies the pages of `count` jobs on `blocks` blocks; few are enough for the link to a host. `checksums` is
    /// `[slots]`, `u64`.
    ///
    /// # Errors
    ///
    /// If a span is too short or misaligned, or the driver refuses.
    ///
    /// # Safety
    ///
    /// `jobs` holds `count` images of [`Job`]s whose spans are still vouched for and whose destinations overlap neither
    /// each other nor a source, and their slots are places of `checksums`, no two the same.
    pub unsafe fn launch(
        &self,
        stream: RawStream,
        method: CopyMethod,
        blocks: u32,
        jobs: Span,
        count: u32,
        checksums: Span,
    ) -> Result<(), LaunchError> {
        jobs.need("jobs", u64::from(count) * JOB_BYTES, 16)?;
        checksums.need("checksums", 8, 8)?;
        if count == 0 {
            return Ok(());
        }
        let grid = [blocks.clamp(1, count), 1, 1];
        let list = Args::new().span(jobs).u32(count).span(checksums);
        match method {
            // SAFETY: arguments are the kernel's; what jobs say is the caller's promise.
            CopyMethod::Registers => unsafe { self.registers.launch(stream, grid, 512, 0, list) },
            // SAFETY: as above.
            CopyMethod::Ring => unsafe { self.ring.launch(stream, grid, RING_BLOCK, RING_BYTES, list) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_lies_in_memory_as_the_kernel_reads_it() {
        // SAFETY: nothing is launched with these.
        let span = |address, bytes| unsafe { Span::new(address, bytes) };
        let job = Job::new(span(0x1000, 8448), span(0x2000, 8448), 7, 0xabcd).expect("it fits");
        let words: Vec<u64> =
            job.to_bytes().as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        assert_eq!(words, [0x1000, 0x2000, 8448 | 7 << 32, 0xabcd]);
        let short = LaunchError::TooShort { what: "destination", expected: 32, got: 16 };
        assert_eq!(Job::new(span(0, 32), span(0, 16), 0, 0), Err(short));
        assert!(Job::new(span(8, 16), span(0, 16), 0, 0).is_err() && Job::new(span(0, 24), span(0, 24), 0, 0).is_err());
    }
}
