//! What the system does when it is left alone.

use kvweft_check::explore::{Options, Verdict, WantedProperties, explore};
use kvweft_check::liveness::{NO_DEADLOCK, NO_IDLE_LOOP};
use kvweft_check::trace::replay;

use crate::graph::{Graph, names};

#[test]
fn a_deadlock_is_reported_with_what_it_owes() {
    let system = Graph::new()
        .system("work", 0, 1)
        .system("wait", 1, 2)
        .system("finish", 1, 3)
        .done(3)
        .owes(2, "every-request-is-answered")
        .owes(2, "every-page-returns");
    let outcome = system.explore();
    assert_eq!(outcome.verdict, Verdict::Violated);
    let properties: Vec<_> = outcome.traces.iter().map(|trace| trace.violation.property).collect();
    assert_eq!(properties, ["every-page-returns", "every-request-is-answered"]);
    for trace in &outcome.traces {
        assert_eq!(names(&trace.steps), ["work", "wait"]);
        assert_eq!((trace.dooming_step, trace.loop_from), (Some(2), None));
        assert_eq!(trace.violation.detail, "owed in 2");
    }
    assert_eq!((outcome.counts.stuck_states, outcome.counts.doomed_states), (1, 1));
}

#[test]
fn a_deadlock_that_owes_nothing_by_name_is_a_deadlock_still() {
    let outcome = Graph::new().system("wait", 0, 1).explore();
    let trace = outcome.trace(NO_DEADLOCK).expect("a deadlock");
    assert_eq!((names(&trace.steps), trace.dooming_step), (vec!["wait".to_owned()], Some(0)));
}

#[test]
fn a_doomed_initial_state_has_the_dooming_step_0() {
    let outcome = Graph::new().owes(0, "p").explore();
    let trace = outcome.trace("p").expect("a deadlock at the start");
    assert_eq!((trace.steps.len(), trace.dooming_step), (0, Some(0)));
    assert_eq!(outcome.counts.states, 1);
}

#[test]
fn a_wedge_is_reported_from_its_dooming_step_although_a_timer_or_an_abort_could_help() {
    let system = Graph::new()
        .system("submit", 0, 1)
        .system("answer", 1, 2)
        .environment("lose", 1, 3)
        .system("drain", 3, 4)
        .system("release", 4, 5)
        .timer("deadline", 5, 2)
        .environment("abort", 4, 2)
        .done(2)
        .owes(5, "p");
    let outcome = system.explore();
    let trace = outcome.trace("p").expect("a wedge");
    assert_eq!(names(&trace.steps), ["submit", "lose", "drain", "release"]);
    assert_eq!(trace.dooming_step, Some(2));
    assert_eq!(replay(&system, &trace.steps).expect("a trace replays").last(), Some(&5));
    assert_eq!(outcome.counts.doomed_states, 3);
    assert_eq!(outcome.counts.done_states, 1);
}

#[test]
fn each_property_starts_from_the_shallowest_state_that_can_come_to_owe_it() {
    let system = Graph::new()
        .system("finish", 0, 9)
        .environment("lose", 0, 1)
        .system("stop", 1, 2)
        .environment("abort", 1, 3)
        .system("leak", 3, 4)
        .done(9)
        .owes(2, "p")
        .owes(4, "q");
    let outcome = system.explore();
    let found = |property| outcome.trace(property).map(|trace| (names(&trace.steps).join(" "), trace.dooming_step));
    assert_eq!(found("p"), Some(("lose stop".to_owned(), Some(1))));
    assert_eq!(found("q"), Some(("lose abort leak".to_owned(), Some(1))));
}

#[test]
fn a_trace_that_was_rescued_once_has_the_dooming_step_of_its_end() {
    let system = Graph::new()
        .system("wait", 0, 1)
        .environment("rescue", 1, 2)
        .environment("lose", 2, 3)
        .system("stop", 3, 4)
        .done(2)
        .owes(1, "p")
        .owes(4, "q");
    let outcome = system.explore();
    let dooming_step = |property| outcome.trace(property).and_then(|trace| trace.dooming_step);
    assert_eq!((dooming_step("p"), dooming_step("q")), (Some(0), Some(3)));
}

#[test]
fn a_loop_of_system_actions_is_reported_with_its_stem_even_if_the_goal_is_within_reach() {
    let system = Graph::new()
        .environment("begin", 0, 1)
        .system("finish", 0, 9)
        .system("try", 1, 2)
        .system("again", 2, 3)
        .system("back", 3, 1)
        .system("retry", 2, 1)
        .system("leave", 3, 9)
        .done(9);
    let outcome = system.explore();
    assert_eq!(outcome.traces.len(), 1);
    let trace = outcome.trace(NO_IDLE_LOOP).expect("a loop");
    assert_eq!(names(&trace.steps), ["begin", "try", "retry"]);
    assert_eq!((trace.loop_from, trace.dooming_step), (Some(1), None));
    let states = replay(&system, &trace.steps).expect("a trace replays");
    assert_eq!(states.first_chunk::<2>().map(|start| start[1]), states.last().copied());
}

#[test]
fn a_loop_without_a_way_out_has_a_dooming_step() {
    let outcome = Graph::new().system("go", 0, 1).system("finish", 0, 9).system("spin", 1, 1).done(9).explore();
    let trace = outcome.trace(NO_IDLE_LOOP).expect("a loop");
    assert_eq!(names(&trace.steps), ["go", "spin"]);
    assert_eq!((trace.loop_from, trace.dooming_step), (Some(1), Some(1)));
    assert_eq!((outcome.counts.doomed_states, outcome.counts.stuck_states), (1, 0));
}

#[test]
fn a_loop_that_needs_the_outside_world_or_a_timer_is_not_reported() {
    let system = Graph::new()
        .system("serve", 0, 1)
        .environment("ask", 1, 0)
        .system("arm", 0, 2)
        .timer("fire", 2, 0)
        .system("finish", 2, 1)
        .done(1);
    assert_eq!(system.explore().verdict, Verdict::Holds);
}

#[test]
fn a_step_that_breaks_a_property_is_a_way_out() {
    let system = Graph::new().system("go", 0, 1).system("bad", 1, 2).breaks("p").owes(2, "q");
    let outcome = system.explore();
    assert_eq!((outcome.traces.len(), outcome.counts.doomed_states), (1, 0));

    let through = explore(&system, &Options { threads: 1, expand_violating: true, ..Options::default() });
    assert!(through.trace("p").is_some() && through.trace("q").is_some());
}

#[test]
fn liveness_counts_only_if_it_is_asked_for() {
    let system = Graph::new().system("spin", 0, 0).system("stop", 0, 1).owes(1, "p");
    let outcome = explore(&system, &Options { threads: 1, liveness: false, ..Options::default() });
    assert_eq!((outcome.verdict, outcome.liveness_judged), (Verdict::Holds, false));

    let want = WantedProperties::Listed(vec!["p".to_owned()]);
    let outcome = explore(&system, &Options { threads: 1, want, ..Options::default() });
    assert_eq!(outcome.traces.len(), 1);
    assert!(outcome.trace("p").is_some());
}

#[test]
fn a_tail_is_taken_in_the_form_of_the_states_that_the_trace_comes_through() {
    // 3 and 13 encode alike. The search expands 3, which it meets first; the tail comes to 13 and has to find its own
    // way on from there.
    let system = Graph::new()
        .encoded_modulo(10)
        .system("finish", 0, 9)
        .environment("lose", 0, 1)
        .environment("near", 0, 3)
        .system("turn", 1, 13)
        .system("idle", 3, 4)
        .system("other-idle", 13, 14)
        .timer("rescue", 4, 9)
        .timer("other-rescue", 14, 9)
        .system("stop", 4, 5)
        .system("other-stop", 14, 15)
        .done(9)
        .owes(5, "p")
        .owes(15, "p");
    let outcome = system.explore();
    let trace = outcome.trace("p").expect("a wedge");
    assert_eq!(names(&trace.steps), ["lose", "turn", "other-idle", "other-stop"]);
    assert_eq!(trace.violation.detail, "owed in 15");
}
