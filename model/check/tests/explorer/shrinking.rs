//! Traces made short.

use kvweft_check::explore::{Options, explore};
use kvweft_check::shrink::{shrink, shrink_from};
use kvweft_check::trace::replay;

use crate::graph::{Graph, names};
use crate::two_phase_commit::{ALL_DECIDE_ALIKE, Action, TwoPhaseCommit};

#[test]
fn a_padded_trace_shrinks_to_the_minimum() {
    let system = TwoPhaseCommit { managers: 4, aborts_after_prepared: true };
    let padded: Vec<Action> = (0..4)
        .flat_map(|manager| [Action::ObeyCommit(manager), Action::Prepare(manager), Action::SeePrepared(manager)])
        .chain([Action::Commit, Action::ObeyCommit(3), Action::ObeyCommit(2), Action::Abort])
        .chain([Action::ChooseAbort(1), Action::ObeyCommit(0)])
        .collect();
    let shrunk = shrink(&system, &padded, ALL_DECIDE_ALIKE);
    let shortest = explore(&system, &Options { threads: 1, ..Options::default() });
    let shortest = shortest.trace(ALL_DECIDE_ALIKE).expect("a trace of the seeded fault");
    assert_eq!(shrunk.actions.len(), shortest.steps.len());
    assert_eq!(shrunk.violation.as_ref(), Some(&shortest.violation));
    assert!(replay(&system, &shrunk.actions).is_ok(), "every action left is enabled where it stands");
    assert_eq!(shrink(&system, &padded, ALL_DECIDE_ALIKE), shrunk, "shrinking is deterministic");

    let again = shrink(&system, &shrunk.actions, ALL_DECIDE_ALIKE);
    assert_eq!(again.actions, shrunk.actions);
}

#[test]
fn no_single_action_of_a_shrunk_trace_can_be_left_out() {
    let system = TwoPhaseCommit { managers: 3, aborts_after_prepared: true };
    let outcome = explore(&system, &Options { threads: 1, ..Options::default() });
    let steps = &outcome.trace(ALL_DECIDE_ALIKE).expect("a trace of the seeded fault").steps;
    let shrunk = shrink(&system, steps, ALL_DECIDE_ALIKE);
    assert_eq!(&shrunk.actions, steps, "what is shortest already stays as it is");
    assert!(shrunk.replays > steps.len());
}

#[test]
fn what_breaks_nothing_comes_back_as_it_was() {
    let system = Graph::new().system("a", 0, 1).system("b", 1, 2).breaks("p").owes(2, "q");
    let actions = [system.action("a"), system.action("b")];
    let shrunk = shrink(&system, &actions, "q");
    assert_eq!((names(&shrunk.actions), shrunk.violation, shrunk.replays), (names(&actions), None, 1));
}

#[test]
fn shrinking_starts_where_the_trace_starts() {
    let system = Graph::new().starting_at(&[0, 1]).system("a", 1, 1).system("b", 1, 2).breaks("p");
    let actions = [system.action("a"), system.action("a"), system.action("b")];
    assert_eq!(names(&shrink_from(&system, 1, &actions, "p").actions), ["b"]);
    assert_eq!(shrink(&system, &actions, "p").violation, None);
}
