//! Reduced searches of the whole suite against full ones. `model/check/tests/random_worlds` does the same with worlds by lot.

use kvweft_check::build::{CacheSystem, build, scenario_drops, with_names};
use kvweft_check::explore::{Options, Outcome, WantedProperties, explore};
use kvweft_check::reduce::Reduction;
use kvweft_check::scenario::{self, Scenario};
use kvweft_check::system::{Found, System};
use kvweft_check::trace::replay;
use kvweft_core::RuleSet;
use kvweft_world::Action;

fn options(scenario: &Scenario) -> Options {
    let want = match &scenario.properties[..] {
        [] => WantedProperties::All,
        listed => WantedProperties::Listed(listed.to_vec()),
    };
    Options { threads: 1, want, ..Options::default() }
}

fn broken(outcome: &Outcome<Action>) -> Vec<&'static str> {
    outcome.traces.iter().map(|trace| trace.violation.property).collect()
}

/// Each trace can be taken in the world, and its end breaks what it says.
fn check_traces(system: &CacheSystem, outcome: &Outcome<Action>, what: &str) {
    for trace in &outcome.traces {
        let states = replay(system, &trace.steps).expect(what);
        if trace.dooming_step.is_some() {
            let owed = system.owed(states.last().expect("an end"));
            assert!(owed.contains(&trace.violation), "{what}");
        } else {
            let (mut state, last) = (states[states.len() - 2].clone(), trace.steps.last().expect("a step"));
            let mut found = Found::default();
            system.step(&mut state, last, &mut found);
            assert!(found.violations.contains(&trace.violation), "{what}");
        }
    }
}

#[test]
fn the_whole_suite_has_the_same_verdicts_with_reductions_and_fewer_states() {
    let scenarios = with_names(scenario::load_embedded).expect("the built-in scenarios are right");
    let mut twenty_times = Vec::new();
    let (mut times, mut searches) = (1.0f64, 0);
    for scenario in scenarios.iter().filter(|scenario| !scenario.reduce) {
        for drops in [scenario_drops(scenario), RuleSet::EMPTY] {
            let system = build(scenario, drops);
            let options = options(scenario);
            let whole = explore(&system, &options);
            let reduced = explore(&system, &Options { reduce: true, ..options });
            assert_eq!(broken(&whole), broken(&reduced), "{}", scenario.name);
            assert!(matches!(reduced.reduction, Some(Reduction::Applied { .. })), "{}", scenario.name);
            check_traces(&system, &reduced, &scenario.name);
            let fewer = whole.counts.states as f64 / reduced.counts.states as f64;
            if fewer >= 20.0 && !twenty_times.contains(&scenario.name.as_str()) {
                twenty_times.push(&scenario.name);
            }
            times *= fewer;
            searches += 1;
        }
    }
    let mean = times.powf(1.0 / f64::from(searches));
    assert!(mean > 6.0, "expected less than a sixth of the states, got a geometric mean of {mean:.2}");
    assert!(twenty_times.len() >= 3, "expected three contended scenarios, got {twenty_times:?}");
}
