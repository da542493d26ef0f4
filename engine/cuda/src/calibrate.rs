//! Which way of copying suits which copies, measured on the machine at hand.
#![allow(unsafe_code)]

use core::fmt;

use kvweft_kernels::gpu::{CopyMethod, Job, Span};
use serde::Serialize;

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::{DevicePool, HostPool};
use crate::stream::{Priority, Stream};

/// Bytes that are copied for one time.
const TOTAL: u64 = 32 << 20;
/// Times of which the best counts.
const REPEATS: u32 = 3;
/// Blocks of the ring kernel that are tried.
const BLOCKS: [u32; 6] = [1, 2, 3, 4, 6, 8];
/// Blocks of it where nothing was measured: enough for the link of an H200, and few, so that a forward step keeps the rest.
const RING_BLOCKS: u32 = 4;
/// Runs of contiguous bytes that are tried, as powers of two.
const RUNS: core::ops::RangeInclusive<u32> = 16..=23;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From pinned memory of the host into the device.
    HostToDevice,
    /// From the device into pinned memory of the host.
    DeviceToHost,
}

/// How fast the copy engine copies runs of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunRate {
    /// Bytes of a run.
    pub run_bytes: u64,
    /// Bytes a second.
    pub rate: f64,
}

/// What was measured for one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Way {
    /// The direction.
    pub direction: Direction,
    /// Bytes a second of one big copy.
    pub big_rate: f64,
    /// Bytes a second of the ring kernel, by scattered pages.
    pub ring_rate: f64,
    /// The fewest blocks of it that are within 2 % of its best.
    pub ring_blocks: u32,
    /// The copy engine, many runs in one call, from short to long.
    pub runs: Vec<RunRate>,
    /// The shortest run from which on the copy engine is faster at every length; none if it never is.
    pub copy_engine_from: Option<u64>,
}

/// Which way of copying suits which copies on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Bytes of the pages that were copied.
    pub page_bytes: u64,
    /// One for each direction.
    pub ways: [Way; 2],
}

impl Calibration {
    /// Measures both ways for pages of so many bytes, a multiple of 16. Takes 64 MiB, half of them pinned on the host,
    /// and about a tenth of a second.
    ///
    /// # Errors
    ///
    /// If memory is short, pages have another length, or the driver refuses.
    pub fn measure(gpu: &Gpu, page_bytes: u64) -> Result<Calibration, CudaError> {
        let bench = Bench::new(gpu)?;
        let ways = [bench.way(Direction::HostToDevice, page_bytes)?, bench.way(Direction::DeviceToHost, page_bytes)?];
        Ok(Calibration { page_bytes, ways })
    }

    /// What was measured for a direction.
    pub fn way(&self, direction: Direction) -> &Way {
        &self.ways[direction as usize]
    }
}

/// Who copies between the device and the host, and with how many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// For each direction, from how many bytes on a run of contiguous pages goes through the copy engine.
    engine_from: [Option<u64>; 2],
    /// For each direction, blocks of the ring kernel.
    ring_blocks: [u32; 2],
}

impl CopyPlan {
    /// The ring kernel copies everything.
    pub const RING: CopyPlan = CopyPlan { engine_from: [None; 2], ring_blocks: [RING_BLOCKS; 2] };
    /// The copy engine copies everything.
    pub const ENGINE: CopyPlan = CopyPlan { engine_from: [Some(0); 2], ..CopyPlan::RING };

    /// What was the faster way.
    pub fn fastest(calibration: &Calibration) -> CopyPlan {
        let [inward, outward] = &calibration.ways;
        CopyPlan {
            engine_from: [inward.copy_engine_from, outward.copy_engine_from],
            ring_blocks: [inward.ring_blocks, outward.ring_blocks],
        }
    }

    /// The copy engine copies runs from so many bytes on, in both directions.
    pub const fn with_engine_from(bytes: u64) -> CopyPlan {
        CopyPlan { engine_from: [Some(bytes); 2], ..CopyPlan::RING }
    }

    /// Whether the copy engine copies a run of so many contiguous bytes.
    pub fn is_for_engine(&self, direction: Direction, run_bytes: u64) -> bool {
        self.engine_from[direction as usize].is_some_and(|from| run_bytes >= from)
    }

    /// Blocks of the ring kernel for what the copy engine does not copy.
    pub fn ring_blocks(&self, direction: Direction) -> u32 {
        self.ring_blocks[direction as usize]
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, way) in self.ways.iter().enumerate() {
            let name = ["in", "out"][i];
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{name}: pages of {} by {} blocks, ", self.page_bytes, way.ring_blocks)?;
            match way.copy_engine_from {
                Some(from) => write!(f, "runs from {} KiB on by the copy engine", from >> 10)?,
                None => write!(f, "runs too")?,
            }
        }
        Ok(())
    }
}

/// The shortest run from which on every rate is above the ring's.
fn crossing(runs: &[RunRate], ring_rate: f64) -> Option<u64> {
    let slower = runs.iter().rposition(|run| run.rate <= ring_rate);
    runs.get(slower.map_or(0, |at| at + 1)).map(|run| run.run_bytes)
}

/// The fewest blocks whose rate is within 2 % of the best, and that rate.
fn fewest(rates: &[(u32, f64)]) -> (u32, f64) {
    let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    *rates.iter().find(|(_, rate)| *rate >= 0.98 * best).expect("the best is within 2 % of the best")
}

/// Memory on both sides, and a stream.
struct Bench<'a> {
    gpu: &'a Gpu,
    // Before the memory, so that it is dropped, and has come to its end, before that is.
    stream: Stream,
    host: HostPool,
    device: DevicePool,
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu) -> Result<Bench<'a>, CudaError> {
        let (host, device) = (HostPool::new(gpu, TOTAL as usize)?, DevicePool::new(gpu, TOTAL)?);
        let bench = Bench { gpu, stream: Stream::new(gpu, Priority::Low)?, host, device };
        bench.device.fill(bench.stream.raw(), bench.device.span(), 1)?;
        Ok(bench)
    }

    fn way(&self, direction: Direction, page_bytes: u64) -> Result<Way, CudaError> {
        let big_rate = self.runs(direction, TOTAL)?;
        let rates = BLOCKS.map(|blocks| Ok((blocks, self.ring(direction, page_bytes, blocks)?)));
        let rates = rates.into_iter().collect::<Result<Vec<_>, CudaError>>()?;
        let (ring_blocks, ring_rate) = fewest(&rates);
        let runs = RUNS.map(|bits| Ok(RunRate { run_bytes: 1 << bits, rate: self.runs(direction, 1 << bits)? }));
        let runs = runs.collect::<Result<Vec<_>, CudaError>>()?;
        let copy_engine_from = crossing(&runs, ring_rate);
        Ok(Way { direction, big_rate, ring_rate, ring_blocks, runs, copy_engine_from })
    }

    /// Bytes a second of the best of some times.
    fn rate(&self, bytes: u64, work: &mut dyn FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
        let mut best = f64::INFINITY;
        for _ in 0..=REPEATS {
            let begin = self.stream.record()?;
            work()?;
            let end = self.stream.record()?;
            end.synchronize()?;
            best = best.min(end.since(&begin)?.as_secs_f64());
        }
        Ok(bytes as f64 / best)
    }

    /// The copy engine, all runs in one call.
    fn runs(&self, direction: Direction, run_bytes: u64) -> Result<f64, CudaError> {
        let (from, to) = self.ends(direction);
        let part = |span: Span, at: u64| span.part(at, run_bytes);
        let runs: Vec<_> = (0..TOTAL).step_by(run_bytes as usize).map(|at| (part(from, at), part(to, at))).collect();
        self.rate(TOTAL, &mut || self.stream.copy_all(&runs))
    }

    fn ends(&self, direction: Direction) -> (Span, Span) {
        // SAFETY: the host looks at these bytes never again, and they live until the stream has ended.
        let host = unsafe { self.host.span() };
        match direction {
            Direction::HostToDevice => (host, self.device.span()),
            Direction::DeviceToHost => (self.device.span(), host),
        }
    }

    /// The ring kernel, pages to places in the reverse order.
    fn ring(&self, direction: Direction, page_bytes: u64, blocks: u32) -> Result<f64, CudaError> {
        let (from, to) = self.ends(direction);
        let count = TOTAL / page_bytes.max(1);
        let page = |span: Span, at: u64| span.part(at * page_bytes, page_bytes);
        let mut bytes = Vec::new();
        for i in 0..count {
            bytes.extend(Job::new(page(from, i), page(to, count - 1 - i), i as u32, 0)?.to_bytes());
        }
        let (jobs, checksums) = (DevicePool::new(self.gpu, bytes.len() as u64)?, DevicePool::new(self.gpu, count * 8)?);
        jobs.write(0, &bytes)?;
        let copy = &self.gpu.kernels().page_copy;
        let rate = self.rate(count * page_bytes, &mut || {
            let (jobs, checksums) = (jobs.span(), checksums.span());
            // SAFETY: as many jobs as were made, with destinations and slots of their own; all memory lives until
            // `rate` has waited.
            Ok(unsafe { copy.launch(self.stream.raw(), CopyMethod::Ring, blocks, jobs, count as u32, checksums) }?)
        });
        self.stream.synchronize()?;
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(rates: &[f64]) -> Vec<RunRate> {
        rates.iter().enumerate().map(|(i, rate)| RunRate { run_bytes: 1 << (16 + i), rate: *rate }).collect()
    }

    #[test]
    fn the_copy_engine_is_taken_from_where_it_is_faster_for_good() {
        assert_eq!(crossing(&runs(&[10.0, 30.0, 52.0, 54.0]), 51.0), Some(1 << 18));
        assert_eq!(crossing(&runs(&[10.0, 52.0, 50.0, 54.0]), 51.0), Some(1 << 19), "one lucky time does not count");
        assert_eq!(crossing(&runs(&[60.0, 61.0]), 51.0), Some(1 << 16));
        assert_eq!(crossing(&runs(&[10.0, 51.0]), 51.0), None);
    }

    #[test]
    fn few_blocks_are_taken_if_more_bring_nothing() {
        assert_eq!(fewest(&[(1, 12.0), (2, 25.0), (4, 50.5), (8, 51.0), (16, 51.2)]), (4, 50.5));
        assert_eq!(fewest(&[(1, 12.0), (2, 25.0)]), (2, 25.0));
    }

    #[test]
    fn each_direction_has_a_threshold_of_its_own() {
        let way = |direction, ring_blocks, copy_engine_from| Way {
            direction,
            big_rate: 55.0,
            ring_rate: 51.0,
            ring_blocks,
            runs: Vec::new(),
            copy_engine_from,
        };
        let ways = [way(Direction::HostToDevice, 4, Some(1 << 20)), way(Direction::DeviceToHost, 3, None)];
        let calibration = Calibration { page_bytes: 8448, ways };
        let plan = CopyPlan::fastest(&calibration);
        assert!(!plan.is_for_engine(Direction::HostToDevice, (1 << 20) - 1));
        assert!(plan.is_for_engine(Direction::HostToDevice, 1 << 20));
        assert!(!plan.is_for_engine(Direction::DeviceToHost, 1 << 40));
        assert_eq!((plan.ring_blocks(Direction::HostToDevice), plan.ring_blocks(Direction::DeviceToHost)), (4, 3));
        assert!(CopyPlan::ENGINE.is_for_engine(Direction::DeviceToHost, 16));
        assert!(!CopyPlan::RING.is_for_engine(Direction::HostToDevice, 1 << 40));
        assert_eq!(
            calibration.to_string(),
            "in: pages of 8448 by 4 blocks, runs from 1024 KiB on by the copy engine; out: pages of 8448 by 3 blocks, runs too"
        );
    }
}
