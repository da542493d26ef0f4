//! Copies that the device has in its order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvweft_kernels::gpu::{JOB_BYTES, Job};
use kvweft_shell::platform::{Move, Queued};

use super::desk::{launch, put_jobs, with_desk};
use super::pages::{COPY_BLOCKS, Pages, copier, job};
use super::{home, lock, working};
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::{DevicePool, HostPool};
use crate::stream::{Event, Priority, Stream};

const START_JOBS: usize = 4096;

/// A stream for copies, room for their jobs, and a word that gates wait for.
pub(super) struct Lane {
    stream: Stream,
    up: HostPool,
    device: DevicePool,
    room: usize,
    word: HostPool,
    /// What the last gate waited for.
    turn: u32,
}

impl Lane {
    pub(super) fn new(gpu: &Gpu) -> Result<Lane, CudaError> {
        Lane::with_room(gpu, START_JOBS)
    }

    fn with_room(gpu: &Gpu, room: usize) -> Result<Lane, CudaError> {
        Ok(Lane {
            stream: Stream::new(gpu, Priority::High)?,
            up: HostPool::new(gpu, room * JOB_BYTES as usize)?,
            device: DevicePool::new(gpu, room as u64 * (JOB_BYTES + 8))?,
            room,
            word: HostPool::new(gpu, 4096)?,
            turn: 0,
        })
    }
}

/// Batches of copies on one stream, an event behind each, and a gate before each if they are held.
pub struct Queue {
    /// Taken when it is dropped.
    lane: Option<Lane>,
    gpu: usize,
    batches: Vec<Batch>,
}

struct Batch {
    done: Arc<Event>,
    /// What the gate before it waits for.
    gate: Option<u32>,
}

/// When a batch has been made.
#[derive(Clone, Debug)]
pub struct Mark {
    gpu: usize,
    done: Arc<Event>,
}

impl Queue {
    /// Nothing if the copies are not all of one GPU and of whole vectors.
    pub(super) fn new(batches: &[Vec<Move<'_, Pages>>], held: bool) -> Option<Queue> {
        let gpu = copier_of(batches.iter().flatten())?;
        let mut jobs: Vec<Job> = Vec::new();
        let mut ends = Vec::new();
        for batch in batches {
            for one in batch.iter().filter(|(_, _, words)| !words.is_empty()) {
                jobs.push(job(one, jobs.len())?);
            }
            ends.push(jobs.len());
        }
        let home = home();
        working(home.gpus[gpu].bind());
        let ready = lock(&home.lanes[gpu]).pop().filter(|lane| lane.room >= jobs.len());
        let mut lane = ready.unwrap_or_else(|| {
            working(Lane::with_room(&home.gpus[gpu], jobs.len().next_power_of_two().max(START_JOBS)))
        });
        let batches = working(lane.enqueue(&home.gpus[gpu], &jobs, &ends, held));
        Some(Queue { lane: Some(lane), gpu, batches })
    }

    fn lane(&self) -> &Lane {
        self.lane.as_ref().expect("it is taken at the end only")
    }

    fn open(&self, gate: Option<u32>) {
        if let Some(turn) = gate {
            self.lane().word.word(0).store(turn, Ordering::Release);
        }
    }
}

/// The one GPU that makes all copies.
fn copier_of<'a, 'b: 'a>(mut moves: impl Iterator<Item = &'a Move<'b, Pages>>) -> Option<usize> {
    let (from, to, _) = moves.next()?;
    let gpu = copier(from, to)?;
    moves.all(|(from, to, _)| copier(from, to) == Some(gpu)).then_some(gpu)
}

impl Lane {
    #[allow(unsafe_code)]
    fn enqueue(&mut self, gpu: &Gpu, jobs: &[Job], ends: &[usize], held: bool) -> Result<Vec<Batch>, CudaError> {
        put_jobs(jobs, self.up.bytes_mut());
        let (raw, all) = (self.stream.raw(), self.device.span());
        if !jobs.is_empty() {
            // SAFETY: the list is written again only after the stream was waited for, when the queue is dropped.
            unsafe { self.up.copy_to(raw, 0, all.part(0, jobs.len() as u64 * JOB_BYTES))? };
        }
        // Every job has its slot in the whole list.
        let checksums = all.part(self.room as u64 * JOB_BYTES, self.room as u64 * 8);
        let (mut batches, mut begin) = (Vec::new(), 0);
        for &end in ends {
            let gate = held.then(|| self.turn.wrapping_add(1));
            if let Some(turn) = gate {
                self.turn = turn;
                // SAFETY: the host uses the word as an atomic only.
                self.stream.wait_value(unsafe { self.word.span() }.part(0, 4), turn)?;
            }
            if end > begin {
                let list = all.part(begin as u64 * JOB_BYTES, (end - begin) as u64 * JOB_BYTES);
                launch(gpu.kernels(), raw, end - begin, list, checksums, COPY_BLOCKS);
            }
            batches.push(Batch { done: Arc::new(self.stream.record()?), gate });
            begin = end;
        }
        Ok(batches)
    }
}

impl Queued for Queue {
    type Mark = Mark;

    fn settle(&self, batch: usize) {
        let Batch { done, gate } = &self.batches[batch];
        self.open(*gate);
        working(done.synchronize());
    }

    fn mark(&self, batch: usize) -> Mark {
        Mark { gpu: self.gpu, done: Arc::clone(&self.batches[batch].done) }
    }

    fn follow(mark: &Mark) {
        with_desk(mark.gpu, |desk| working(desk.stream.wait(&mark.done)));
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.open(self.batches.last().and_then(|batch| batch.gate));
        let Some(lane) = self.lane.take() else { return };
        // Behind a fault of the device the lane is of no use; whoever waits for results hears of it.
        if lane.stream.synchronize().is_ok() {
            lock(&home().lanes[self.gpu]).push(lane);
        }
    }
}
