//! What to explore, how far, and with what.

use crate::system::{System, Violation};

/// How a search is run. Apart from its limits, no option changes a count or a trace by way of timing: the same options
/// give the same outcome at any number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Worker threads, at least 1. Changes nothing but the speed: more than the default of 1 pay where steps are dear.
    pub threads: usize,
    /// The search stops, inconclusive, rather than store more states than this.
    pub states_max: u64,
    /// The search stops, inconclusive, rather than let its tables grow beyond this. Tables are the visited set, the
    /// parents and, with `liveness`, the graph; the states of the two newest levels come on top.
    pub table_bytes_max: u64,
    /// Store and compare whole encodings in place of trusting 128-bit fingerprints.
    pub exact: bool,
    /// Which properties count; the others are treated as if the system had not reported them.
    pub want: WantedProperties,
    /// Stop right after the first step that breaks a wanted property, with one trace per property of that step.
    /// Liveness is then judged only if there was no such step.
    pub stop_at_first: bool,
    /// Judge liveness when the search has seen every state.
    pub liveness: bool,
    /// Whether the search goes on through every step that broke a wanted property. If not (the default), it goes on only
    /// where the system [survives](crate::system::System::survives) what was broken. Any other such step is counted and
    /// gives its trace, but the state behind it is neither stored nor explored on account of that step, and liveness
    /// takes it for a way out: what would have come after it is unknown.
    pub expand_violating: bool,
    /// Search a part of the system that has the same verdict for every property: see [`crate::reduce`]. Judges liveness in
    /// any case.
    pub reduce: bool,
    /// Keep the steps of every class, not only of System, and say in [`Outcome::acyclic`](super::Outcome::acyclic) whether
    /// they go round. Needs `liveness`.
    pub all_steps: bool,
}

impl Options {
    /// Whether the search leaves the system at a step that broke `violations`.
    pub(crate) fn ends_at<'a, S: System>(
        &self,
        system: &S,
        violations: impl IntoIterator<Item = &'a Violation>,
    ) -> bool {
        let ends = |violation: &Violation| self.want.wants(violation.property) && !system.survives(violation);
        !self.expand_violating && violations.into_iter().any(ends)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            states_max: 100_000_000,
            table_bytes_max: 4 << 30,
            exact: false,
            want: WantedProperties::All,
            stop_at_first: false,
            liveness: true,
            expand_violating: false,
            reduce: false,
            all_steps: false,
        }
    }
}

/// Which properties count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedProperties {
    /// Every property that the system reports.
    All,
    /// Those named.
    Listed(Vec<String>),
}

impl WantedProperties {
    /// Whether `property` counts.
    pub fn wants(&self, property: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.iter().any(|name| name == property),
        }
    }
}
