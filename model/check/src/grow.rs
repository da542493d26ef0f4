//! The worlds next to a scenario's: one more of each dimension, and which dimension to take from when a search runs out.

use kvweft_core::RuleSet;
use kvweft_world::Action;

use crate::build::scenario_drops;
use crate::explore::{Options, Outcome, Progress};
use crate::extent::Dimension;
use crate::plan::{Estimate, estimate};
use crate::scenario::Scenario;
use crate::verdict::{Run, Settings};

/// A world one larger than the scenario's.
#[derive(Clone, Debug)]
pub struct Grown {
    /// In what.
    pub dimension: Dimension,
    /// How many the scenario has.
    pub from: u32,
    /// What was found.
    pub outcome: Outcome<Action>,
}

/// A scenario and the worlds next to it.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// The scenario's own.
    pub as_written: Outcome<Action>,
    /// One more of each dimension that can have one more.
    pub grown: Vec<Grown>,
}

/// Searches the scenario's world and each one next to it.
pub fn grow(scenario: &Scenario, settings: &Settings, progress: &dyn Fn(&Progress)) -> Neighbours {
    let drops = drops(scenario, settings);
    let explore = |scenario: &Scenario| Run { scenario, settings, progress }.explore(drops);
    let grown = Dimension::ALL.into_iter().filter_map(|dimension| {
        let larger = dimension.grown(scenario)?;
        Some(Grown { dimension, from: dimension.of(scenario), outcome: explore(&larger) })
    });
    Neighbours { as_written: explore(scenario), grown: grown.collect() }
}

/// What a search of a scenario will cost.
pub fn plan(scenario: &Scenario, settings: &Settings) -> Estimate {
    let run = Run { scenario, settings, progress: &|_| () };
    estimate(&run.system(drops(scenario, settings)), &Options { states_max: u64::MAX, ..run.options() })
}

/// The dimension that makes a scenario smallest by having one less, how many it has, and what is left then; `None` if
/// nothing makes it smaller.
pub fn shrink_first(scenario: &Scenario, settings: &Settings) -> Option<(Dimension, u32, Estimate)> {
    let now = plan(scenario, settings).states;
    let smaller = Dimension::ALL.into_iter().filter_map(|dimension| {
        let smaller = dimension.shrunk(scenario)?;
        Some((dimension, dimension.of(scenario), plan(&smaller, settings)))
    });
    smaller.filter(|(.., estimate)| estimate.states < now).min_by_key(|(dimension, _, e)| (e.states, *dimension))
}

fn drops(scenario: &Scenario, settings: &Settings) -> RuleSet {
    settings.drop.as_ref().map_or_else(|| scenario_drops(scenario), |(_, set)| *set)
}
