//! What the explorer says of a scenario: as written, with all rules on, and which rules are to blame.

use std::path::PathBuf;
use std::time::Duration;

use kvweft_core::{Manager, RuleSet};
use kvweft_trace::TraceFile;
use kvweft_world::Action;

use crate::build::{CacheSystem, build_with, scenario_drops};
use crate::explore::{
    Checkpoint, CheckpointError, Options, Outcome, Progress, Verdict, WantedProperties, explore_from, explore_with,
    fingerprint,
};
use crate::record::{Origin, record};
use crate::scenario::{self, Scenario};
use crate::trace::Trace;

/// How scenarios are checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How each world is explored. The scenario's own limit on states applies as well.
    pub explore: Options,
    /// Rules to drop in place of those that the scenario drops, as texts and as a set.
    pub drop: Option<(Vec<String>, RuleSet)>,
    /// Check these properties only, in place of the scenario's choice.
    pub only: Option<Vec<String>>,
    /// Another grain than the scenario's.
    pub grain: Option<scenario::Grain>,
}

/// A property broken by a minimal set of dropped rules.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The rules, as `rule` or `rule@site`; empty if it is broken with every rule on.
    pub drops: Vec<String>,
    /// The shortest trace.
    pub trace: Trace<Action>,
    /// The trace in words.
    pub file: TraceFile,
}

/// What was found out about a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rules dropped as written, or by the caller.
    pub drops: Vec<String>,
    /// The search with those rules dropped.
    pub as_written: Outcome<Action>,
    /// The search with every rule on; `None` where nothing was dropped (it is the same search), or where the caller chose
    /// the rules.
    pub all_rules: Option<Outcome<Action>>,
    /// One shortest trace per property and minimal set of dropped rules.
    pub causes: Vec<Cause>,
    /// Where the report differs from what the scenario expects.
    pub unexpected: Vec<String>,
}

impl Report {
    /// Whether a limit stopped one of the searches before it found anything.
    pub fn inconclusive(&self) -> bool {
        let all = self.all_rules.iter().chain([&self.as_written]);
        all.into_iter().any(|outcome| matches!(outcome.verdict, Verdict::Inconclusive { .. }))
    }

    /// The names of the properties broken as written.
    pub fn violates(&self) -> Vec<&'static str> {
        self.as_written.traces.iter().map(|trace| trace.violation.property).collect()
    }
}

/// Where the searches of scenarios keep their checkpoints.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// A folder that is there; each search has a file in it.
    pub folder: PathBuf,
    /// The least time between two checkpoints of a search.
    pub every: Duration,
}

/// Checks one scenario.
pub fn check(scenario: &Scenario, settings: &Settings, progress: &dyn Fn(&Progress)) -> Report {
    check_from(scenario, settings, progress, None).unwrap_or_else(|_| unreachable!("only checkpoints fail"))
}

/// As [`check`], and each search goes on from its checkpoint, if there is one, and keeps one.
///
/// # Errors
/// If a checkpoint cannot be read or written, or is not of the search that is run.
pub fn check_from(
    scenario: &Scenario,
    settings: &Settings,
    progress: &dyn Fn(&Progress),
    checkpoints: Option<&Checkpoints>,
) -> Result<Report, CheckpointError> {
    let (drops, set) = match &settings.drop {
        Some((texts, set)) => (texts.clone(), *set),
        None => (scenario.drop.iter().map(ToString::to_string).collect(), scenario_drops(scenario)),
    };
    let run = Run { scenario, settings, progress };
    let as_written = run.explore_from(&drops, set, checkpoints)?;
    let again = settings.drop.is_none() && !set.is_empty();
    let all_rules = again.then(|| run.explore_from(&[], RuleSet::EMPTY, checkpoints)).transpose()?;
    let causes = run.causes(&drops, set, &as_written, checkpoints)?;
    let mut report = Report { drops, as_written, all_rules, causes, unexpected: Vec::new() };
    report.unexpected = unexpected(scenario, settings, &report);
    Ok(report)
}

/// Searches of one scenario with this or that dropped.
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) settings: &'a Settings,
    pub(crate) progress: &'a dyn Fn(&Progress),
}

impl Run<'_> {
    pub(crate) fn system(&self, drops: RuleSet) -> CacheSystem {
        build_with(self.scenario, drops, self.settings.grain, kvweft_core::AllocationOrder::Ascending)
    }

    /// The options of each search: the settings' own, and what the scenario narrows.
    pub(crate) fn options(&self) -> Options {
        let mut options = self.settings.explore.clone();
        options.states_max = options.states_max.min(self.scenario.states_max);
        options.reduce |= self.scenario.reduce;
        let listed = self.settings.only.as_ref().unwrap_or(&self.scenario.properties);
        if !listed.is_empty() {
            options.want = WantedProperties::Listed(listed.clone());
        }
        options
    }

    pub(crate) fn explore(&self, drops: RuleSet) -> Outcome<Action> {
        explore_with(&self.system(drops), &self.options(), self.progress)
    }

    fn explore_from(
        &self,
        drops: &[String],
        set: RuleSet,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Outcome<Action>, CheckpointError> {
        let options = self.options();
        match checkpoints {
            // A reduced search is more than one search, and has no checkpoints.
            Some(checkpoints) if !options.reduce => {
                explore_from(&self.system(set), &options, self.progress, &self.checkpoint(checkpoints, drops))
            }
            _ => Ok(self.explore(set)),
        }
    }

    fn checkpoint(&self, checkpoints: &Checkpoints, drops: &[String]) -> Checkpoint {
        let dropped = if drops.is_empty() { "all-rules".to_owned() } else { drops.join("+") };
        let (name, digest) = (&self.scenario.name, self.scenario.digest());
        let mut file = format!("{name}.{dropped}");
        if file.len() > FILE_NAME_MAX {
            file = format!("{name}.{:032x}", fingerprint(dropped.as_bytes()));
        }
        Checkpoint {
            path: checkpoints.folder.join(file + ".checkpoint"),
            identity: format!(
                "kvweft {}, scenario {name} {digest}, dropped {dropped}, grain {:?}",
                env!("CARGO_PKG_VERSION"),
                self.settings.grain
            ),
            every: checkpoints.every,
        }
    }

    pub(crate) fn cause(&self, drops: &[String], set: RuleSet, trace: &Trace<Action>) -> Cause {
        let origin =
            Origin { scenario: self.scenario.name.clone(), digest: self.scenario.digest(), drops: drops.to_vec() };
        let file = record::<Manager>(&self.system(set), trace, &origin);
        Cause { drops: drops.to_vec(), trace: trace.clone(), file }
    }

    /// Single rules first; then pairs and more, for properties that no smaller set breaks.
    fn causes(
        &self,
        drops: &[String],
        set: RuleSet,
        whole: &Outcome<Action>,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Vec<Cause>, CheckpointError> {
        let mut causes = Vec::new();
        if drops.len() <= 1 {
            causes.extend(whole.traces.iter().map(|trace| self.cause(drops, set, trace)));
            return Ok(causes);
        }
        let mut unexplained: Vec<&str> = whole.traces.iter().map(|trace| trace.violation.property).collect();
        // Many rules have too many subsets: then singles and the whole set.
        let sizes = (1..=drops.len()).filter(|&size| drops.len() <= SUBSETS_OF_MAX || size == 1 || size == drops.len());
        for size in sizes {
            let mut explained = Vec::new();
            for subset in subsets(drops, size) {
                if size > 1 && unexplained.is_empty() {
                    break;
                }
                let texts: Vec<String> = subset.iter().map(|&at| drops[at].clone()).collect();
                let set = crate::build::dropped(texts.iter().map(String::as_str)).expect("looked up before");
                let found =
                    if size == drops.len() { whole.clone() } else { self.explore_from(&texts, set, checkpoints)? };
                for trace in &found.traces {
                    if size == 1 || unexplained.contains(&trace.violation.property) {
                        causes.push(self.cause(&texts, set, trace));
                        explained.push(trace.violation.property);
                    }
                }
            }
            unexplained.retain(|property| !explained.contains(property));
        }
        Ok(causes)
    }
}

/// Letters of the name of a checkpoint, beyond which dropped rules are told apart by a hash.
const FILE_NAME_MAX: usize = 200;

/// Rules of which all subsets are tried.
const SUBSETS_OF_MAX: usize = 6;

/// The subsets of a list of a given size, as positions, in order.
fn subsets(items: &[String], size: usize) -> Vec<Vec<usize>> {
    if size == items.len() {
        return vec![(0..items.len()).collect()];
    }
    if size == 1 {
        return (0..items.len()).map(|at| vec![at]).collect();
    }
    let masks = 0u32..1 << items.len();
    let chosen = masks.filter(|mask| mask.count_ones() as usize == size);
    chosen.map(|mask| (0..items.len()).filter(|&at| mask >> at & 1 == 1).collect()).collect()
}

/// The differences between a report and what its scenario expects. Under the caller's own choice of rules, properties or
/// grain, what is expected is that everything holds; numbers of states are then not compared. Nor are they in a reduced
/// search that the scenario does not ask for.
fn unexpected(scenario: &Scenario, settings: &Settings, report: &Report) -> Vec<String> {
    let mut differences = Vec::new();
    if report.inconclusive() {
        return differences;
    }
    if let Some(all_rules) = &report.all_rules
        && all_rules.verdict != Verdict::Holds
    {
        let broken: Vec<&str> = all_rules.traces.iter().map(|trace| trace.violation.property).collect();
        differences.push(format!("with every rule on it violates {}", broken.join(", ")));
    }
    let violates = report.violates();
    if settings.drop.is_some() {
        if !violates.is_empty() {
            differences.push(format!("it violates {}", violates.join(", ")));
        }
        return differences;
    }
    let Some(expect) = &scenario.expect else {
        if scenario.drop.is_empty() && !violates.is_empty() {
            differences.push(format!("it violates {}", violates.join(", ")));
        }
        return differences;
    };
    if let Some(only) = &settings.only {
        let expected: Vec<&str> =
            expect.violates.iter().map(String::as_str).filter(|property| only.iter().any(|o| o == property)).collect();
        if violates != expected {
            differences.push(format!(
                "expected to violate [{}], violates [{}]",
                expected.join(", "),
                violates.join(", ")
            ));
        }
        return differences;
    }
    // A finer grain may show the same defect in more ways; it must not change the verdict.
    if settings.grain.is_some() {
        let lost = expect.violates.iter().filter(|property| !violates.contains(&property.as_str()));
        let lost: Vec<&str> = lost.map(String::as_str).collect();
        let (holds, expected) = (violates.is_empty(), expect.violates.is_empty());
        if !lost.is_empty() || holds != expected {
            differences.push(format!("at this grain it no longer violates [{}]", lost.join(", ")));
        }
        return differences;
    }
    if violates != expect.violates {
        differences.push(format!(
            "expected to violate [{}], violates [{}]",
            expect.violates.join(", "),
            violates.join(", ")
        ));
    }
    let all_rules = report.all_rules.as_ref().unwrap_or(&report.as_written);
    if settings.explore.reduce && !scenario.reduce {
        return differences;
    }
    let counts = [
        ("as written", expect.states, report.as_written.counts.states),
        ("with every rule on", expect.states_all_rules, all_rules.counts.states),
    ];
    for (what, expected, found) in counts {
        if expected.is_some_and(|expected| expected != found) {
            differences.push(format!("expected {} states {what}, found {found}", expected.unwrap_or_default()));
        }
    }
    differences
}

#[cfg(all(test, feature = "scenario-files"))]
mod tests {
    use super::*;
    use crate::build::with_names;
    use crate::scenario::load_embedded_one;

    #[test]
    fn whatever_differs_from_what_is_expected_is_told() {
        let scenario =
            with_names(|names| load_embedded_one("handover", names)).expect("it is built in").expect("it is good");
        let settings =
            Settings { explore: Options { threads: 1, ..Options::default() }, drop: None, only: None, grain: None };
        let report = check(&scenario, &settings, &|_| ());
        let told = |scenario: &Scenario, report: &Report| unexpected(scenario, &settings, report);
        assert_eq!(told(&scenario, &report), Vec::<String>::new());
        let changed = |change: &dyn Fn(&mut Scenario)| {
            let mut scenario = scenario.clone();
            change(&mut scenario);
            told(&scenario, &report)
        };
        let expect = |scenario: &mut Scenario| scenario.expect.clone().expect("it expects something");
        let fewer = changed(&|it| it.expect = Some(crate::scenario::Expect { states: Some(281), ..expect(it) }));
        assert_eq!(fewer, ["expected 281 states as written, found 282"]);
        let fewer =
            changed(&|it| it.expect = Some(crate::scenario::Expect { states_all_rules: Some(1), ..expect(it) }));
        assert_eq!(fewer, ["expected 1 states with every rule on, found 230"]);
        let none = changed(&|it| it.expect = Some(crate::scenario::Expect { violates: Vec::new(), ..expect(it) }));
        assert_eq!(none.len(), 1, "{none:?}");
        assert!(none[0].starts_with("expected to violate [], violates [done-means-arrived, "), "{none:?}");
        // As if the manager were wrong: with every rule on, and where a file drops none and expects nothing.
        let wrong = Report { all_rules: Some(report.as_written.clone()), ..report.clone() };
        assert!(told(&scenario, &wrong)[0].starts_with("with every rule on it violates done-means-arrived, "));
        let plain = changed(&|it| (it.expect, it.drop) = (None, Vec::new()));
        assert!(plain.len() == 1 && plain[0].starts_with("it violates "), "{plain:?}");
        let only = Settings { only: Some(vec!["every-request-ends".to_owned()]), ..settings.clone() };
        assert_eq!(unexpected(&scenario, &only, &report).len(), 1);
    }
}
