//! The same verdicts, whole and reduced.

use std::collections::BTreeSet;

use kvweft_check::build::CacheSystem;
use kvweft_check::explore::{Options, Outcome, Verdict, explore};
use kvweft_check::reduce::Reduction;
use kvweft_check::system::{Class, Found, System};
use kvweft_check::trace::replay;
use kvweft_core::Manager;
use kvweft_world::{Action, World};

use crate::worlds::{Lot, Numbers, wanted, world};

/// Larger worlds are left out.
const STATES_MAX: u64 = 600;

/// What the worlds were like.
#[derive(Debug, Default)]
struct Seen {
    compared: u64,
    holding: u64,
    stuck: u64,
    stepping: u64,
    refuted: u64,
    whole: u64,
    reduced: u64,
}

/// Each trace can be taken in the world, and its end breaks what it says.
fn check_traces(lot: &Lot, outcome: &Outcome<Action>) {
    let system = &lot.system;
    for trace in &outcome.traces {
        let states = replay(system, &trace.steps).expect(&lot.text);
        if let Some(start) = trace.loop_from {
            let bits = |state| {
                let mut out = Vec::new();
                system.encode(state, &mut out);
                out
            };
            assert!(bits(&states[start]) == bits(states.last().expect("an end")), "{}", lot.text);
        } else if let Some(step) = trace.dooming_step {
            let owed = system.owed(states.last().expect("an end"));
            assert!(owed.contains(&trace.violation), "{}", lot.text);
            assert!(!has_way_out(system, &states[step], false), "done is within reach: {}", lot.text);
            assert!(step == 0 || has_way_out(system, &states[step - 1], true), "doomed before: {}", lot.text);
        } else {
            let (mut state, last) = (states[states.len() - 2].clone(), trace.steps.last().expect("a step"));
            let mut found = Found::default();
            system.step(&mut state, last, &mut found);
            assert!(found.violations.contains(&trace.violation), "{}", lot.text);
        }
    }
}

/// Whether `System` steps alone lead to a done state; if `broken`, a step that breaks something is a way out too, since the
/// search may have stopped behind it.
fn has_way_out(system: &CacheSystem, from: &World<Manager>, broken: bool) -> bool {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(state) = todo.pop() {
        if system.done(&state) {
            return true;
        }
        let (mut key, mut actions) = (Vec::new(), Vec::new());
        system.encode(&state, &mut key);
        if !seen.insert(key) {
            continue;
        }
        system.enabled(&state, &mut actions);
        for action in actions.iter().filter(|action| system.class(&state, action) == Class::System) {
            let (mut next, mut found) = (state.clone(), Found::default());
            system.step(&mut next, action, &mut found);
            if broken && !found.violations.is_empty() {
                return true;
            }
            todo.push(next);
        }
    }
    false
}

fn compare(lot: &Lot, seen: &mut Seen) {
    let options = Options { threads: 1, states_max: STATES_MAX, ..Options::default() };
    let whole = explore(&lot.system, &options);
    if !whole.exhausted {
        return;
    }
    let reduced = explore(&lot.system, &Options { reduce: true, states_max: 2 * STATES_MAX, ..options });
    let broken = |outcome: &Outcome<Action>| -> Vec<_> {
        outcome.traces.iter().map(|trace| (trace.violation.property, trace.dooming_step.is_some())).collect()
    };
    assert_eq!(broken(&whole), broken(&reduced), "{}", lot.text);
    assert!(reduced.exhausted, "{}", lot.text);
    check_traces(lot, &reduced);
    seen.compared += 1;
    seen.refuted += u64::from(matches!(reduced.reduction, Some(Reduction::Applied { refuted }) if refuted != 0));
    seen.holding += u64::from(whole.verdict == Verdict::Holds);
    seen.stuck += u64::from(whole.traces.iter().any(|trace| trace.dooming_step.is_some()));
    seen.stepping += u64::from(whole.traces.iter().any(|trace| trace.dooming_step.is_none()));
    seen.whole += whole.counts.states;
    seen.reduced += reduced.counts.states;
}

fn compare_many(seed: u64, split: bool, usual: u64) {
    let (mut numbers, mut seen) = (Numbers(seed), Seen::default());
    let wanted = wanted(usual);
    while seen.compared < wanted {
        if let Some(lot) = world(&mut numbers, split) {
            compare(&lot, &mut seen);
        }
    }
    eprintln!("split {split}: {seen:?}");
    let least = seen.holding.min(seen.stuck).min(seen.stepping).min(seen.refuted);
    assert!(least * 50 > wanted, "each kind of world must be there: {seen:?}");
    assert!(seen.reduced * 2 < seen.whole, "the reduction must reduce: {seen:?}");
}

#[test]
fn worlds_of_one_engine_have_the_same_verdicts_with_reductions() {
    compare_many(11, false, 1_100);
}

#[test]
fn worlds_of_two_engines_have_the_same_verdicts_with_reductions() {
    compare_many(12, true, 1_100);
}
