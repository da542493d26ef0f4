//! What the explorer says.

use std::num::NonZeroU16;

use kvweft_check::build::build;
use kvweft_check::explore::{Options, Verdict, WantedProperties, explore};

use super::matrix::Row;

/// The verdict on a configuration.
pub(super) struct Explored {
    pub(super) verdict: Verdict,
    pub(super) states: u64,
    /// The properties that are broken, each with the steps of its shortest trace.
    pub(super) violates: Vec<(&'static str, usize)>,
}

impl Explored {
    pub(super) fn holds(&self) -> bool {
        self.verdict == Verdict::Holds
    }

    pub(super) fn inconclusive(&self) -> bool {
        matches!(self.verdict, Verdict::Inconclusive { .. })
    }

    /// The property that says most: a read of wrong content, else the one that is broken soonest.
    pub(super) fn shown(&self) -> Option<(&'static str, usize)> {
        let reads = self.violates.iter().find(|(property, _)| *property == "reads-see-own-content");
        reads.or_else(|| self.violates.iter().min_by_key(|(_, steps)| *steps)).copied()
    }
}

/// Explores every interleaving of the row's scenario.
pub(super) fn explore_row(row: &Row, threads: Option<NonZeroU16>) -> Explored {
    let mut options =
        Options { states_max: row.scenario.states_max, reduce: row.scenario.reduce, ..Options::default() };
    if let Some(threads) = threads {
        options.threads = usize::from(threads.get());
    }
    if !row.scenario.properties.is_empty() {
        options.want = WantedProperties::Listed(row.scenario.properties.clone());
    }
    let outcome = explore(&build(&row.scenario, row.drops), &options);
    let violates = outcome.traces.iter().map(|trace| (trace.violation.property, trace.steps.len())).collect();
    Explored { verdict: outcome.verdict, states: outcome.counts.states, violates }
}
