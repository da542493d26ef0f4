//! What a run has measured. Everything belongs to the one run that the report names.

use serde::{Deserialize, Serialize};

use super::workload::Workload;
use crate::recall::Class;

/// The version of the form of a report.
pub const FORMAT: u32 = 1;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It goes on, or was killed without being asked.
    Running,
    /// Every session has ended.
    Complete,
    /// It was asked to stop before.
    Interrupted,
}

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of this form: [`FORMAT`].
    pub format: u32,
    /// The program, with its version.
    pub tool: String,
    /// The name of the run; every start has its own.
    pub run: String,
    /// The device.
    pub device: String,
    /// How far it has come.
    pub state: State,
    /// What was played.
    pub workload: Workload,
    /// Sessions by class.
    pub sessions: Sessions,
    /// Requests, and what became of them.
    pub requests: Requests,
    /// Tokens.
    pub tokens: Tokens,
    /// Pages moved.
    pub pages: Pages,
    /// From submission to the first byte of an answer, in microseconds.
    pub first_token_us: Percentiles,
    /// From one byte of an answer to the next, in microseconds; one value a request.
    pub per_token_us: Percentiles,
    /// How long the run took, in microseconds.
    pub elapsed_us: u64,
}

/// Sessions by class: each counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions {
    /// Every answer was right.
    pub ok: u32,
    /// Markup came out as plain text.
    pub leak: u32,
    /// No tool call came out.
    pub no_tool: u32,
    /// A tool call came out that says something else.
    pub wrong: u32,
    /// A request failed.
    pub error: u32,
    /// A request did not end in time.
    pub timeout: u32,
    /// Not over when the run ended.
    pub open: u32,
}

impl Sessions {
    /// One more session has ended.
    pub fn count(&mut self, class: Class) {
        *match class {
            Class::Ok => &mut self.ok,
            Class::Leak => &mut self.leak,
            Class::NoTool => &mut self.no_tool,
            Class::Wrong => &mut self.wrong,
            Class::Error => &mut self.error,
            Class::Timeout => &mut self.timeout,
        } += 1;
    }

    /// Sessions that have a class.
    pub fn classed(&self) -> u32 {
        self.ok + self.corrupt() + self.error + self.timeout
    }

    /// Sessions in which something was answered that is not right.
    pub fn corrupt(&self) -> u32 {
        self.leak + self.no_tool + self.wrong
    }
}

/// Requests, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Submitted.
    pub submitted: u64,
    /// Ended with an answer.
    pub finished: u64,
    /// Seen at a decode engine while their cache had not arrived.
    pub waiting_for_input: u64,
    /// Given up by their clients.
    pub aborted: u64,
    /// Ended because a wait for the peer passed its deadline.
    pub past_deadline: u64,
    /// Transfers that were under way with nothing left to do.
    pub stuck_transfers: u64,
    /// Most answers that one step continued.
    pub decodes_peak: u64,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Of prompts, in blocks that had been computed before.
    pub reusable: u64,
    /// Of prompts, taken from the cache.
    pub reused: u64,
    /// Of prompts, computed.
    pub computed: u64,
    /// Of answers.
    pub generated: u64,
}

/// Pages moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// From host to device.
    pub reloaded: u64,
    /// From device to host.
    pub offloaded: u64,
    /// To the peer, a part of a transfer each.
    pub sent: u64,
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Values.
    pub count: u64,
    /// Half are not above.
    pub p50: u64,
    /// 9 of 10 are not above.
    pub p90: u64,
    /// 99 of 100 are not above.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Percentiles {
    /// Of a list of values, by nearest rank.
    pub fn of(values: &[u64]) -> Percentiles {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let rank = |percent: usize| match sorted.len() {
            0 => 0,
            count => sorted[(count * percent).div_ceil(100).clamp(1, count) - 1],
        };
        Percentiles { count: sorted.len() as u64, p50: rank(50), p90: rank(90), p99: rank(99), max: rank(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list_by_nearest_rank() {
        let values: Vec<u64> = (1..=200).rev().collect();
        let found = Percentiles::of(&values);
        assert_eq!(found, Percentiles { count: 200, p50: 100, p90: 180, p99: 198, max: 200 });
        assert_eq!(Percentiles::of(&[]), Percentiles::default());
        assert_eq!(Percentiles::of(&[7]), Percentiles { count: 1, p50: 7, p90: 7, p99: 7, max: 7 });
    }
}
