//! Less than every interleaving of a scenario: for worlds that are too large, and for a first look.

use crate::build::scenario_drops;
use crate::deviations::{Deviating, Deviation};
use crate::explore::{Options, Progress, explore_with};
use crate::scenario::Scenario;
use crate::verdict::{Cause, Run, Settings};
use crate::walk::{Walks, walk};

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Every interleaving that deviates at most so many times: see [`crate::deviations`].
    Deviations(Deviation, u32),
    /// Random walks.
    Walks(Walks),
}

/// What was found on the way.
#[derive(Clone, Debug)]
pub struct Bounded {
    /// The rules that were dropped.
    pub drops: Vec<String>,
    /// One counterexample for each property that was seen broken, by name.
    pub causes: Vec<Cause>,
    /// Exactly what was seen, in one line.
    pub covered: String,
    /// Distinct states; of a bounded search, those in which what is left of the bound counts.
    pub states: u64,
    /// Steps taken.
    pub steps: u64,
}

/// Goes as far as `bound`. Nothing found means nothing but that.
pub fn bounded(scenario: &Scenario, settings: &Settings, bound: Bound, progress: &dyn Fn(&Progress)) -> Bounded {
    let (drops, set) = match &settings.drop {
        Some((texts, set)) => (texts.clone(), *set),
        None => (scenario.drop.iter().map(ToString::to_string).collect(), scenario_drops(scenario)),
    };
    let run = Run { scenario, settings, progress };
    let system = run.system(set);
    let (traces, covered, states, steps) = match bound {
        Bound::Walks(walks) => {
            let walked = walk(&system, &walks, &run.options());
            let covered = walked.covered;
            (walked.traces, covered.to_string(), covered.states, covered.steps)
        }
        Bound::Deviations(deviation, most) => {
            let options = Options { liveness: false, reduce: false, ..run.options() };
            let outcome = explore_with(&Deviating { system: &system, deviation, most }, &options, progress);
            let counts = outcome.counts;
            let extent =
                if outcome.exhausted { "every interleaving" } else { "a limit came first: not every interleaving" };
            let within = match deviation {
                Deviation::Delay => {
                    format!("that passes over at most {most} actions of the order in which the world lists them")
                }
                Deviation::Preemption => format!("in which at most {most} actors are interrupted that could go on"),
            };
            let covered = format!(
                "{extent} {within}: {} states, {} steps; liveness was not judged, and other orders of events were not seen",
                counts.states, counts.transitions
            );
            (outcome.traces, covered, counts.states, counts.transitions)
        }
    };
    let causes = traces.iter().map(|trace| run.cause(&drops, set, trace)).collect();
    Bounded { drops, causes, covered, states, steps }
}
