//! Memory that a device can address, and streams: numbers whose maker vouches for them.
#![allow(unsafe_code)]

use cudarc::driver::sys;

use super::launch::LaunchError;

/// Bytes that a kernel may read and write: device memory, or mapped pinned host memory by its device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    address: u64,
    bytes: u64,
}

impl Span {
    /// No memory: for optional arguments.
    pub const NONE: Span = Span { address: 0, bytes: 0 };

    /// Vouches for memory.
    ///
    /// # Safety
    ///
    /// The device can address these bytes until all work that was given the span has finished, and no reference of the
    /// host's refers to them while such work may write them.
    pub const unsafe fn new(address: u64, bytes: u64) -> Span {
        Span { address, bytes }
    }

    /// The device's address of the first byte; 0 for [`Span::NONE`].
    pub const fn address(self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// A part.
    ///
    /// # Panics
    ///
    /// If the part is not inside.
    pub fn part(self, begin: u64, bytes: u64) -> Span {
        let end = begin.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {begin} of a span of {}", self.bytes);
        Span { address: self.address + begin, bytes }
    }

    /// An error unless there are so many bytes, aligned like this.
    pub(super) fn need(self, what: &'static str, bytes: u64, align: u64) -> Result<(), LaunchError> {
        if self.bytes < bytes {
            return Err(LaunchError::TooShort { what, expected: bytes, got: self.bytes });
        }
        if !self.address.is_multiple_of(align) {
            return Err(LaunchError::Misaligned { what, align, address: self.address });
        }
        Ok(())
    }
}

/// Pages of one size at one distance. Page numbers are 32-bit, offsets 64-bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PagePool {
    pub(super) span: Span,
    pub(super) stride: u64,
    pub(super) pages: u32,
}

impl PagePool {
    /// `pages` pages, `stride` bytes apart.
    ///
    /// # Errors
    ///
    /// If they do not fit into the span, or address and stride are not multiples of 16.
    pub fn new(span: Span, stride: u64, pages: u32) -> Result<PagePool, LaunchError> {
        span.need("pool", stride.saturating_mul(u64::from(pages)), 16)?;
        if !stride.is_multiple_of(16) || pages > i32::MAX as u32 {
            return Err(LaunchError::Shape { what: "page stride and number of pages", got: stride });
        }
        Ok(PagePool { span, stride, pages })
    }

    /// How many pages there are.
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// The bytes of a page.
    ///
    /// # Panics
    ///
    /// If there is no such page.
    pub fn page(&self, page: u32) -> Span {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        self.span.part(u64::from(page) * self.stride, self.stride)
    }

    /// An error unless pages have so many bytes.
    pub(super) fn need(&self, page_bytes: u64) -> Result<(), LaunchError> {
        if self.stride < page_bytes {
            return Err(LaunchError::TooShort { what: "page", expected: page_bytes, got: self.stride });
        }
        Ok(())
    }
}

/// A stream of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStream(sys::CUstream);

// SAFETY: the driver's streams may be used by any thread whose current context is theirs, and the driver checks that.
unsafe impl Send for RawStream {}
// SAFETY: as above; the driver locks a stream for each call.
unsafe impl Sync for RawStream {}

impl RawStream {
    /// Vouches for a stream.
    ///
    /// # Safety
    ///
    /// It is a stream of the driver, or null, and outlives this value and its copies.
    pub const unsafe fn new(stream: sys::CUstream) -> RawStream {
        RawStream(stream)
    }

    /// The driver's handle.
    pub const fn handle(self) -> sys::CUstream {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_refuse_pages_that_do_not_fit() {
        // SAFETY: nothing is launched with these.
        let span = |address, bytes| unsafe { Span::new(address, bytes) };
        let pool = PagePool::new(span(0x1000, 10 * 8448), 8448, 10).expect("it fits");
        assert_eq!((pool.page(9).address(), pool.page(9).bytes()), (0x1000 + 9 * 8448, 8448));
        let short = LaunchError::TooShort { what: "pool", expected: 11 * 8448, got: 10 * 8448 };
        assert_eq!(PagePool::new(span(0x1000, 10 * 8448), 8448, 11), Err(short));
        let odd = LaunchError::Misaligned { what: "pool", align: 16, address: 0x1008 };
        assert_eq!(PagePool::new(span(0x1008, 8448), 8448, 1), Err(odd));
        assert!(PagePool::new(span(0x1000, 1 << 40), 8, 1).is_err(), "pages 8 bytes apart");
        assert!(PagePool::new(span(0x1000, u64::MAX), 16, u32::MAX).is_err(), "numbers that are no i32");
        assert!(pool.need(8448).is_ok() && pool.need(8464).is_err());
    }

    #[test]
    fn far_pages_have_offsets_of_more_than_32_bits() {
        // SAFETY: as above.
        let span = unsafe { Span::new(1 << 40, 1 << 36) };
        let pool = PagePool::new(span, 41_984, 1_600_000).expect("it fits");
        assert_eq!(pool.page(1_599_999).address() - (1 << 40), 1_599_999 * 41_984);
    }
}
