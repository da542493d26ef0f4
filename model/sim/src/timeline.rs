//! What happened when: how full the pools were, and how long each request waited for its first token.

use crate::engine::Engine;

/// Samples that are kept at most: with so many, every second one is dropped, and the time between two doubles.
const SAMPLES_MAX: usize = 2_000;
/// The time between the first samples, in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000;

/// A run over virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Between two samples of a pool, in nanoseconds; the first one is at 0.
    pub interval_ns: u64,
    /// Every pool that has pages.
    pub pools: Vec<Pool>,
    /// Requests in the order in which they ended, then those that did not.
    pub requests: Vec<Seen>,
}

/// The pages of one tier of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What it is called in results.
    pub name: &'static str,
    /// Its pages.
    pub pages: u32,
    /// Pages that are not free, at each sample: in use, cached, or being moved.
    pub taken: Vec<u32>,
    engine: usize,
    tier: usize,
}

/// A request, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it was asked, in nanoseconds.
    pub asked_ns: u64,
    /// From then until the first token came, in nanoseconds; without one, until the request ended.
    pub waited_ns: u64,
    /// What became of it.
    pub class: Class,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It ended with its answer.
    Ok,
    /// A step of it read bytes that were not its own.
    Corrupt,
    /// Its client went away when nothing under way could have helped.
    Stuck,
    /// A client or an engine waited too long.
    Timeout,
    /// It failed or was refused.
    Error,
    /// Its client went away of its own accord.
    Left,
    /// It was not over when the run ended.
    Open,
}

impl Timeline {
    pub(crate) fn new(engines: &[Engine]) -> Timeline {
        let names = [["device", "host"], ["decode", "decode host"]];
        let pools = engines.iter().zip(names).enumerate().flat_map(|(engine, (of, names))| {
            of.tiers.iter().zip(names).enumerate().map(move |(tier, (pool, name))| Pool {
                name,
                pages: pool.len(),
                taken: Vec::new(),
                engine,
                tier,
            })
        });
        let pools = pools.filter(|pool| pool.pages > 0).collect();
        Timeline { interval_ns: INTERVAL_NS, pools, requests: Vec::new() }
    }

    /// Takes the samples before a time, up to which nothing changes any more.
    pub(crate) fn advance(&mut self, time: u64, engines: &[Engine]) {
        let mut count = self.pools.first().map_or(0, |pool| pool.taken.len());
        while !self.pools.is_empty() && count as u64 * self.interval_ns < time {
            for pool in &mut self.pools {
                pool.taken.push(engines[pool.engine].tiers[pool.tier].taken);
            }
            count += 1;
            if count == SAMPLES_MAX {
                for pool in &mut self.pools {
                    let mut even = false;
                    pool.taken.retain(|_| {
                        even = !even;
                        even
                    });
                }
                count = SAMPLES_MAX / 2;
                self.interval_ns *= 2;
            }
        }
    }
}
