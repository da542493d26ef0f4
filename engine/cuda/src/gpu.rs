//! An opened device.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute};
use kvweft_kernels::gpu::{Arch, Image, Kernels};
use serde::Serialize;

use crate::driver::call;
use crate::error::CudaError;
use crate::nvrtc;

/// The lowest compute capability that sources can be compiled for.
const MAJOR_MIN: i32 = 9;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuInfo {
    /// Its place in the driver's list.
    pub ordinal: usize,
    /// As the driver names it.
    pub name: String,
    /// For instance `sm_90`.
    pub architecture: String,
    /// Whose code its kernels are: `sm_90`, `sm_120`, or `compiled` for its own.
    pub kernels: String,
    /// The newest CUDA version that the driver knows, for instance 13000.
    pub driver_version: i32,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// All of its memory.
    pub memory_bytes: u64,
    /// Bytes that its memory moves in a second, from clock and width of its bus; 0 if the driver does not say.
    pub memory_bytes_per_second: u64,
}

/// A context of the driver, kept while something belongs to it.
#[derive(Debug)]
pub(crate) struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context may be made current in any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks it for each call.
unsafe impl Sync for Context {}

impl Context {
    /// Makes this context the calling thread's.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained as long as this value lives.
        unsafe { call!(cuCtxSetCurrent(self.handle)) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. An error has nobody left to hear it.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A device with its kernels loaded.
///
/// Its context is made current in every thread that allocates, makes streams or calls [`Gpu::bind`]; a thread that only
/// launches must call the last.
#[derive(Debug)]
pub struct Gpu {
    kernels: Kernels,
    info: GpuInfo,
    context: Arc<Context>,
}

impl Gpu {
    /// Opens a device, and loads every kernel.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`] without the driver's library, [`CudaError::NoDevice`] if there are fewer devices,
    /// [`CudaError::NoKernels`] if there are no cubins for it and none can be compiled, or what the driver returns.
    pub fn open(ordinal: usize) -> Result<Gpu, CudaError> {
        let count = Gpu::count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let mut device = 0;
        // SAFETY: the driver was initialised by `count`, here and below; results are written by the calls only.
        unsafe { call!(cuDeviceGet(&mut device, ordinal as i32))? };
        let mut handle = core::ptr::null_mut();
        // SAFETY: the device exists.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut handle, device))? };
        let context = Arc::new(Context { device, handle });
        context.bind()?;
        let mut info = describe(ordinal, device)?;
        let arch = arch(device)?;
        if capability(device)?.0 < MAJOR_MIN {
            let why = "bulk copies and e4m3 need compute capability 9.0".to_owned();
            return Err(CudaError::NoKernels { architecture: info.architecture, why });
        }
        info.kernels = arch.map_or("compiled", Arch::name).to_owned();
        let kernels = Kernels::load(&mut |image| code(image, arch, &info.architecture))?;
        Ok(Gpu { kernels, info, context })
    }

    /// How many devices the driver shows.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoDriver`] without the driver's library, or what the driver returns.
    pub fn count() -> Result<usize, CudaError> {
        // SAFETY: this loads the library, whose initialisers may run anywhere. Without this test, the first call of a
        // function would panic.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let mut count = 0;
        // SAFETY: the library is there; initialising again does nothing.
        match unsafe { sys::cuInit(0) } {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
            code => crate::driver::check("cuInit", code)?,
        }
        // SAFETY: the driver is initialised.
        unsafe { call!(cuDeviceGetCount(&mut count))? };
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// What the device is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Its kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Makes the device's context current in the calling thread.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn bind(&self) -> Result<(), CudaError> {
        self.context.bind()
    }

    /// Waits until the device has nothing to do.
    ///
    /// # Errors
    ///
    /// What the driver returns; faults of kernels show here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: the context is current.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// Memory of the device that nobody has allocated, in bytes.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok(free as u64)
    }

    /// Whether this device can address the other one's memory.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn can_access(&self, other: &Gpu) -> Result<bool, CudaError> {
        let mut can = 0;
        // SAFETY: both devices exist.
        unsafe { call!(cuDeviceCanAccessPeer(&mut can, self.context.device, other.context.device))? };
        Ok(can != 0)
    }

    /// Lets kernels and copies of this device address memory of the other one. To do so again is no error.
    ///
    /// # Errors
    ///
    /// What the driver returns, for instance if the devices cannot.
    pub fn enable_access(&self, other: &Gpu) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: both contexts are retained.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context.handle, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => crate::driver::check("cuCtxEnablePeerAccess", code),
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

fn attribute(device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
    let mut value = 0;
    // SAFETY: the device exists.
    unsafe { call!(cuDeviceGetAttribute(&mut value, attribute, device))? };
    Ok(value)
}

fn capability(device: sys::CUdevice) -> Result<(i32, i32), CudaError> {
    let major = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

fn arch(device: sys::CUdevice) -> Result<Option<Arch>, CudaError> {
    capability(device).map(|(major, minor)| Arch::of(major, minor))
}

fn describe(ordinal: usize, device: sys::CUdevice) -> Result<GpuInfo, CudaError> {
    let mut name = [0; 128];
    // SAFETY: the call writes a C string of at most the length given.
    unsafe { call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))? };
    let bytes = name.map(|char| char as u8);
    let name = CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (mut driver_version, mut memory) = (0, 0);
    // SAFETY: the driver is initialised, and the device exists.
    unsafe {
        call!(cuDriverGetVersion(&mut driver_version))?;
        call!(cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let (major, minor) = capability(device)?;
    let multiprocessors = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let clock_khz = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
    let bus_bits = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
    Ok(GpuInfo {
        ordinal,
        name,
        architecture: format!("sm_{major}{minor}"),
        kernels: String::new(),
        driver_version,
        multiprocessors: multiprocessors.max(1) as u32,
        memory_bytes: memory as u64,
        // Two transfers a clock.
        memory_bytes_per_second: clock_khz.max(0) as u64 * 1000 * 2 * (bus_bits.max(0) as u64 / 8),
    })
}

/// The code of an image for a device: a cubin that there is, or one that is compiled now.
fn code(image: &'static Image, arch: Option<Arch>, architecture: &str) -> Result<Vec<u8>, CudaError> {
    match arch {
        Some(arch) => Ok(image.cubin(arch).to_vec()),
        None => nvrtc::compile(image, architecture)
            .map_err(|why| CudaError::NoKernels { architecture: architecture.to_owned(), why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine with a GPU, it opens; on all others, the error says what is missing.
    #[test]
    fn opening_without_a_gpu_says_what_is_missing_and_does_not_panic() {
        match (Gpu::count(), Gpu::open(0)) {
            (Err(CudaError::NoDriver), Err(error)) => {
                assert_eq!(error, CudaError::NoDriver);
                assert!(error.to_string().contains("libcuda.so"), "{error}");
            }
            (Ok(0), Err(error)) => assert_eq!(error, CudaError::NoDevice { ordinal: 0, count: 0 }),
            (Ok(_), Ok(gpu)) => assert!(gpu.info().architecture.starts_with("sm_"), "{gpu:?}"),
            (count, open) => assert!(count.is_err() && open.is_err(), "{count:?} {open:?}"),
        }
        let far = Gpu::open(1000).expect_err("no machine has so many");
        assert!(matches!(far, CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::Driver { .. }), "{far}");
    }

    #[test]
    fn an_architecture_without_cubins_says_so_if_there_is_no_compiler() {
        let image = &kvweft_kernels::gpu::IMAGES[0];
        match code(image, None, "sm_100") {
            Ok(cubin) => assert_eq!(&cubin[..4], b"\x7fELF"),
            Err(error) => {
                assert!(error.to_string().contains("sm_100") && error.to_string().contains("nvrtc"), "{error}")
            }
        }
        assert!(code(image, Some(Arch::Sm90), "sm_90").is_ok());
    }
}
