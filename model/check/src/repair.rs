//! Which of the dropped rules are to blame, and which of them would make a scenario hold.
//!
//! Every subset of the dropped rules is searched. Nothing shorter is right: to keep one rule more can break a property
//! that held before, as the fix of a corruption often breeds a hang.

use std::collections::BTreeSet;

use kvweft_core::RuleSet;

use crate::build::{dropped, scenario_drops};
use crate::explore::{Outcome, Progress, Verdict};
use crate::scenario::Scenario;
use crate::verdict::{Cause, Run, Settings};

/// The most rules of which all subsets are searched.
pub const RULES_MAX: usize = 10;

/// A set of the dropped rules, one bit each.
type Mask = u32;

/// What was found out about the dropped rules of a scenario.
#[derive(Clone, Debug)]
pub struct Repair {
    /// The dropped rules.
    pub drops: Vec<String>,
    /// How many sets of them were searched: all.
    pub sets: u64,
    /// States of all those searches.
    pub states: u64,
    /// Every property that some set breaks, by name.
    pub properties: Vec<Repaired>,
    /// The minimal sets of rules that make the whole scenario hold when they are kept again. Empty if nothing does.
    pub whole: Vec<Kept>,
    /// Properties that are broken as written, in groups: two properties whose minimal breaking sets share a rule are in one
    /// group. No rule is in two groups, so symptoms of different groups have different causes.
    pub groups: Vec<Group>,
    /// Sets whose search ended at a limit: nothing that rests on them is known.
    pub unknown: Vec<Vec<String>>,
}

/// One property.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// Its name.
    pub property: &'static str,
    /// Whether it is broken with all the rules dropped. If not, it breaks when some of them are kept again.
    pub as_written: bool,
    /// The minimal sets of dropped rules that break it, each with its shortest trace.
    pub breaking: Vec<Cause>,
    /// The minimal sets of rules that make it hold when they are kept again.
    pub kept: Vec<Kept>,
}

/// Rules that are kept again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The rules.
    pub rules: Vec<String>,
    /// Rules each of which, kept as well, breaks it again.
    pub undone_by: Vec<String>,
}

/// Properties and rules that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The properties.
    pub properties: Vec<&'static str>,
    /// The rules of their minimal breaking sets.
    pub rules: Vec<String>,
}

/// Why nothing was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRepair {
    /// There is nothing to blame.
    #[error("no rule is dropped, so there is none to keep again")]
    NothingDropped,
    /// The subsets are too many.
    #[error("expected at most {RULES_MAX} dropped rules, whose subsets are all searched, got {0}")]
    TooMany(usize),
}

/// Searches every subset of the dropped rules.
///
/// # Errors
/// If none is dropped, or too many.
pub fn repair(scenario: &Scenario, settings: &Settings, progress: &dyn Fn(&Progress)) -> Result<Repair, NoRepair> {
    let (drops, set) = match &settings.drop {
        Some((texts, set)) => (texts.clone(), *set),
        None => (scenario.drop.iter().map(ToString::to_string).collect(), scenario_drops(scenario)),
    };
    if set.is_empty() {
        return Err(NoRepair::NothingDropped);
    }
    if drops.len() > RULES_MAX {
        return Err(NoRepair::TooMany(drops.len()));
    }
    let run = Run { scenario, settings, progress };
    let subsets = Subsets::search(&run, drops);
    Ok(subsets.judge(&run))
}

/// The outcome of every subset, by mask.
struct Subsets {
    drops: Vec<String>,
    outcomes: Vec<Outcome<kvweft_world::Action>>,
}

impl Subsets {
    fn search(run: &Run<'_>, drops: Vec<String>) -> Self {
        let mut subsets = Self { drops, outcomes: Vec::new() };
        for mask in 0..1 << subsets.drops.len() {
            let outcome = run.explore(subsets.rules(mask));
            subsets.outcomes.push(outcome);
        }
        subsets
    }

    fn judge(&self, run: &Run<'_>) -> Repair {
        let broken: BTreeSet<&'static str> =
            self.outcomes.iter().flat_map(|outcome| &outcome.traces).map(|trace| trace.violation.property).collect();
        let properties: Vec<Repaired> = broken.into_iter().map(|property| self.repaired(run, property)).collect();
        let unknown = (0..self.count()).filter(|&mask| !self.outcomes[mask as usize].exhausted);
        Repair {
            sets: u64::from(self.count()),
            states: self.outcomes.iter().map(|outcome| outcome.counts.states).sum(),
            whole: self.kept(|mask| self.outcomes[mask as usize].verdict == Verdict::Holds),
            groups: groups(&properties),
            properties,
            unknown: unknown.map(|mask| self.texts(mask)).collect(),
            drops: self.drops.clone(),
        }
    }

    fn repaired(&self, run: &Run<'_>, property: &'static str) -> Repaired {
        let breaks = |mask: Mask| self.outcomes[mask as usize].trace(property).is_some();
        let breaking = minimal((0..self.count()).filter(|&mask| breaks(mask)));
        let cause = |mask: Mask| {
            let trace = self.outcomes[mask as usize].trace(property).expect("it breaks it");
            run.cause(&self.texts(mask), self.rules(mask), trace)
        };
        Repaired {
            property,
            as_written: breaks(self.count() - 1),
            breaking: breaking.into_iter().map(cause).collect(),
            kept: self.kept(|mask| !breaks(mask)),
        }
    }

    /// The minimal sets to keep so that what is left to drop `holds`.
    fn kept(&self, holds: impl Fn(Mask) -> bool) -> Vec<Kept> {
        let all = self.count() - 1;
        let minimal = minimal((0..self.count()).filter(|&kept| holds(all & !kept)));
        let kept = minimal.into_iter().map(|kept| Kept {
            rules: self.texts(kept),
            undone_by: (0..self.drops.len())
                .filter(|&at| kept >> at & 1 == 0 && !holds(all & !(kept | 1 << at)))
                .map(|at| self.drops[at].clone())
                .collect(),
        });
        kept.collect()
    }

    fn count(&self) -> Mask {
        1 << self.drops.len()
    }

    fn texts(&self, mask: Mask) -> Vec<String> {
        (0..self.drops.len()).filter(|&at| mask >> at & 1 == 1).map(|at| self.drops[at].clone()).collect()
    }

    fn rules(&self, mask: Mask) -> RuleSet {
        dropped(self.texts(mask).iter().map(String::as_str)).expect("looked up before")
    }
}

/// Those that hold no other, small ones first.
fn minimal(masks: impl Iterator<Item = Mask>) -> Vec<Mask> {
    let mut all: Vec<Mask> = masks.collect();
    all.sort_by_key(|mask| (mask.count_ones(), *mask));
    let mut minimal: Vec<Mask> = Vec::new();
    for mask in all {
        if minimal.iter().all(|&smaller| smaller & mask != smaller) {
            minimal.push(mask);
        }
    }
    minimal
}

fn groups(properties: &[Repaired]) -> Vec<Group> {
    let mut groups: Vec<(BTreeSet<&'static str>, BTreeSet<String>)> = Vec::new();
    for repaired in properties.iter().filter(|repaired| repaired.as_written) {
        let rules: BTreeSet<String> = repaired.breaking.iter().flat_map(|cause| cause.drops.clone()).collect();
        let mut joined = (BTreeSet::from([repaired.property]), rules);
        groups.retain(|group| {
            let apart = group.1.is_disjoint(&joined.1);
            if !apart {
                joined.0.extend(&group.0);
                joined.1.extend(group.1.iter().cloned());
            }
            apart
        });
        groups.push(joined);
    }
    groups.sort();
    groups
        .into_iter()
        .map(|(properties, rules)| Group {
            properties: properties.into_iter().collect(),
            rules: rules.into_iter().collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimal_sets_hold_no_other_one_also_where_failure_is_not_monotone() {
        assert_eq!(minimal([0b110, 0b111, 0b010, 0b101].into_iter()), [0b010, 0b101]);
        assert_eq!(minimal([0b111].into_iter()), [0b111]);
        assert_eq!(minimal([0b011, 0b000].into_iter()), [0b000]);
        assert_eq!(minimal(std::iter::empty()), Vec::<Mask>::new());
    }
}
