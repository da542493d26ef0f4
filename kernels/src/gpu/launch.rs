//! Modules and launches.
#![allow(unsafe_code)]

use core::ffi::c_void;
use std::ffi::CString;

use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};
use thiserror::Error;

use super::span::{RawStream, Span};

/// Why a kernel was not loaded or launched. Faults of a kernel that runs show later, at a wait.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LaunchError {
    /// An argument has fewer bytes than the shapes say.
    #[error("expected {expected} bytes of {what}, got {got}")]
    TooShort {
        /// The argument.
        what: &'static str,
        /// The least number of bytes.
        expected: u64,
        /// The number of bytes.
        got: u64,
    },
    /// An address is not a multiple of what the kernel reads at a time.
    #[error("expected an address of {what} that is a multiple of {align}, got {address:#x}")]
    Misaligned {
        /// The argument.
        what: &'static str,
        /// The alignment, in bytes.
        align: u64,
        /// The address.
        address: u64,
    },
    /// A number is outside of what the kernel can do.
    #[error("the kernel cannot do this {what}: {got}")]
    Shape {
        /// What the number counts.
        what: &'static str,
        /// The number.
        got: u64,
    },
    /// The driver refused.
    #[error("{call} of {kernel} returned {code:?}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The kernel or image.
        kernel: String,
        /// What it returned.
        code: CUresult,
    },
}

fn check(call: &'static str, kernel: &str, code: CUresult) -> Result<(), LaunchError> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(LaunchError::Driver { call, kernel: kernel.to_owned(), code }),
    }
}

/// A loaded image. Dropping it unloads it, which the driver does when no kernel of it runs any more.
#[derive(Debug)]
pub struct Module {
    name: &'static str,
    handle: sys::CUmodule,
}

// SAFETY: a module belongs to its context and to no thread.
unsafe impl Send for Module {}
// SAFETY: nothing here changes a module after it was loaded.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin into the current context.
    ///
    /// # Errors
    ///
    /// If there is no current context, the code is for another architecture, or memory is short.
    pub fn load(name: &'static str, cubin: &[u8]) -> Result<Module, LaunchError> {
        let mut handle = core::ptr::null_mut();
        // The driver reads an ELF's own lengths; it wants 8-byte alignment for no documented reason, and gets it.
        let aligned: Vec<u64> = cubin.chunks(8).map(word).collect();
        // SAFETY: the image is a whole ELF file and lives during the call; `handle` is written by the call only.
        let code = unsafe { sys::cuModuleLoadData(&mut handle, aligned.as_ptr().cast()) };
        check("cuModuleLoadData", name, code)?;
        Ok(Module { name, handle })
    }

    /// The name of the image.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A kernel of it, allowed to have so much dynamic shared memory.
    pub(super) fn function(&self, name: &'static str, shared_max: u32) -> Result<Function, LaunchError> {
        let text = CString::new(name).expect("names of kernels have no zero bytes");
        let mut handle = core::ptr::null_mut();
        // SAFETY: the module is loaded, and the name is a C string that lives during the call.
        check("cuModuleGetFunction", name, unsafe {
            sys::cuModuleGetFunction(&mut handle, self.handle, text.as_ptr())
        })?;
        // Now, and not at the first launch: that would wait for the device.
        // SAFETY: the function was found above.
        check("cuFuncLoad", name, unsafe { sys::cuFuncLoad(handle) })?;
        if shared_max > 0 {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was found above.
            let code = unsafe { sys::cuFuncSetAttribute(handle, attribute, shared_max as i32) };
            check("cuFuncSetAttribute", name, code)?;
        }
        Ok(Function { name, handle })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once. An error means that the context is gone, and the module with it.
        let _ = unsafe { sys::cuModuleUnload(self.handle) };
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// A kernel of a module, which must outlive it: wrappers own both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    name: &'static str,
    handle: sys::CUfunction,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as for modules.
unsafe impl Sync for Function {}

/// Arguments of a kernel, in its order. Each is 8 bytes, of which the kernel reads as many as its type has: the
/// machine is little endian, as all that CUDA runs on.
#[derive(Debug, Default)]
pub(super) struct Args(Vec<u64>);

impl Args {
    pub(super) fn new() -> Args {
        Args::default()
    }

    pub(super) fn span(mut self, span: Span) -> Args {
        self.0.push(span.address());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Args {
        self.0.push(value);
        self
    }

    /// Also for `int`, where the value is not negative.
    pub(super) fn u32(mut self, value: u32) -> Args {
        self.0.push(u64::from(value));
        self
    }

    pub(super) fn f32(self, value: f32) -> Args {
        self.u32(value.to_bits())
    }
}

impl Function {
    /// Launches the kernel.
    ///
    /// # Safety
    ///
    /// The arguments have number, order and types of the kernel's parameters, and what the kernel does with them stays
    /// inside of their spans.
    pub(super) unsafe fn launch(
        &self,
        stream: RawStream,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        args: Args,
    ) -> Result<(), LaunchError> {
        let mut args = args.0;
        let mut pointers: Vec<*mut c_void> = args.iter_mut().map(|arg| core::ptr::from_mut(arg).cast()).collect();
        let [x, y, z] = grid;
        // SAFETY: the function is loaded; pointers lead to arguments that live during the call, which copies them; the
        // rest is the caller's promise.
        let code = unsafe {
            sys::cuLaunchKernel(
                self.handle,
                x,
                y,
                z,
                block,
                1,
                1,
                shared,
                stream.handle(),
                pointers.as_mut_ptr(),
                core::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", self.name, code)
    }
}

/// Fills memory with a byte, in the order of the stream.
pub(super) fn fill(stream: RawStream, span: Span, byte: u8) -> Result<(), LaunchError> {
    // SAFETY: the span's maker vouches for its bytes.
    let code = unsafe { sys::cuMemsetD8Async(span.address(), byte, span.bytes() as usize, stream.handle()) };
    check("cuMemsetD8Async", "a fill", code)
}
