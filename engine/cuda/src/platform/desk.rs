//! What a thread works with on a GPU.

use std::cell::RefCell;

use kvweft_kernels::gpu::{CopyMethod, JOB_BYTES, Job, Kernels, RawStream, Span};

use super::{home, lock, working};
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::{DevicePool, HostPool};
use crate::stream::{Priority, Stream};

const START_BYTES: usize = 1 << 20;

/// A stream, and scratch memory that lives from one call to the next: pinned memory on the way up and down, and memory of the
/// device.
pub(super) struct Desk {
    pub(super) stream: Stream,
    pub(super) up: HostPool,
    pub(super) down: HostPool,
    pub(super) device: DevicePool,
    /// Memory that became too small. It is kept, because giving it back waits for the device, which a gate may hold.
    outgrown: (Vec<HostPool>, Vec<DevicePool>),
    gpu: usize,
}

impl Desk {
    pub(super) fn new(gpu: &Gpu) -> Result<Desk, CudaError> {
        let stream = Stream::new(gpu, Priority::High)?;
        Ok(Desk {
            up: HostPool::new(gpu, START_BYTES)?,
            down: HostPool::new(gpu, START_BYTES)?,
            device: scratch(gpu, &stream, START_BYTES as u64)?,
            stream,
            outgrown: Default::default(),
            gpu: 0,
        })
    }

    pub(super) fn raw(&self) -> RawStream {
        self.stream.raw()
    }

    pub(super) fn kernels(&self) -> &'static Kernels {
        self.gpu().kernels()
    }

    pub(super) fn gpu(&self) -> &'static Gpu {
        &home().gpus[self.gpu]
    }

    /// Makes room for so many bytes on the way up, on the way down, and on the device. What was there is forgotten.
    pub(super) fn room(&mut self, up: usize, down: usize, device: usize) {
        let gpu = self.gpu();
        for (pool, bytes) in [(&mut self.up, up), (&mut self.down, down)] {
            if pool.bytes().len() < bytes {
                let larger = working(HostPool::new(gpu, bytes.next_power_of_two()));
                self.outgrown.0.push(std::mem::replace(pool, larger));
            }
        }
        if self.device.span().bytes() < device as u64 {
            let larger = working(scratch(gpu, &self.stream, device.next_power_of_two() as u64));
            self.outgrown.1.push(std::mem::replace(&mut self.device, larger));
        }
        working(gpu.bind());
    }

    /// The pinned memory on the way down, as the device addresses it.
    #[allow(unsafe_code)]
    pub(super) fn down_span(&self) -> Span {
        // SAFETY: the host reads it after it has waited for the stream only.
        unsafe { self.down.span() }
    }

    /// The pinned memory on the way up, as the device addresses it.
    #[allow(unsafe_code)]
    pub(super) fn up_span(&self) -> Span {
        // SAFETY: the host writes it only when the stream has been waited for.
        unsafe { self.up.span() }
    }

    /// Brings the first bytes on the way up to the begin of the device's.
    #[allow(unsafe_code)]
    pub(super) fn send(&self, bytes: usize) {
        // SAFETY: as for `up_span`.
        working(unsafe { self.up.copy_to(self.raw(), 0, self.device.span().part(0, bytes as u64)) });
    }

    /// Brings memory of the device to the begin of those on the way down.
    #[allow(unsafe_code)]
    pub(super) fn fetch(&self, from: Span) {
        // SAFETY: as for `down_span`.
        working(unsafe { self.down.copy_from(self.raw(), 0, from) });
    }

    pub(super) fn wait(&self) {
        working(self.stream.synchronize());
    }

    /// Copies by a launch, and waits. `staged` bytes on the way up belong to the jobs' sources.
    pub(super) fn copy(&mut self, jobs: &[Job], staged: usize, blocks: u32) {
        if jobs.is_empty() {
            return;
        }
        let bytes = jobs.len() * JOB_BYTES as usize;
        let at = staged.next_multiple_of(256);
        // Sources on the way up would move if there were no room yet.
        assert!(self.up.bytes().len() >= at + bytes, "room for {} jobs behind {staged} bytes", jobs.len());
        put_jobs(jobs, &mut self.up.bytes_mut()[at..]);
        let span = self.device.span();
        // SAFETY: the list was just written, and is read behind its copy.
        #[allow(unsafe_code)]
        working(unsafe { self.up.copy_to(self.raw(), at, span.part(0, bytes as u64)) });
        launch(self.kernels(), self.raw(), jobs.len(), span, span.part(bytes as u64, jobs.len() as u64 * 8), blocks);
        self.wait();
    }
}

/// Memory of the device, poison until something is written: bulk copies write past tools that look for uninitialised reads.
fn scratch(gpu: &Gpu, stream: &Stream, bytes: u64) -> Result<DevicePool, CudaError> {
    let pool = DevicePool::new(gpu, bytes)?;
    pool.fill(stream.raw(), pool.span(), 0xff)?;
    Ok(pool)
}

/// Bytes on the way up, and on the device, that [`Desk::copy`] needs for so many jobs.
pub(super) fn room_for_jobs(staged: usize, jobs: usize) -> (usize, usize) {
    let bytes = jobs * JOB_BYTES as usize;
    (staged.next_multiple_of(256) + bytes, bytes + jobs * 8)
}

pub(super) fn put_jobs(jobs: &[Job], out: &mut [u8]) {
    for (job, out) in jobs.iter().zip(out.as_chunks_mut::<{ JOB_BYTES as usize }>().0) {
        *out = job.to_bytes();
    }
}

/// Launches the ring kernel on a list of jobs in device memory, numbered from 0 by their slots.
pub(super) fn launch(kernels: &Kernels, stream: RawStream, count: usize, jobs: Span, checksums: Span, blocks: u32) {
    // SAFETY: jobs come from spans of pools, which live as long as what uses them; the manager hands a page out once, so that
    // targets do not overlap (with a rule dropped they may, and then bytes are wrong, as they should be); slots count from 0,
    // and there is a checksum for each.
    #[allow(unsafe_code)]
    let launched = unsafe { kernels.page_copy.launch(stream, CopyMethod::Ring, blocks, jobs, count as u32, checksums) };
    working(launched);
}

/// The desks of a thread, one for each GPU that it has worked with. They are given back when it ends.
#[derive(Default)]
struct Own(Vec<Desk>);

impl Drop for Own {
    fn drop(&mut self) {
        for desk in self.0.drain(..) {
            lock(&home().desks[desk.gpu]).push(desk);
        }
    }
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// Works with the thread's desk at a GPU.
pub(super) fn with_desk<T>(gpu: usize, work: impl FnOnce(&mut Desk) -> T) -> T {
    OWN.with_borrow_mut(|own| {
        let at = own.0.iter().position(|desk| desk.gpu == gpu).unwrap_or_else(|| {
            let ready = lock(&home().desks[gpu]).pop();
            let desk = ready.unwrap_or_else(|| working(Desk::new(&home().gpus[gpu])));
            own.0.push(Desk { gpu, ..desk });
            own.0.len() - 1
        });
        working(home().gpus[gpu].bind());
        work(&mut own.0[at])
    })
}
