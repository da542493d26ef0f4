//! Worlds in parts are searched exactly as whole ones.

use kvweft_check::build::{CacheSystem, build, scenario_drops, with_names};
use kvweft_check::explore::{Options, Outcome, explore};
use kvweft_check::scenario::load_embedded_one;
use kvweft_check::system::{Found, System};
use kvweft_core::RuleSet;
use kvweft_world::Action;

/// Two engines with losses, aborts, retries, resets, failures and duplicates between them; and worlds of one engine.
const SCENARIOS: [&str; 9] = [
    "abort-at-prefill",
    "case-all-causes",
    "contended-reload",
    "duplicate-report",
    "handover-queue",
    "late-failure-after-success",
    "lost-abort",
    "part-failure",
    "reset-of-decode",
];

fn systems() -> impl Iterator<Item = (&'static str, CacheSystem)> {
    SCENARIOS.into_iter().flat_map(|name| {
        let scenario = with_names(|known| load_embedded_one(name, known));
        let scenario = scenario.expect("the scenario is built in").expect("built-in scenarios are right");
        [scenario_drops(&scenario), RuleSet::EMPTY].map(|drops| (name, build(&scenario, drops)))
    })
}

fn assert_same(name: &str, whole: &Outcome<Action>, parts: &Outcome<Action>) {
    assert_eq!(whole.counts, parts.counts, "{name}");
    assert_eq!(whole.digest, parts.digest, "{name}");
    assert_eq!(whole.marks, parts.marks, "{name}");
    assert_eq!(whole.traces, parts.traces, "{name}");
}

#[test]
fn a_search_of_worlds_in_parts_numbers_the_same_states_and_finds_the_same() {
    for (name, system) in systems() {
        let whole = explore(&system, &Options::default());
        for threads in [1, 3] {
            let options = Options { threads, ..Options::default() };
            assert_same(name, &whole, &explore(&system.composed(), &options));
        }
    }
}

#[test]
fn a_search_that_can_remember_no_more_goes_on_with_whole_worlds() {
    for (name, system) in systems() {
        let whole = explore(&system, &Options::default());
        for answers_max in [0, 300] {
            assert_same(name, &whole, &explore(&system.composed_within(answers_max), &Options::default()));
        }
    }
}

/// Every question that a search asks, along every path of the first levels: no state is left out because it was seen.
#[test]
fn step_by_step_worlds_in_parts_are_the_whole_ones() {
    for (name, system) in systems() {
        let composed = system.composed();
        let mut level: Vec<_> = system.initial().into_iter().zip(composed.initial()).collect();
        for _ in 0..7 {
            let mut next = Vec::new();
            for (whole, parts) in level {
                let (mut actions, mut same) = (Vec::new(), Vec::new());
                system.enabled(&whole, &mut actions);
                composed.enabled(&parts, &mut same);
                assert_eq!(actions, same, "{name}");
                assert_eq!(system.done(&whole), composed.done(&parts), "{name}");
                assert_eq!(system.owed(&whole), composed.owed(&parts), "{name}");
                for action in actions {
                    assert_eq!(system.class(&whole, &action), composed.class(&parts, &action), "{name}");
                    let (mut whole, mut parts) = (whole.clone(), parts.clone());
                    let (mut found, mut found_too) = (Found::default(), Found::default());
                    system.step(&mut whole, &action, &mut found);
                    composed.step(&mut parts, &action, &mut found_too);
                    assert_eq!(
                        (found.violations, found.marks),
                        (found_too.violations, found_too.marks),
                        "{name} {action}"
                    );
                    let (mut encoding, mut same) = (Vec::new(), Vec::new());
                    system.encode(&whole, &mut encoding);
                    composed.encode(&parts, &mut same);
                    assert_eq!(encoding, same, "{name} {action}");
                    next.push((whole, parts));
                }
            }
            level = next;
        }
    }
}
