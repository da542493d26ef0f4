//! Streams and events.
#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use kvweft_kernels::gpu::{RawStream, Span};

use crate::driver::{call, check};
use crate::error::CudaError;
use crate::gpu::{Context, Gpu};

/// Whose blocks run first when several streams have some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// The lowest.
    Low,
    /// The highest: for copies that the next layer waits for.
    High,
}

/// An order of work on a device. It does not wait for the legacy default stream.
///
/// Dropping it waits for its work.
pub struct Stream {
    raw: RawStream,
    context: Arc<Context>,
}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn new(gpu: &Gpu, priority: Priority) -> Result<Stream, CudaError> {
        gpu.bind()?;
        let (mut least, mut greatest, mut handle) = (0, 0, core::ptr::null_mut());
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and results are written by the calls only.
        unsafe {
            call!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            let priority = if priority == Priority::High { greatest } else { least };
            call!(cuStreamCreateWithPriority(&mut handle, flags, priority))?;
        }
        // SAFETY: just made, and destroyed by `drop` only.
        Ok(Stream { raw: unsafe { RawStream::new(handle) }, context: gpu.context().clone() })
    }

    /// For launches.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Waits for all work so far.
    ///
    /// # Errors
    ///
    /// What the driver returns; faults of kernels show here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamSynchronize(self.raw.handle())) }
    }

    /// Whether all work so far has finished.
    ///
    /// # Errors
    ///
    /// What the driver returns; faults of kernels show here.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the stream lives.
        query("cuStreamQuery", unsafe { sys::cuStreamQuery(self.raw.handle()) })
    }

    /// An event that completes when all work so far has. Each is recorded once, here, so that one that has completed
    /// can never be waited for in the belief that it stands for later work.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn record(&self) -> Result<Event, CudaError> {
        self.context.bind()?;
        let mut handle = core::ptr::null_mut();
        // SAFETY: the context is current.
        unsafe { call!(cuEventCreate(&mut handle, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))? };
        let event = Event { handle, context: self.context.clone() };
        // SAFETY: event and stream live, and belong to the same context.
        unsafe { call!(cuEventRecord(handle, self.raw.handle()))? };
        Ok(event)
    }

    /// Lets later work of this stream wait for an event, which may be of another device.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both live; the driver keeps what it needs of the event.
        unsafe { call!(cuStreamWaitEvent(self.raw.handle(), event.handle, 0)) }
    }

    /// A gate: lets later work of this stream wait until the 32-bit word is at least `value` (as a cyclic number).
    ///
    /// # Errors
    ///
    /// What the driver returns, for instance if the device has no such operation.
    pub fn wait_value(&self, word: Span, value: u32) -> Result<(), CudaError> {
        self.context.bind()?;
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the span's maker vouches for the word.
        unsafe { call!(cuStreamWaitValue32_v2(self.raw.handle(), word.address(), value, flags)) }
    }

    /// A copy from device memory to device memory of either of two devices with access to each other.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Panics
    ///
    /// If lengths differ.
    pub fn copy(&self, from: Span, to: Span) -> Result<(), CudaError> {
        assert!(from.bytes() == to.bytes(), "{} bytes to {}", from.bytes(), to.bytes());
        self.context.bind()?;
        // SAFETY: the spans' makers vouch for their bytes.
        unsafe { call!(cuMemcpyAsync(to.address(), from.address(), from.bytes() as usize, self.raw.handle())) }
    }

    /// Copies between device memory and pinned host memory through the copy engine, in one call, each from the first span to
    /// the second one, in any order among themselves.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Panics
    ///
    /// If lengths differ.
    pub fn copy_all(&self, copies: &[(Span, Span)]) -> Result<(), CudaError> {
        let wrong = copies.iter().find(|(from, to)| from.bytes() != to.bytes());
        assert!(wrong.is_none(), "lengths differ: {wrong:?}");
        if copies.is_empty() {
            return Ok(());
        }
        let mut to: Vec<u64> = copies.iter().map(|(_, to)| to.address()).collect();
        let mut from: Vec<u64> = copies.iter().map(|(from, _)| from.address()).collect();
        let mut bytes: Vec<usize> = copies.iter().map(|(from, _)| from.bytes() as usize).collect();
        let nowhere = || sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
        let mut attributes = sys::CUmemcpyAttributes {
            srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: nowhere(),
            dstLocHint: nowhere(),
            flags: sys::CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE as u32,
        };
        self.context.bind()?;
        let (to, from, bytes) = (to.as_mut_ptr(), from.as_mut_ptr(), bytes.as_mut_ptr());
        // SAFETY: as many addresses and lengths as copies, all with the one set of attributes; the spans' makers vouch for
        // their bytes.
        unsafe {
            let stream = self.raw.handle();
            call!(cuMemcpyBatchAsync_v2(to, from, bytes, copies.len(), &mut attributes, &mut 0, 1, stream))
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made once, destroyed once, with nothing in it. Errors have nobody to hear them.
            unsafe {
                let _ = sys::cuStreamSynchronize(self.raw.handle());
                let _ = sys::cuStreamDestroy_v2(self.raw.handle());
            }
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.raw.handle())
    }
}

/// A point in a stream, recorded once.
pub struct Event {
    handle: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: an event belongs to its context and to no thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks it for each call.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the stream has come to this point.
    ///
    /// # Errors
    ///
    /// What the driver returns; faults of kernels show here.
    pub fn is_complete(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives.
        query("cuEventQuery", unsafe { sys::cuEventQuery(self.handle) })
    }

    /// Waits until the stream comes to this point.
    ///
    /// # Errors
    ///
    /// What the driver returns; faults of kernels show here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives.
        unsafe { call!(cuEventSynchronize(self.handle)) }
    }

    /// The time from an earlier event to this one; both must be complete.
    ///
    /// # Errors
    ///
    /// What the driver returns, for instance if one is not complete.
    pub fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        let mut milliseconds = 0f32;
        // SAFETY: both events live.
        unsafe { call!(cuEventElapsedTime_v2(&mut milliseconds, earlier.handle, self.handle))? };
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made once, destroyed once; the driver waits for nothing here. Errors have nobody to hear them.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.handle)
    }
}

fn query(call: &'static str, code: sys::CUresult) -> Result<bool, CudaError> {
    match code {
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        code => check(call, code).map(|()| true),
    }
}
