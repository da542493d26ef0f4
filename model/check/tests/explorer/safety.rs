//! Properties of single steps: the shortest way to break each, and what is explored behind a break.

use kvweft_check::explore::{Options, Verdict, WantedProperties, explore};
use kvweft_check::trace::{ReplayError, replay, replay_from};

use crate::graph::{Graph, names};
use crate::two_phase_commit::{ALL_DECIDE_ALIKE, Action, TwoPhaseCommit};

fn options() -> Options {
    Options { threads: 1, ..Options::default() }
}

#[test]
fn a_seeded_fault_gives_the_shortest_trace() {
    let system = TwoPhaseCommit { managers: 2, aborts_after_prepared: true };
    let outcome = explore(&system, &options());
    assert_eq!(outcome.verdict, Verdict::Violated);
    let trace = outcome.trace(ALL_DECIDE_ALIKE).expect("a trace of the seeded fault");
    let steps = [
        Action::Prepare(0),
        Action::SeePrepared(0),
        Action::ChooseAbort(0),
        Action::Prepare(1),
        Action::SeePrepared(1),
        Action::Commit,
        Action::ObeyCommit(1),
    ];
    assert_eq!(trace.steps, steps);
    assert_eq!((trace.dooming_step, trace.loop_from), (None, None));
    assert_eq!(replay(&system, &trace.steps).expect("a trace replays").len(), steps.len() + 1);
}

#[test]
fn each_property_has_the_first_of_its_shortest_traces() {
    let system = Graph::new()
        .system("long", 0, 1)
        .system("far", 1, 2)
        .breaks("p")
        .system("near", 0, 3)
        .breaks("q")
        .system("as-near", 0, 4)
        .breaks("q")
        .breaks("r")
        .done(1);
    let outcome = system.explore();
    let found: Vec<_> = outcome.traces.iter().map(|t| (t.violation.property, names(&t.steps).join(" "))).collect();
    assert_eq!(found, [("p", "long far".to_owned()), ("q", "near".to_owned()), ("r", "as-near".to_owned())]);
    assert_eq!(outcome.trace("q").map(|trace| trace.violation.detail.as_str()), Some("near"));
}

#[test]
fn a_state_behind_a_violating_step_is_explored_on_demand_only() {
    let system = Graph::new().system("bad", 0, 1).breaks("p").system("after", 1, 2).breaks("q").done(2);
    let outcome = system.explore();
    assert_eq!((outcome.counts.states, outcome.counts.transitions, outcome.counts.violating_steps), (1, 1, 1));
    assert_eq!((outcome.traces.len(), outcome.exhausted), (1, true));

    let outcome = explore(&system, &Options { expand_violating: true, ..options() });
    assert_eq!((outcome.counts.states, outcome.counts.violating_steps), (3, 2));
    assert_eq!(names(&outcome.trace("q").expect("a later violation").steps), ["bad", "after"]);
}

#[test]
fn a_state_that_a_clean_step_reaches_too_is_explored() {
    let system = Graph::new().system("bad", 0, 1).breaks("p").system("clean", 0, 1).system("after", 1, 2).done(2);
    let outcome = system.explore();
    assert_eq!(outcome.counts.states, 3);
    assert_eq!(outcome.traces.len(), 1);
}

#[test]
fn stopping_at_the_first_violation_explores_no_further_step() {
    let system = Graph::new().system("on", 0, 1).system("bad", 0, 2).breaks("p").system("later", 0, 3).breaks("q");
    let outcome = explore(&system, &Options { stop_at_first: true, ..options() });
    assert_eq!((outcome.verdict, outcome.exhausted), (Verdict::Violated, false));
    assert_eq!((outcome.counts.transitions, outcome.traces.len()), (2, 1));
}

#[test]
fn an_unwanted_property_is_explored_through() {
    let system = Graph::new().system("bad", 0, 1).breaks("p").system("after", 1, 2).breaks("q").done(2);
    let want = WantedProperties::Listed(vec!["q".to_owned()]);
    let outcome = explore(&system, &Options { want, ..options() });
    assert_eq!(outcome.traces.len(), 1);
    assert_eq!(names(&outcome.trace("q").expect("the wanted property").steps), ["bad", "after"]);
}

#[test]
fn a_trace_says_from_which_initial_state_it_starts() {
    let system = Graph::new().starting_at(&[5, 6]).system("bad", 6, 7).breaks("p").done(5);
    let outcome = system.explore();
    let trace = outcome.trace("p").expect("a trace");
    assert_eq!(trace.initial, 1);
    assert_eq!(replay_from(&system, trace.initial, &trace.steps), Ok(vec![6, 7]));
}

#[test]
fn a_replay_names_the_first_step_that_is_not_possible() {
    let system = Graph::new().system("a", 0, 1).system("b", 1, 2);
    let (a, b) = (system.action("a"), system.action("b"));
    assert_eq!(replay(&system, &[a, b]), Ok(vec![0, 1, 2]));
    let refused = replay(&system, &[a, a, b]).expect_err("a is possible once");
    assert_eq!(refused, ReplayError { step: 2, action: a });
    assert_eq!(refused.to_string(), "step 2: expected an action that is enabled, got a");

    let empty = system.starting_at(&[]);
    assert_eq!(replay(&empty, &[]), Ok(Vec::new()));
    assert_eq!(replay(&empty, &[a]), Err(ReplayError { step: 1, action: a }));
}
