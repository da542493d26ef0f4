//! What can go wrong with a device.

use cudarc::driver::sys::CUresult;
use kvweft_kernels::gpu::LaunchError;
use thiserror::Error;

/// Why a GPU does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no library of the driver.
    #[error("no CUDA driver: libcuda.so was not found; install NVIDIA's driver, or run without a GPU")]
    NoDriver,
    /// There are fewer devices.
    #[error("there is no GPU {ordinal}: the driver shows {count}")]
    NoDevice {
        /// The device that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The device has an architecture without cubins, and nothing can compile for it.
    #[error("no kernels for {architecture} (there are cubins for sm_90 and sm_120), and none can be compiled: {why}")]
    NoKernels {
        /// For instance `sm_80`.
        architecture: String,
        /// What is missing, or what the compiler said.
        why: String,
    },
    /// A kernel could not be loaded or launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Memory of the device is short.
    #[error("expected {bytes} bytes of {what}, got none: {code:?}")]
    NoMemory {
        /// Which memory.
        what: &'static str,
        /// How many bytes.
        bytes: u64,
        /// What the driver returned.
        code: CUresult,
    },
    /// The driver refused a call, or reports a fault of an earlier one.
    #[error("{call} returned {code:?}")]
    Driver {
        /// Its function.
        call: &'static str,
        /// What it returned.
        code: CUresult,
    },
}
