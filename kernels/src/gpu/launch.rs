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

    /// What its source says in a constant of this name.
    pub(super) fn numbers<const N: usize>(&self, name: &'static str) -> Result<[u32; N], LaunchError> {
        let text = CString::new(name).expect("names of constants have no zero bytes");
        let (mut address, mut bytes, mut numbers) = (0, 0, [0; N]);
        // SAFETY: the module is loaded, and the name is a C string that lives during the call.
        let code = unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.handle, text.as_ptr()) };
        check("cuModuleGetGlobal", name, code)?;
        if bytes != size_of_val(&numbers) {
            return Err(LaunchError::Shape { what: "number of bytes of a constant", got: bytes as u64 });
        }
        // SAFETY: there are as many bytes at either address.
        check("cuMemcpyDtoH", name, unsafe { sys::cuMemcpyDtoH_v2(numbers.as_mut_ptr().cast(), address, bytes) })?;
        Ok(numbers)
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
        Ok(Function { name, handle, early: false })
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
    /// Whether its blocks may come before the kernel in front of it in the stream is through.
    early: bool,
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

fn config([x, y, z]: [u32; 3], block: u32, shared: u32) -> sys::CUlaunchConfig {
    sys::CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shared,
        hStream: core::ptr::null_mut(),
        attrs: core::ptr::null_mut(),
        numAttrs: 0,
    }
}

/// Programmatic dependent launch.
fn early() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

fn cluster_of(blocks: u32) -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue {
            clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 },
        },
    }
}

/// Multiprocessors of the device whose context is current; 1 if the driver does not say.
pub(super) fn multiprocessors() -> u32 {
    let (mut device, mut count) = (0, 0);
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    // SAFETY: results are written by the calls only; a device that was not found is not used.
    let code = unsafe { sys::cuCtxGetDevice(&mut device) };
    if code == CUresult::CUDA_SUCCESS {
        // SAFETY: as above.
        let _ = unsafe { sys::cuDeviceGetAttribute(&mut count, attribute, device) };
    }
    count.max(1) as u32
}

impl Function {
    /// The same, of a kernel in which every block first waits for the kernel in front of it (`griddepcontrol.wait`), and
    /// so may be launched while that one still runs. What comes behind it in the stream waits for both all the same.
    pub(super) const fn early(self) -> Function {
        Function { early: true, ..self }
    }

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
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(stream, grid, None, block, shared, args) }
    }

    /// As [`Function::launch`], with so many blocks along the first axis in a cluster.
    ///
    /// # Safety
    ///
    /// As for [`Function::launch`].
    pub(super) unsafe fn launch_clusters(
        &self,
        stream: RawStream,
        grid: [u32; 3],
        cluster: u32,
        block: u32,
        shared: u32,
        args: Args,
    ) -> Result<(), LaunchError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(stream, grid, Some(cluster), block, shared, args) }
    }

    /// # Safety
    ///
    /// As for [`Function::launch`].
    unsafe fn launch_with(
        &self,
        stream: RawStream,
        grid: [u32; 3],
        cluster: Option<u32>,
        block: u32,
        shared: u32,
        args: Args,
    ) -> Result<(), LaunchError> {
        let mut args = args.0;
        let mut pointers: Vec<*mut c_void> = args.iter_mut().map(|arg| core::ptr::from_mut(arg).cast()).collect();
        let mut attributes: Vec<_> = cluster.map(cluster_of).into_iter().chain(self.early.then(early)).collect();
        let mut config = config(grid, block, shared);
        config.hStream = stream.handle();
        config.attrs = attributes.as_mut_ptr();
        config.numAttrs = attributes.len() as u32;
        // SAFETY: the function is loaded; pointers lead to arguments that live during the call, which copies them; the
        // rest is the caller's promise.
        let code = unsafe { sys::cuLaunchKernelEx(&config, self.handle, pointers.as_mut_ptr(), core::ptr::null_mut()) };
        check("cuLaunchKernelEx", self.name, code)
    }

    /// The largest power of two, up to `most`, of blocks that this device runs as one cluster.
    pub(super) fn cluster_max(&self, most: u32, block: u32) -> u32 {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        // A device that does not know more than eight blocks refuses here or below.
        // SAFETY: the function is loaded.
        let _ = unsafe { sys::cuFuncSetAttribute(self.handle, attribute, 1) };
        let runs = |cluster: &u32| {
            let (mut attribute, mut clusters) = (cluster_of(*cluster), 0);
            let mut config = config([*cluster, 1, 1], block, 0);
            (config.attrs, config.numAttrs) = (&mut attribute, 1);
            // SAFETY: the function is loaded, and the configuration lives during the call, which launches nothing.
            let code = unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, self.handle, &config) };
            code == CUresult::CUDA_SUCCESS && clusters > 0
        };
        core::iter::successors(Some(most), |cluster| (*cluster > 1).then_some(cluster / 2)).find(runs).unwrap_or(1)
    }
}
