//! What checks share: memory with contents, random numbers, times.

use core::cell::Cell;
use std::time::Duration;

use kvweft_kernels::gpu::{Arch, Kernels, LaunchError, RawStream};
use kvweft_kernels::mix64;
use thiserror::Error;

use super::graph::Graph;
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::DevicePool;
use crate::stream::{Priority, Stream};

/// Why a check did not pass.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Wrong(String),
    #[error("{0}")]
    Skipped(String),
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl From<LaunchError> for Fault {
    fn from(error: LaunchError) -> Fault {
        Fault::Cuda(error.into())
    }
}

/// An error unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        // Not `!$condition`: a comparison with NaN must fail, and is to be read.
        let holds: bool = $condition;
        if !holds {
            return Err($crate::selftest::lab::Fault::Wrong(format!($($text)+)));
        }
    };
}
pub(super) use ensure;

/// Numbers that lie in memory as little-endian bytes.
pub(super) trait Plain: Copy {
    const BYTES: usize;
    fn put(self, out: &mut Vec<u8>);
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Plain for $type {
            const BYTES: usize = size_of::<$type>();
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().expect("as many bytes as the type has"))
            }
        }
    )*};
}
plain!(u8, u16, i32, u32, f32, u64);

/// A device, a stream on it, and a limit of memory.
pub(super) struct Lab<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) stream: Stream,
    pub(super) memory_max: u64,
    small: bool,
    /// Bytes a second of a big copy on the device, once measured.
    pub(super) copy_rate: Cell<Option<f64>>,
}

impl<'a> Lab<'a> {
    pub(super) fn new(gpu: &'a Gpu, memory_max: u64, small: bool) -> Result<Lab<'a>, CudaError> {
        Ok(Lab { gpu, stream: Stream::new(gpu, Priority::Low)?, memory_max, small, copy_rate: Cell::new(None) })
    }

    /// A length or a number of turns: in a small self-test the second one, in any other the first one.
    pub(super) fn size(&self, full: usize, small: usize) -> usize {
        if self.small { small } else { full }
    }

    pub(super) fn raw(&self) -> RawStream {
        self.stream.raw()
    }

    pub(super) fn kernels(&self) -> &'a Kernels {
        self.gpu.kernels()
    }

    /// Blocks that fill the device for logits.
    pub(super) fn blocks(&self) -> u32 {
        self.gpu.info().multiprocessors * 4
    }

    pub(super) fn upload<T: Plain>(&self, values: &[T]) -> Result<DevicePool, CudaError> {
        let mut bytes = Vec::with_capacity(values.len() * T::BYTES);
        values.iter().for_each(|value| value.put(&mut bytes));
        let pool = DevicePool::new(self.gpu, bytes.len() as u64)?;
        pool.write(0, &bytes)?;
        Ok(pool)
    }

    /// So many bytes of one value.
    pub(super) fn filled(&self, bytes: u64, byte: u8) -> Result<DevicePool, CudaError> {
        let pool = DevicePool::new(self.gpu, bytes)?;
        pool.fill(self.raw(), pool.span(), byte)?;
        self.stream.synchronize()?;
        Ok(pool)
    }

    /// After all work of the stream.
    pub(super) fn download<T: Plain>(&self, pool: &DevicePool, count: usize) -> Result<Vec<T>, CudaError> {
        self.stream.synchronize()?;
        let mut bytes = vec![0; count * T::BYTES];
        pool.read(0, &mut bytes)?;
        Ok(bytes.chunks(T::BYTES).map(T::take).collect())
    }

    /// The median time of one call, from some replays of a graph of so many calls.
    pub(super) fn time(&self, calls: u32, call: &mut dyn FnMut(u32) -> Result<(), Fault>) -> Result<Duration, Fault> {
        // Once outside of a graph, for what a first call does.
        call(0)?;
        let graph = Graph::record(self.gpu, &self.stream, &mut || (0..calls).try_for_each(&mut *call))?;
        self.median(calls, &mut || Ok(graph.launch(&self.stream)?))
    }

    /// The median time of one call, from some groups of calls that are launched one by one, without waiting in between.
    pub(super) fn time_launched(
        &self,
        calls: u32,
        call: &mut dyn FnMut(u32) -> Result<(), Fault>,
    ) -> Result<Duration, Fault> {
        self.median(calls, &mut || (0..calls).try_for_each(&mut *call))
    }

    /// The median time of a group of calls, divided by their number.
    fn median(&self, calls: u32, group: &mut dyn FnMut() -> Result<(), Fault>) -> Result<Duration, Fault> {
        group()?;
        self.stream.synchronize()?;
        let mut times = Vec::new();
        for _ in 0..7 {
            let begin = self.stream.record()?;
            group()?;
            let end = self.stream.record()?;
            end.synchronize()?;
            times.push(end.since(&begin)? / calls);
        }
        times.sort();
        Ok(times[times.len() / 2])
    }
}

/// Kernels of the way that `sm_120` goes, where `sm_90` has one of its own.
pub(super) fn portable<T>(lab: &Lab, load: impl FnOnce() -> Result<T, LaunchError>) -> Result<T, Fault> {
    let arch = lab.gpu.info().kernels.as_str();
    if arch != Arch::Sm90.name() {
        return Err(Fault::Skipped(format!("this device's own kernels, {arch}, go that way")));
    }
    lab.gpu.bind()?;
    Ok(load()?)
}

/// Random numbers that are the same in every run.
pub(super) struct Random(Cell<u64>);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(Cell::new(mix64(seed)))
    }

    pub(super) fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        mix64(self.0.get())
    }

    /// Below `limit`.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An integer of at most `limit` in size.
    pub(super) fn integer(&self, limit: i64) -> f32 {
        (self.below(2 * limit as u64 + 1) as i64 - limit) as f32
    }

    /// From -1 to 1.
    pub(super) fn real(&self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(super) fn integers(&self, count: usize, limit: i64) -> Vec<f32> {
        (0..count).map(|_| self.integer(limit)).collect()
    }

    pub(super) fn reals(&self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.real()).collect()
    }

    /// All numbers below `count`, in a random order.
    pub(super) fn permutation(&self, count: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..count as i32).collect();
        for i in (1..count).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

/// Equal bits; all NaN are equal.
pub(super) fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// The first place where these differ, as a fault.
pub(super) fn equal<T: PartialEq + core::fmt::Debug>(what: &str, got: &[T], expected: &[T]) -> Result<(), Fault> {
    ensure!(got.len() == expected.len(), "{what}: {} values, expected {}", got.len(), expected.len());
    match got.iter().zip(expected).position(|(got, expected)| got != expected) {
        None => Ok(()),
        Some(at) => Err(Fault::Wrong(format!("{what}: at {at} expected {:?}, got {:?}", expected[at], got[at]))),
    }
}

/// The first place where bits differ, as a fault; all NaN are equal.
pub(super) fn equal_bits(what: &str, got: &[f32], expected: &[f32]) -> Result<(), Fault> {
    ensure!(got.len() == expected.len(), "{what}: {} values, expected {}", got.len(), expected.len());
    match got.iter().zip(expected).position(|(got, expected)| !same(*got, *expected)) {
        None => Ok(()),
        Some(at) => Err(Fault::Wrong(format!("{what}: at {at} expected {:?}, got {:?}", expected[at], got[at]))),
    }
}
