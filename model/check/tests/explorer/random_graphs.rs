//! The verdicts on many small graphs, against definitions that are applied word by word.

use std::collections::BTreeSet;

use kvweft_check::explore::Outcome;
use kvweft_check::liveness::{NO_DEADLOCK, NO_IDLE_LOOP};
use kvweft_check::system::{Class, System};
use kvweft_check::trace::replay;

use crate::graph::{Graph, Name};

const STATES: u32 = 9;

/// A fixed sequence of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

fn random_graph(numbers: &mut Numbers) -> Graph {
    let mut graph = Graph::new().done(numbers.below(STATES));
    for _ in 0..8 + numbers.below(8) {
        let (from, to) = (numbers.below(STATES), numbers.below(STATES));
        graph = match numbers.below(6) {
            0 => graph.environment("environment", from, to),
            1 => graph.timer("timer", from, to),
            // Forward only, or hardly a graph would be without a loop.
            2..5 => graph.system("system", from.min(to), from.max(to)),
            _ => graph.system("system", from, to),
        };
    }
    graph
}

/// All states that a step of a class in `classes` leads to.
fn successors(graph: &Graph, state: u32, classes: &[Class]) -> BTreeSet<u32> {
    let mut actions = Vec::new();
    graph.enabled(&state, &mut actions);
    let taken = actions.iter().filter(|action| classes.contains(&graph.class(&state, action)));
    taken
        .map(|action| {
            let mut next = state;
            graph.step(&mut next, action, &mut Default::default());
            next
        })
        .collect()
}

/// All states in reach of `start`, by `least` steps or more.
fn reach(graph: &Graph, start: u32, classes: &[Class], least: usize) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    let mut layer = BTreeSet::from([start]);
    for distance in 0..=STATES as usize {
        if distance >= least {
            seen.extend(&layer);
        }
        layer = layer.iter().flat_map(|&state| successors(graph, state, classes)).collect();
    }
    seen
}

/// Whether a fair scheduler can come back to `state` for ever and never pass a done state. Every edge is an action of its
/// own, which is not possible elsewhere: only a state that leads to itself can leave out what is always possible.
fn loops_fairly(graph: &Graph, state: u32) -> bool {
    let next = |state| -> BTreeSet<u32> { successors(graph, state, SYSTEM) };
    let mut seen = BTreeSet::new();
    let mut unvisited: Vec<u32> = next(state).into_iter().filter(|&to| to != state).collect();
    while let Some(at) = unvisited.pop() {
        if !System::done(graph, &at) && seen.insert(at) {
            unvisited.extend(next(at));
        }
    }
    !System::done(graph, &state) && (seen.contains(&state) || next(state) == BTreeSet::from([state]))
}

const SYSTEM: &[Class] = &[Class::System];
const ALL: &[Class] = &[Class::System, Class::Timer, Class::Environment];

fn check_deadlock(graph: &Graph, outcome: &Outcome<Name>, doomed: &BTreeSet<u32>, stuck: &BTreeSet<u32>) {
    let Some(trace) = outcome.trace(NO_DEADLOCK) else {
        assert!(stuck.is_empty(), "{graph:?}");
        return;
    };
    let states = replay(graph, &trace.steps).expect("a trace replays");
    assert!(states.last().is_some_and(|last| stuck.contains(last)), "{graph:?}");
    let dooming = trace.dooming_step.expect("a stuck state is doomed");
    assert!(dooming == 0 || !doomed.contains(&states[dooming - 1]), "{graph:?}");
    assert!(states[dooming..].iter().all(|state| doomed.contains(state)), "{graph:?}");
}

fn check_loop(graph: &Graph, outcome: &Outcome<Name>, looping: &BTreeSet<u32>) {
    let Some(trace) = outcome.trace(NO_IDLE_LOOP) else {
        assert!(looping.is_empty(), "{graph:?}");
        return;
    };
    let states = replay(graph, &trace.steps).expect("a trace replays");
    let from = trace.loop_from.expect("a loop has a start");
    assert!(from < trace.steps.len() && states.last() == Some(&states[from]), "{graph:?}");
    assert!(trace.steps[from..].iter().all(|step| graph.class(&0, step) == Class::System), "{graph:?}");
    assert!(looping.contains(&states[from]), "{graph:?}");
    assert!(states[..from].iter().all(|state| !looping.contains(state)), "{graph:?}");
}

#[test]
fn verdicts_on_random_graphs_are_what_the_definitions_say() {
    let mut numbers = Numbers(1);
    let (mut holding, mut stuck_graphs, mut looping_graphs) = (0, 0, 0);
    for _ in 0..3_000 {
        let graph = random_graph(&mut numbers);
        let outcome = graph.explore();
        let states = reach(&graph, 0, ALL, 0);
        let with = |test: &dyn Fn(u32) -> bool| -> BTreeSet<u32> {
            states.iter().copied().filter(|&state| test(state)).collect()
        };
        let doomed = with(&|state| !reach(&graph, state, SYSTEM, 0).iter().any(|state| System::done(&graph, state)));
        let stuck = with(&|state| !System::done(&graph, &state) && successors(&graph, state, SYSTEM).is_empty());
        let looping = with(&|state| loops_fairly(&graph, state));

        let counts = outcome.counts;
        assert_eq!(counts.states, states.len() as u64, "{graph:?}");
        assert_eq!(counts.doomed_states, doomed.len() as u64, "{graph:?}");
        assert_eq!(counts.stuck_states, stuck.len() as u64, "{graph:?}");
        check_deadlock(&graph, &outcome, &doomed, &stuck);
        check_loop(&graph, &outcome, &looping);
        holding += u32::from(outcome.traces.is_empty());
        stuck_graphs += u32::from(!stuck.is_empty());
        looping_graphs += u32::from(!looping.is_empty());
    }
    let least = holding.min(stuck_graphs).min(looping_graphs);
    assert!(least > 100, "each kind must occur: {holding} hold, {stuck_graphs} stuck, {looping_graphs} loop");
}
