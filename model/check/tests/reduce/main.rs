//! Reduced searches against full ones.

#[path = "../explorer/two_phase_commit.rs"]
mod two_phase_commit;

mod random_systems;
mod symmetry;
mod transfers;

use kvweft_check::explore::{Options, Outcome, explore};
use kvweft_check::reduce::Reduction;
use kvweft_check::system::{Found, System};
use kvweft_check::trace::replay_from;

/// Searches `system` whole and reduced, and checks that both say the same of every property and that the traces of the
/// reduced search are traces of the system.
fn both<S: System>(system: &S, name: &dyn Fn() -> String) -> (Outcome<S::Action>, Outcome<S::Action>, Reduction) {
    let options = Options { threads: 1, ..Options::default() };
    let whole = explore(system, &options);
    let reduced = explore(system, &Options { reduce: true, ..options });
    let how = reduced.reduction.expect("it was asked for");
    let broken = |outcome: &Outcome<S::Action>| -> Vec<_> {
        outcome.traces.iter().map(|trace| (trace.violation.property, trace.loop_from.is_some())).collect()
    };
    assert_eq!(broken(&whole), broken(&reduced), "{}", name());
    for trace in &reduced.traces {
        let states = replay_from(system, trace.initial, &trace.steps).expect("a trace replays");
        if trace.dooming_step.is_none() && trace.loop_from.is_none() {
            let (mut state, last) = (states[states.len() - 2].clone(), trace.steps.last().expect("a step"));
            let mut found = Found::default();
            system.step(&mut state, last, &mut found);
            assert!(found.violations.contains(&trace.violation), "{}", name());
        } else if trace.loop_from.is_none() {
            let owed = system.owed(states.last().expect("an end"));
            assert!(owed.is_empty() || owed.contains(&trace.violation), "{}", name());
        }
    }
    (whole, reduced, how)
}

/// Checks what `system` says of its processes, in states that a fixed sequence of choices leads to: actions of processes
/// that do not conflict commute, and nobody ever touches what was not announced.
fn check_processes<S: System>(system: &S, walks: u32) {
    let mut numbers = 3u64;
    let mut below = |end: usize| {
        numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (numbers >> 33) as usize % end
    };
    let list = |state: &S::State| {
        let (mut actions, mut processes) = (Vec::new(), Vec::new());
        system.enabled(state, &mut actions);
        assert!(system.processes(state, &mut processes));
        (actions, processes)
    };
    let bytes = |state: &S::State| {
        let mut out = Vec::new();
        system.encode(state, &mut out);
        out
    };
    let take = |state: &S::State, action: &S::Action| {
        let (mut next, mut found) = (state.clone(), Found::default());
        system.step(&mut next, action, &mut found);
        (next, found.violations)
    };
    let within = |inner: &[u32], outer: &[&[u32]]| inner.iter().all(|part| outer.iter().any(|o| o.contains(part)));
    for _ in 0..walks {
        let mut state = system.initial().swap_remove(0);
        for _ in 0..40 {
            let (actions, processes) = list(&state);
            for (i, a) in actions.iter().enumerate() {
                for b in &actions[..i] {
                    let (p, q) = (system.process_of(&state, a), system.process_of(&state, b));
                    if p == q || processes[p].now.conflicts(&processes[q].now) {
                        continue;
                    }
                    let ((after_a, found_a), (after_b, found_b)) = (take(&state, a), take(&state, b));
                    assert!(list(&after_a).0.contains(b) && list(&after_b).0.contains(a), "{a} and {b}");
                    let ((ab, found_ab), (ba, found_ba)) = (take(&after_a, b), take(&after_b, a));
                    assert_eq!(bytes(&ab), bytes(&ba), "{a} and {b}");
                    assert_eq!((found_a, found_b), (found_ba, found_ab), "{a} and {b}");
                    assert_eq!(system.class(&state, a), system.class(&after_b, a));
                }
            }
            let Some(action) = (!actions.is_empty()).then(|| &actions[below(actions.len())]) else { break };
            state = take(&state, action).0;
            for (before, after) in processes.iter().zip(&list(&state).1) {
                let (before, after) = (&before.later, &after.later);
                assert!(within(&after.writes, &[&before.writes]), "after {action}");
                assert!(within(&after.adds, &[&before.adds, &before.writes]), "after {action}");
                assert!(within(&after.reads, &[&before.reads, &before.writes]), "after {action}");
            }
        }
    }
}
