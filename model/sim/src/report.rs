//! What came of a run.

use serde::Serialize;

/// The version of the form of a report.
pub const VERSION: u32 = 1;

/// Everything that was seen. Integers only; times are virtual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Sessions by class.
    pub sessions: Sessions,
    /// Requests, and what became of them.
    pub requests: Requests,
    /// Tokens.
    pub tokens: Tokens,
    /// From submission to the first token, in nanoseconds.
    pub first_token_ns: Percentiles,
    /// From one token to the next, one value a request, in nanoseconds.
    pub per_token_ns: Percentiles,
    /// From submission to the last token, in nanoseconds.
    pub end_to_end_ns: Percentiles,
    /// Links.
    pub links: Links,
    /// Reads of the wrong bytes by forward steps, in pages.
    pub corrupt_reads: CorruptReads,
    /// What was left when nothing could happen any more.
    pub stuck: Stuck,
    /// What did not add up.
    pub conservation: Conservation,
    /// What was made to go wrong.
    pub faults: Injected,
    /// Reads that came before the reload they needed.
    pub lost_races: LostRaces,
    /// From the first arrival to the last event, in nanoseconds.
    pub elapsed_ns: u64,
    /// From the first arrival to the last answer, in nanoseconds.
    pub answered_ns: u64,
    /// Events of the run.
    pub events: u64,
}

/// Sessions by class: each counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sessions {
    /// Sessions of the workload.
    pub total: u64,
    /// Every request ended well.
    pub ok: u64,
    /// A step of a request read bytes that were not its own.
    pub corrupt: u64,
    /// A request ended for want of an event: nothing was under way that could have helped it.
    pub stuck: u64,
    /// A request did not end in time, though something was under way.
    pub timeout: u64,
    /// A request failed or was refused.
    pub error: u64,
    /// A client was made to go away of its own accord.
    pub left: u64,
    /// Not over when the run ended.
    pub open: u64,
}

/// Faults that befell something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Injected {
    /// Messages between the engines that were lost.
    pub lost_messages: u64,
    /// Parts of transfers that failed.
    pub failed_parts: u64,
    /// Requests whose client went away of its own accord.
    pub clients_left: u64,
}

/// Requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Handed to an engine.
    pub submitted: u64,
    /// Ended with an answer.
    pub finished: u64,
    /// Refused, because they can never fit.
    pub rejected: u64,
    /// Whose client went away.
    pub aborted: u64,
    /// That the engine ended for a deadline of its own.
    pub past_deadline: u64,
    /// That failed in the engine.
    pub failed: u64,
    /// Not asked, because their session ended before.
    pub not_asked: u64,
    /// Requests in one decode step, at most.
    pub decodes_peak: u64,
    /// Requests open at once, at most.
    pub open_peak: u64,
}

impl Sessions {
    /// Whether every session went well, but for those that were made to end.
    pub fn all_ok(&self) -> bool {
        self.ok + self.left == self.total
    }
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Of all prompts.
    pub input: u64,
    /// Of all answers that ended.
    pub output: u64,
    /// Found in the device tier.
    pub device_hits: u64,
    /// Found in the host tier alone, and reloaded.
    pub host_hits: u64,
    /// Of prompts, computed.
    pub computed: u64,
}

impl Tokens {
    /// Prompt tokens that did not have to be computed, in parts per 10,000 of all.
    pub fn prefix_cache_reused_per_10k(&self) -> u64 {
        let reused = u128::from(self.device_hits + self.host_hits);
        (reused * 10_000 / u128::from(self.input.max(1))) as u64
    }
}

/// A distribution, by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Values.
    pub count: u64,
    /// The sum divided by their number.
    pub mean: u64,
    /// Half are not above.
    pub p50: u64,
    /// 9 of 10 are not above.
    pub p90: u64,
    /// 95 of 100 are not above.
    pub p95: u64,
    /// 99 of 100 are not above.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Percentiles {
    /// Of a list of values, which is sorted.
    pub fn of(values: &mut [u64]) -> Percentiles {
        values.sort_unstable();
        let count = values.len();
        if count == 0 {
            return Percentiles::default();
        }
        let rank = |percent: usize| values[(count * percent).div_ceil(100).clamp(1, count) - 1];
        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
        Percentiles {
            count: count as u64,
            mean: (sum / count as u128) as u64,
            p50: rank(50),
            p90: rank(90),
            p95: rank(95),
            p99: rank(99),
            max: rank(100),
        }
    }
}

/// What went over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Operations that ended.
    pub operations: u64,
    /// Pages that they moved; a part of a transfer each.
    pub pages: u64,
    /// Bytes, of one rank.
    pub bytes: u64,
    /// Time in which something was under way, in nanoseconds.
    pub busy_ns: u64,
}

/// All links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Links {
    /// Host to device.
    pub load: Link,
    /// Device to host.
    pub store: Link,
    /// Prefill to decode.
    pub network: Link,
    /// The forward stream of the engine that computes prompts: steps, and their time.
    pub forward: Link,
}

/// Pages that a step read and that held other bytes, by component and by where those came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CorruptReads {
    /// Index keys that had not landed from the host tier, or that a reload brought wrong.
    pub index_k_from_host: u64,
    /// Likewise KV.
    pub kv_from_host: u64,
    /// Index keys of pages that were not reloaded.
    pub index_k_on_device: u64,
    /// Likewise KV.
    pub kv_on_device: u64,
    /// Requests with at least one such read.
    pub requests: u64,
    /// Writes into pages that had another owner by then.
    pub foreign_writes: u64,
}

/// Reads of a layer that came before the reload of that layer, by requests: how often, and by how much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostRaces {
    /// Requests that found a part of their prompt in the host tier.
    pub reloading: u64,
    /// Steps of requests that began while something was written into pages that they read.
    pub racing: u64,
    /// Those of them that read index keys too early.
    pub index_k: u64,
    /// Likewise, by the layer that was read too early; layers behind the last one are left out.
    pub index_k_by_layer: Vec<u64>,
    /// Those of them that read KV too early.
    pub kv: u64,
    /// Of each lost race, the longest time from the read of a layer to its landing, in nanoseconds.
    pub behind_ns: Percentiles,
}

/// What waited in vain, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stuck {
    /// Requests that wait for pages.
    pub for_pages: u64,
    /// Requests of the decode engine whose cache has not arrived.
    pub for_input: u64,
    /// Requests whose peer has not named its pages.
    pub for_peer: u64,
    /// Requests whose transfer has not ended.
    pub sending: u64,
    /// Requests that hold everything and are not run.
    pub not_run: u64,
    /// Requests that ended for their client and still hold pages.
    pub draining: u64,
    /// Copies and sends that never ended.
    pub transfers: u64,
    /// Pages, by tier (device of every engine, host), that are neither free nor cached.
    pub leaked_pages: [u64; 2],
    /// Leases that nobody will give back.
    pub leases: u64,
}

impl Stuck {
    /// Requests that waited in vain.
    pub fn requests(&self) -> u64 {
        self.for_pages + self.for_input + self.for_peer + self.sending + self.not_run
    }
}

/// What must add up in every run, and how often it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Times at which everything was added up.
    pub checks: u64,
    /// The clock went back.
    pub clock: u64,
    /// Requests submitted are not those ended and open.
    pub requests: u64,
    /// A page was taken twice, freed twice, or the tiers' counts differ from the manager's.
    pub pages: u64,
    /// Bytes begun are not those moved and under way.
    pub bytes: u64,
    /// Leases are left though no request and no copy is.
    pub leases: u64,
}

impl Conservation {
    /// Whether everything added up.
    pub fn holds(&self) -> bool {
        self.clock + self.requests + self.pages + self.bytes + self.leases == 0
    }
}
