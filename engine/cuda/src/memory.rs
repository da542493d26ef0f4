//! Pools: memory that is allocated once, of the device and of the host.
#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use kvweft_kernels::gpu::{RawStream, Span};

use crate::driver::call;
use crate::error::CudaError;
use crate::gpu::{Context, Gpu};

/// Memory of the device, by `cuMemAlloc`, so that other devices can be let in. Its bytes are whatever was there.
///
/// Dropping it waits for the device, and then frees it.
pub struct DevicePool {
    address: u64,
    bytes: u64,
    context: Arc<Context>,
}

impl DevicePool {
    /// Allocates so many bytes.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoMemory`] if there are not as many.
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<DevicePool, CudaError> {
        gpu.bind()?;
        let mut address = 0;
        // SAFETY: the context is current, and `address` is written by the call only.
        let code = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1) as usize) };
        if code != sys::CUresult::CUDA_SUCCESS {
            return Err(CudaError::NoMemory { what: "device memory", bytes, code });
        }
        Ok(DevicePool { address, bytes, context: gpu.context().clone() })
    }

    /// All of it. Work with it must have finished, or have been waited for, before the pool is dropped; dropping waits
    /// for work of this device.
    pub fn span(&self) -> Span {
        // SAFETY: allocated, and freed only after the device has nothing left to do. The host has no references to it.
        unsafe { Span::new(self.address, self.bytes) }
    }

    /// Fills a part with a byte, in the order of the stream.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn fill(&self, stream: RawStream, part: Span, byte: u8) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the span's maker vouches for its bytes.
        unsafe { call!(cuMemsetD8Async(part.address(), byte, part.bytes() as usize, stream.handle())) }
    }

    /// Writes bytes at a place, and waits until they are there. Not ordered with other streams.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Panics
    ///
    /// If they do not fit.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), CudaError> {
        let to = self.span().part(at, bytes.len() as u64);
        self.context.bind()?;
        // SAFETY: `to` is inside of the pool, and the call returns when the bytes were read.
        unsafe { call!(cuMemcpyHtoD_v2(to.address(), bytes.as_ptr().cast(), bytes.len())) }
    }

    /// Reads bytes from a place, and waits for them. Not ordered with other streams.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Panics
    ///
    /// If the pool has no such bytes.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        let from = self.span().part(at, bytes.len() as u64);
        self.context.bind()?;
        // SAFETY: `from` is inside of the pool, and the call returns when the bytes were written.
        unsafe { call!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from.address(), bytes.len())) }
    }
}

impl Drop for DevicePool {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once, freed once; nothing of the device uses it any more. Errors have nobody to hear them.
            unsafe {
                let _ = sys::cuCtxSynchronize();
                let _ = sys::cuMemFree_v2(self.address);
            }
        }
    }
}

impl fmt::Debug for DevicePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePool({} bytes)", self.bytes)
    }
}

/// Pinned memory of the host that devices can address: portable, mapped, and cached by the processor (not
/// write-combined, because the host reads it, too). It begins as zeros.
///
/// Dropping it waits for the device it was made for, and then frees it.
pub struct HostPool {
    host: *mut u8,
    address: u64,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the memory belongs to the value and to no thread.
unsafe impl Send for HostPool {}
// SAFETY: it is read through `&self` and written through `&mut self` or by a device, as `span` says.
unsafe impl Sync for HostPool {}

impl HostPool {
    /// Allocates so many bytes.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoMemory`] if there are not as many.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<HostPool, CudaError> {
        gpu.bind()?;
        let mut host = core::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current, and `host` is written by the call only.
        let code = unsafe { sys::cuMemHostAlloc(&mut host, bytes.max(1), flags) };
        if code != sys::CUresult::CUDA_SUCCESS {
            return Err(CudaError::NoMemory { what: "pinned host memory", bytes: bytes as u64, code });
        }
        let mut pool = HostPool { host: host.cast(), address: 0, bytes, context: gpu.context().clone() };
        // SAFETY: so many bytes were allocated, and nobody else knows them yet.
        unsafe { pool.host.write_bytes(0, bytes) };
        // SAFETY: the memory was allocated as mapped.
        unsafe { call!(cuMemHostGetDevicePointer_v2(&mut pool.address, host, 0))? };
        Ok(pool)
    }

    /// All of it, by its device address.
    ///
    /// # Safety
    ///
    /// While work that was given the span may write a byte, no reference of [`HostPool::bytes`] or
    /// [`HostPool::bytes_mut`] to it is used; while such work may read a byte, none of the latter is.
    pub unsafe fn span(&self) -> Span {
        // SAFETY: allocated and mapped, and freed only after the device has nothing left to do; references are the
        // caller's promise.
        unsafe { Span::new(self.address, self.bytes as u64) }
    }

    /// All of it, for the host. No work that writes it may be in flight.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and written; devices are kept away by the promise of `span`.
        unsafe { core::slice::from_raw_parts(self.host, self.bytes) }
    }

    /// All of it, for the host. No work that reads or writes it may be in flight.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and nobody else has a reference.
        unsafe { core::slice::from_raw_parts_mut(self.host, self.bytes) }
    }

    /// A 32-bit word that host and device may change at the same time, for gates.
    ///
    /// # Panics
    ///
    /// If there is no such word at a multiple of 4.
    pub fn word(&self, at: usize) -> &core::sync::atomic::AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes, "no word at {at} of {}", self.bytes);
        // SAFETY: in bounds and aligned, because allocations begin at pages; used as an atomic by the host.
        unsafe { core::sync::atomic::AtomicU32::from_ptr(self.host.add(at).cast()) }
    }

    /// The device's address of a byte.
    pub fn device_address(&self, at: usize) -> u64 {
        self.address + at as u64
    }

    /// One big copy from here to the device through the copy engine, in the order of the stream.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Safety
    ///
    /// As for [`HostPool::span`]: these bytes are read until the stream has passed this.
    ///
    /// # Panics
    ///
    /// If there are no such bytes.
    pub unsafe fn copy_to(&self, stream: RawStream, at: usize, to: Span) -> Result<(), CudaError> {
        assert!(at as u64 + to.bytes() <= self.bytes as u64, "{} bytes at {at} of {}", to.bytes(), self.bytes);
        // SAFETY: in bounds on both sides; the rest is the caller's promise.
        unsafe {
            call!(cuMemcpyHtoDAsync_v2(to.address(), self.host.add(at).cast(), to.bytes() as usize, stream.handle()))
        }
    }

    /// One big copy from the device to here through the copy engine, in the order of the stream.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    ///
    /// # Safety
    ///
    /// As for [`HostPool::span`]: these bytes are written until the stream has passed this.
    ///
    /// # Panics
    ///
    /// If there are no such bytes.
    pub unsafe fn copy_from(&self, stream: RawStream, at: usize, from: Span) -> Result<(), CudaError> {
        assert!(at as u64 + from.bytes() <= self.bytes as u64, "{} bytes at {at} of {}", from.bytes(), self.bytes);
        // SAFETY: in bounds on both sides; the rest is the caller's promise.
        unsafe {
            call!(cuMemcpyDtoHAsync_v2(
                self.host.add(at).cast(),
                from.address(),
                from.bytes() as usize,
                stream.handle()
            ))
        }
    }
}

impl Drop for HostPool {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated once, freed once; nothing of the device uses it any more. Errors have nobody to hear them.
            unsafe {
                let _ = sys::cuCtxSynchronize();
                let _ = sys::cuMemFreeHost(self.host.cast());
            }
        }
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostPool({} bytes)", self.bytes)
    }
}
