//! What a search found.

use std::fmt;

use crate::reduce::Reduction;
use crate::system::Marks;
use crate::trace::Trace;

/// The whole result of a search. Two searches with equal options (but for `threads`) have equal outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<A> {
    /// The answer.
    pub verdict: Verdict,
    /// Whether every reachable state was seen. False after a limit, and after `stop_at_first` stopped.
    pub exhausted: bool,
    /// Whether liveness was judged: it was asked for, and the search was exhausted.
    pub liveness_judged: bool,
    /// One trace per broken property, in order of the properties' names. Of all ways to break a property by a step, the
    /// shortest, then the one that comes first in the system's own order of actions. If both a step and an end state
    /// break a property, the step's trace is here.
    pub traces: Vec<Trace<A>>,
    /// How much was explored.
    pub counts: Counts,
    /// All marks of all steps.
    pub marks: Marks,
    /// How likely it is that the search missed a state.
    pub miss: MissProbability,
    /// In an exact search, how many states share their fingerprint with an earlier one; zero otherwise.
    pub fingerprint_collisions: u64,
    /// The most that the tables took, in bytes as filled: see [`crate::explore::Options::table_bytes_max`].
    pub table_bytes: u64,
    /// How a reduction went, if one was asked for.
    pub reduction: Option<Reduction>,
    /// Whether every run ends: no steps of any class go round. Known after an exhausted search with
    /// [`all_steps`](super::Options::all_steps).
    pub acyclic: Option<bool>,
    /// A hash over all states in the order of their numbers, with the parent and the action position of each. Equal
    /// digests mean that two searches numbered the same states in the same way.
    pub digest: u128,
}

impl<A> Outcome<A> {
    /// The trace that breaks `property`, if one was found.
    pub fn trace(&self, property: &str) -> Option<&Trace<A>> {
        self.traces.iter().find(|trace| trace.violation.property == property)
    }

    /// Bytes of the tables per state, rounded up; zero for an empty system.
    pub fn table_bytes_per_state(&self) -> u64 {
        if self.counts.states == 0 { 0 } else { self.table_bytes.div_ceil(self.counts.states) }
    }
}

/// The answer of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every reachable state was seen and no wanted property is broken.
    Holds,
    /// At least one wanted property is broken; if the search was not exhausted, more may be.
    Violated,
    /// Nothing is broken as far as the search went, which was not to the end.
    Inconclusive {
        /// What the search ran out of.
        ran_out_of: Limit,
    },
}

/// A limit that ends a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`crate::explore::Options::states_max`], or the most that can be numbered (1,610,612,736).
    States,
    /// [`crate::explore::Options::table_bytes_max`].
    Memory,
}

/// How much was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Distinct states, initial ones included; states that only a violating step leads to are not among them unless
    /// `expand_violating` is set.
    pub states: u64,
    /// Steps taken: every enabled action of every expanded state, whether or not its target was new.
    pub transitions: u64,
    /// The number of steps from an initial state to the farthest state that was expanded.
    pub depth: u64,
    /// States whose goal is reached, among those expanded.
    pub done_states: u64,
    /// Expanded states that are not done and in which no System action is enabled; counted with `liveness` only.
    pub stuck_states: u64,
    /// States from which no done state is in reach over System actions, stuck ones included; zero unless liveness was
    /// judged.
    pub doomed_states: u64,
    /// Steps that broke a wanted property.
    pub violating_steps: u64,
}

/// How likely it is that a search missed a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissProbability {
    /// It cannot have: whole encodings were compared.
    Zero,
    /// Less than 2 to this power, if fingerprints behave as random numbers: n states, n²/2¹²⁹.
    Below {
        /// The power of two.
        exponent: i32,
    },
}

impl MissProbability {
    /// For `states` states told apart by 128-bit fingerprints.
    pub fn of_fingerprints(states: u64) -> Self {
        let bits = match states {
            0 | 1 => 0,
            more => 64 - (more - 1).leading_zeros() as i32,
        };
        Self::Below { exponent: 2 * bits - 129 }
    }
}

impl fmt::Display for MissProbability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("0"),
            Self::Below { exponent } => write!(f, "< 2^{exponent}"),
        }
    }
}

/// How far a running search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Distinct states so far.
    pub states: u64,
    /// Steps taken so far.
    pub transitions: u64,
    /// States of the current level that are still to be expanded.
    pub frontier: u64,
    /// The depth of the current level.
    pub depth: u64,
    /// Bytes that the tables take.
    pub table_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_of_a_miss_is_rounded_up_to_a_power_of_two() {
        let text = |states| MissProbability::of_fingerprints(states).to_string();
        assert_eq!(text(0), "< 2^-129");
        assert_eq!(text(1), "< 2^-129");
        assert_eq!(text(2), "< 2^-127");
        assert_eq!(text(1 << 19), "< 2^-91");
        assert_eq!(text((1 << 19) + 1), "< 2^-89");
        assert_eq!(MissProbability::Zero.to_string(), "0");
    }
}
