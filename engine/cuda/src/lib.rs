//! GPUs for kvweft: one opened device with its kernels, memory, streams and events, on the CUDA driver alone.
//!
//! ```no_run
//! let gpu = kvweft_cuda::Gpu::open(0)?;
//! println!("{} ({})", gpu.info().name, gpu.info().architecture);
//! # Ok::<(), kvweft_cuda::CudaError>(())
//! ```
//!
//! The driver's library is looked for when a GPU is opened, not when this crate is built or linked: without it,
//! [`Gpu::open`] returns [`CudaError::NoDriver`].
//!
//! # Architecture invariants
//!
//! * Only `sys` functions of cudarc are used. Its safe layer makes every slice record and wait for events, which would
//!   order streams that must overlap.
//! * Nothing is allocated by a stream: pools are allocated once, by `cuMemAlloc` and `cuMemHostAlloc`.
//! * Modules are loaded when a GPU is opened. A launch never loads one, because that waits for the device, and a device
//!   whose stream is held by a gate does not become idle.
//! * This crate does not know requests, leases or rules.

mod calibrate;
mod driver;
mod error;
mod gpu;
mod memory;
mod nvrtc;
mod platform;
pub mod selftest;
mod stream;

pub use calibrate::{Calibration, CopyPlan, Direction, RunRate, Way};
pub use error::CudaError;
pub use gpu::{Gpu, GpuInfo};
pub use memory::{DevicePool, HostPool};
pub use platform::{Copied, CopyBy, Cuda, Mark, Pages, Queue, Setup};
pub use stream::{Event, Priority, Stream};
