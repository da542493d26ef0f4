//! Loops that a fair scheduler can keep, and loops that only an unfair one can.

use std::collections::BTreeSet;

use kvweft_check::explore::{Options, Outcome, explore};
use kvweft_check::liveness::{NO_DEADLOCK, NO_IDLE_LOOP};
use kvweft_check::system::{Class, Found, System};
use kvweft_check::trace::{Failure, replay};

/// Edges with labels: an action is its label, possible wherever an edge has it. All are System actions.
struct Labelled {
    edges: Vec<(u32, &'static str, u32)>,
    done: u32,
}

const NEVER: u32 = 99;

impl System for Labelled {
    type State = u32;
    type Action = &'static str;

    fn initial(&self) -> Vec<u32> {
        vec![0]
    }

    fn enabled(&self, state: &u32, out: &mut Vec<&'static str>) {
        out.extend(self.edges.iter().filter(|edge| edge.0 == *state).map(|edge| edge.1));
    }

    fn step(&self, state: &mut u32, action: &&'static str, _: &mut Found) {
        let edge = self.edges.iter().find(|edge| edge.0 == *state && edge.1 == *action);
        *state = edge.expect("an enabled action").2;
    }

    fn class(&self, _: &u32, _: &&'static str) -> Class {
        Class::System
    }

    fn done(&self, state: &u32) -> bool {
        *state == self.done
    }

    fn encode(&self, state: &u32, out: &mut Vec<u8>) {
        out.push(*state as u8);
    }
}

fn outcome(done: u32, edges: &[(u32, &'static str, u32)]) -> Outcome<&'static str> {
    explore(&Labelled { edges: edges.to_vec(), done }, &Options { threads: 1, ..Options::default() })
}

fn found_loop(done: u32, edges: &[(u32, &'static str, u32)]) -> Option<String> {
    let outcome = outcome(done, edges);
    let trace = outcome.trace(NO_IDLE_LOOP)?;
    let from = trace.loop_from.expect("a loop has a start");
    Some(format!("{} | {}", trace.steps[..from].join(" "), trace.steps[from..].join(" ")))
}

#[test]
fn a_loop_that_never_gives_an_action_its_turn_is_not_reported() {
    // `finish` is possible all the way round.
    assert_eq!(found_loop(9, &[(0, "ping", 1), (1, "pong", 0), (0, "finish", 9), (1, "finish", 9)]), None);
    assert_eq!(found_loop(9, &[(0, "poll", 0), (0, "finish", 9)]), None);
}

#[test]
fn an_action_that_comes_and_goes_may_be_missed_for_ever() {
    let edges = [(0, "ping", 1), (1, "pong", 0), (0, "finish", 9)];
    assert_eq!(found_loop(9, &edges), Some(" | ping pong".to_owned()));
}

#[test]
fn a_step_that_changes_nothing_is_neither_possible_nor_taken() {
    // Nothing but polling is left: nobody is kept waiting.
    assert_eq!(found_loop(9, &[(0, "go", 1), (1, "poll", 1)]), Some("go | poll".to_owned()));
    // `finish` is possible in 0, and changes nothing in 1: a scheduler that avoids it in 0 is weakly fair.
    let edges = [(0, "ping", 1), (1, "pong", 0), (0, "finish", 9), (1, "finish", 1)];
    assert_eq!(found_loop(9, &edges), Some(" | ping pong".to_owned()));
    // `poll` changes nothing anywhere, and `finish` is possible everywhere.
    assert_eq!(
        found_loop(9, &[(0, "poll", 0), (0, "ping", 1), (1, "ping", 0), (0, "finish", 9), (1, "finish", 9)]),
        None
    );
}

#[test]
fn the_loop_is_a_shortest_fair_one_and_not_the_whole_component() {
    // `spin` alone is shorter, and leaves out `serve`, which is possible in both of its states; the way through 2 and 3
    // takes it. The states from 4 on belong to the component as well.
    let edges = [
        (0, "spin", 1),
        (1, "spin", 0),
        (0, "serve", 2),
        (1, "serve", 2),
        (2, "back", 0),
        (2, "wander", 4),
        (4, "wander", 5),
        (5, "wander", 6),
        (6, "wander", 0),
    ];
    assert_eq!(found_loop(NEVER, &edges), Some(" | serve back".to_owned()));
}

#[test]
fn a_loop_through_a_done_state_reaches_the_goal() {
    assert_eq!(found_loop(1, &[(0, "work", 1), (1, "again", 0)]), None);
}

#[test]
fn deadlock_wedge_and_livelock_are_told_apart() {
    let deadlock = outcome(9, &[(0, "finish", 9), (0, "stop", 1)]);
    let trace = deadlock.trace(NO_DEADLOCK).expect("a deadlock");
    assert_eq!((trace.failure(), trace.dooming_step, trace.steps.len()), (Failure::Deadlock, Some(1), 1));

    let wedge = outcome(9, &[(0, "finish", 9), (0, "lose", 1), (1, "drain", 2), (2, "release", 3)]);
    let trace = wedge.trace(NO_DEADLOCK).expect("a wedge");
    assert_eq!((trace.failure(), trace.dooming_step, trace.steps.len()), (Failure::Wedge, Some(1), 3));

    let livelock = outcome(9, &[(0, "finish", 9), (0, "lose", 1), (1, "retry", 2), (2, "refuse", 1)]);
    let trace = livelock.trace(NO_IDLE_LOOP).expect("a livelock");
    assert_eq!((trace.failure(), trace.dooming_step, trace.loop_from), (Failure::Livelock, Some(1), Some(1)));
    assert!(livelock.trace(NO_DEADLOCK).is_none() && deadlock.trace(NO_IDLE_LOOP).is_none());
}

/// The length of a shortest fair loop from `start`, by trying every walk up to a length.
fn shortest_by_trying(edges: &[(u32, &'static str, u32)], done: u32, start: u32, longest: usize) -> Option<usize> {
    let of = |state: u32| edges.iter().filter(move |edge| edge.0 == state);
    let possible = |state: u32, label: &str| of(state).any(|edge| edge.1 == label && edge.2 != state);
    if of(start).next().is_some() && of(start).all(|edge| edge.2 == start) {
        return Some(1);
    }
    let mut walks: Vec<Vec<&(u32, &str, u32)>> = vec![vec![]];
    for length in 1..=longest {
        let longer = walks.iter().flat_map(|walk| {
            let at = walk.last().map_or(start, |edge| edge.2);
            of(at).filter(move |edge| edge.2 != at && edge.2 != done).map(|edge| [&walk[..], &[edge]].concat())
        });
        walks = longer.collect();
        let fair = walks.iter().filter(|walk| walk[length - 1].2 == start).any(|walk| {
            let seen_to = |label| walk.iter().any(|edge| edge.1 == label || !possible(edge.2, label));
            edges.iter().all(|edge| seen_to(edge.1))
        });
        if fair {
            return Some(length);
        }
    }
    None
}

#[test]
fn whether_there_is_a_fair_loop_is_what_all_walks_say() {
    const LABELS: [&str; 3] = ["a", "b", "c"];
    let mut numbers = 7u64;
    let mut below = |end: u64| {
        numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (numbers >> 33) % end
    };
    let (mut fair, mut unfair) = (0, 0);
    for _ in 0..400 {
        let states = 2 + below(3) as u32;
        let mut edges: Vec<(u32, &'static str, u32)> = Vec::new();
        for state in 0..states {
            for label in LABELS {
                if below(3) > 0 {
                    edges.push((state, label, below(u64::from(states) + 1) as u32));
                }
            }
        }
        // The last state is done, and has no way on.
        let system = Labelled { edges: edges.clone(), done: states };
        let outcome = explore(&system, &Options { threads: 1, ..Options::default() });
        let reached = |state: u32| {
            let mut seen = BTreeSet::from([0]);
            for _ in 0..=states {
                seen.extend(edges.iter().filter(|edge| seen.contains(&edge.0)).map(|edge| edge.2).collect::<Vec<_>>());
            }
            seen.contains(&state)
        };
        let inside: Vec<_> = edges.iter().copied().filter(|edge| reached(edge.0)).collect();
        let length = |start| shortest_by_trying(&inside, states, start, 8);
        let expected = (0..states).any(|start| length(start).is_some());
        let trace = outcome.trace(NO_IDLE_LOOP);
        assert_eq!(trace.is_some(), expected, "{edges:?}");
        if let Some(trace) = trace {
            let states = replay(&system, &trace.steps).expect("a trace replays");
            let from = trace.loop_from.expect("a loop");
            assert_eq!(states.last(), states.get(from), "{edges:?}");
            assert_eq!(length(states[from]), Some(trace.steps.len() - from), "{edges:?}");
        }
        fair += u32::from(expected);
        unfair += u32::from(!expected && edges.iter().any(|edge| edge.2 <= edge.0));
    }
    assert!(fair > 50 && unfair > 50, "both kinds must occur: {fair} fair, {unfair} not");
}
