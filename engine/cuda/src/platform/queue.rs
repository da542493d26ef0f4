//! Copies that the device has in its order.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvweft_kernels::gpu::{JOB_BYTES, Job, Span};
use kvweft_shell::platform::{Move, Queued};

use super::desk::{launch, put_jobs, with_desk};
use super::pages::{Pages, copier, job};
use super::runs::runs;
use super::{home, lock, working};
use crate::calibrate::{CopyPlan, Direction};
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

/// Who has copied, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Runs that the copy engine has copied.
    pub engine_runs: u64,
    /// Pages in them. A half of a page counts as one.
    pub engine_pages: u64,
    /// Pages that the ring kernel has copied.
    pub ring_pages: u64,
}

static COPIED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

impl Copied {
    /// So far.
    pub fn so_far() -> Copied {
        let [engine_runs, engine_pages, ring_pages] = COPIED.each_ref().map(|count| count.load(Ordering::Relaxed));
        Copied { engine_runs, engine_pages, ring_pages }
    }
}

/// What is copied, batch by batch.
#[derive(Default)]
struct Plan {
    /// For the copy engine.
    runs: Vec<(Span, Span)>,
    /// For the ring kernel, and on how many blocks.
    jobs: Vec<Job>,
    blocks: u32,
    /// Those of each batch.
    batches: Vec<(Range<usize>, Range<usize>)>,
}

impl Plan {
    /// Nothing if copies are not of whole vectors.
    fn new(batches: &[Vec<Move<'_, Pages>>], plan: CopyPlan) -> Option<Plan> {
        let direction = direction_of(batches.iter().flatten());
        let blocks = plan.ring_blocks(direction.unwrap_or(Direction::HostToDevice));
        let mut out = Plan { blocks, ..Plan::default() };
        let mut engine_pages = 0;
        for batch in batches {
            let (first_run, first_job) = (out.runs.len(), out.jobs.len());
            let mut moves: Vec<&Move<'_, Pages>> = batch.iter().filter(|(_, _, words)| !words.is_empty()).collect();
            let first = moves.first().copied();
            for run in runs(&mut moves, |one| place(one, first?)) {
                let (from, to) = ends(run);
                if direction.is_some_and(|direction| plan.is_for_engine(direction, from.bytes())) {
                    out.runs.push((from, to));
                    engine_pages += run.len();
                } else {
                    for one in run {
                        out.jobs.push(job(one, out.jobs.len())?);
                    }
                }
            }
            out.batches.push((first_run..out.runs.len(), first_job..out.jobs.len()));
        }
        for (count, more) in COPIED.iter().zip([out.runs.len(), engine_pages, out.jobs.len()]) {
            count.fetch_add(more as u64, Ordering::Relaxed);
        }
        Some(out)
    }
}

/// The places of a copy in its pools, if it is of all that lies there and of the same pools as another one.
fn place((from, to, words): &Move<'_, Pages>, other: &Move<'_, Pages>) -> Option<[usize; 2]> {
    let fills = |cell: &Pages| words.start == 0 && words.end * 8 == cell.region.stride;
    let same = Arc::ptr_eq(&from.region, &other.0.region) && Arc::ptr_eq(&to.region, &other.1.region);
    (same && fills(from) && fills(to)).then_some([from.at, to.at])
}

/// Where a run lies on both sides.
fn ends(run: &[&Move<'_, Pages>]) -> (Span, Span) {
    let (from, to, words) = run[0];
    let bytes = (words.len() * 8 * run.len()) as u64;
    (from.span_behind((words.start * 8) as u64, bytes), to.span_behind((words.start * 8) as u64, bytes))
}

/// Between which tiers all copies go, if it is the host's and a device's.
fn direction_of<'a, 'b: 'a>(moves: impl Iterator<Item = &'a Move<'b, Pages>>) -> Option<Direction> {
    let mut directions = moves.map(|(from, to, _)| match (from.is_on_device(), to.is_on_device()) {
        (false, true) => Some(Direction::HostToDevice),
        (true, false) => Some(Direction::DeviceToHost),
        _ => None,
    });
    let first = directions.next()?;
    directions.all(|direction| direction == first).then_some(first)?
}

impl Queue {
    /// Nothing if the copies are not all of one GPU and of whole vectors. Without a plan, the GPU's own is taken.
    pub(crate) fn new(batches: &[Vec<Move<'_, Pages>>], held: bool, plan: Option<CopyPlan>) -> Option<Queue> {
        let gpu = copier_of(batches.iter().flatten())?;
        let home = home();
        let plan = Plan::new(batches, plan.unwrap_or(home.plans[gpu]))?;
        working(home.gpus[gpu].bind());
        let ready = lock(&home.lanes[gpu]).pop().filter(|lane| lane.room >= plan.jobs.len());
        let mut lane = ready.unwrap_or_else(|| {
            working(Lane::with_room(&home.gpus[gpu], plan.jobs.len().next_power_of_two().max(START_JOBS)))
        });
        let batches = working(lane.enqueue(&home.gpus[gpu], &plan, held));
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
    fn enqueue(&mut self, gpu: &Gpu, plan: &Plan, held: bool) -> Result<Vec<Batch>, CudaError> {
        let Plan { runs, jobs, blocks, batches } = plan;
        put_jobs(jobs, self.up.bytes_mut());
        let (raw, all) = (self.stream.raw(), self.device.span());
        if !jobs.is_empty() {
            // SAFETY: the list is written again only after the stream was waited for, when the queue is dropped.
            unsafe { self.up.copy_to(raw, 0, all.part(0, jobs.len() as u64 * JOB_BYTES))? };
        }
        // Every job has its slot in the whole list.
        let checksums = all.part(self.room as u64 * JOB_BYTES, self.room as u64 * 8);
        let mut made = Vec::new();
        for (own_runs, own_jobs) in batches {
            let gate = held.then(|| self.turn.wrapping_add(1));
            if let Some(turn) = gate {
                self.turn = turn;
                // SAFETY: the host uses the word as an atomic only.
                self.stream.wait_value(unsafe { self.word.span() }.part(0, 4), turn)?;
            }
            self.stream.copy_all(&runs[own_runs.clone()])?;
            if !own_jobs.is_empty() {
                let list = all.part(own_jobs.start as u64 * JOB_BYTES, own_jobs.len() as u64 * JOB_BYTES);
                launch(gpu.kernels(), raw, own_jobs.len(), list, checksums, *blocks);
            }
            made.push(Batch { done: Arc::new(self.stream.record()?), gate });
        }
        Ok(made)
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
