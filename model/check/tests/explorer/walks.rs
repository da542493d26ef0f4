//! Random walks, delay bounds and estimates: what they find, and that they claim no more than they saw.

use kvweft_check::deviations::{Deviating, Deviation};
use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::plan::estimate;
use kvweft_check::trace::replay;
use kvweft_check::walk::{Strategy, Walked, Walks, walk};

use super::graph::{Graph, Name, names};
use super::two_phase_commit::TwoPhaseCommit;

const STRATEGIES: [Strategy; 3] = [Strategy::Random, Strategy::Urw, Strategy::Pct { depth: 3 }];

fn walked(graph: &Graph, strategy: Strategy, seed: u64) -> Walked<Name> {
    walk(graph, &Walks { strategy, seed, walks: 100, steps_max: 20 }, &Options::default())
}

/// Two ways to the end; only the longer one, which goes round first, breaks something.
fn detour() -> Graph {
    Graph::new()
        .system("a go", 0, 1)
        .system("b wander", 0, 2)
        .system("b back", 2, 0)
        .system("c cross", 2, 3)
        .breaks("never-cross")
        .done(1)
        .done(3)
}

#[test]
fn every_strategy_finds_the_defect_and_its_trace_is_as_short_as_the_searchs() {
    let graph = detour();
    let shortest = graph.explore();
    let shortest = shortest.trace("never-cross").expect("the search finds it");
    for strategy in STRATEGIES {
        let found = walked(&graph, strategy, 1);
        assert_eq!(found.traces.len(), 1, "{strategy}");
        assert_eq!(found.traces[0].violation, shortest.violation, "{strategy}");
        assert_eq!(names(&found.traces[0].steps), ["b wander", "c cross"], "{strategy}");
        assert!(replay(&graph, &found.traces[0].steps).is_ok(), "{strategy}");
    }
}

#[test]
fn walks_are_the_same_for_one_seed_and_others_for_another() {
    for strategy in STRATEGIES {
        assert_eq!(walked(&detour(), strategy, 7), walked(&detour(), strategy, 7), "{strategy}");
        let system = TwoPhaseCommit::new(4);
        let steps = |seed| walk(&system, &Walks { strategy, seed, walks: 50, steps_max: 100 }, &Options::default());
        assert_ne!(steps(1).covered.states, steps(2).covered.states, "{strategy}");
    }
}

#[test]
fn a_walk_that_gets_stuck_tells_what_is_owed() {
    let graph = Graph::new().system("a go", 0, 1).system("a stop", 1, 2).owes(2, "every-request-ends");
    let found = walked(&graph, Strategy::Random, 0);
    assert_eq!(found.traces[0].violation.property, "every-request-ends");
    assert_eq!(found.traces[0].dooming_step, Some(2));
    let silent = walked(&Graph::new().environment("a go", 0, 1), Strategy::Random, 0);
    assert_eq!(silent.traces[0].violation.property, "no-deadlock");
}

#[test]
fn what_was_covered_is_counted_exactly() {
    let line = Graph::new().system("a go", 0, 1).system("a on", 1, 2).done(2);
    let found = walk(&line, &Walks { strategy: Strategy::Urw, seed: 3, walks: 10, steps_max: 5 }, &Options::default());
    assert_eq!(found.traces, []);
    assert_eq!((found.covered.steps, found.covered.states, found.covered.ended, found.covered.cut_off), (20, 3, 10, 0));
    let ring = Graph::new().system("a go", 0, 1).system("a back", 1, 0).done(0);
    let found =
        walk(&ring, &Walks { strategy: Strategy::Random, seed: 3, walks: 4, steps_max: 5 }, &Options::default());
    let covered = "4 walks (random, seed 3): 20 steps, 2 distinct states; 0 came to an end, 4 were cut off after 5 steps; \
                   other orders of events were not seen";
    assert_eq!(found.covered.to_string(), covered);
}

#[test]
fn each_delay_allows_one_more_step_out_of_turn() {
    let safety = Options { liveness: false, ..Options::default() };
    let search = |most| explore(&Deviating { system: &detour(), deviation: Deviation::Delay, most }, &safety);
    assert_eq!((search(0).verdict, search(0).counts.states), (Verdict::Holds, 2));
    assert_eq!(search(1).verdict, Verdict::Holds);
    let found = search(2);
    assert_eq!(found.verdict, Verdict::Violated);
    assert_eq!(names(&found.traces[0].steps), ["b wander", "c cross"]);
}

#[test]
fn each_preemption_interrupts_one_more_actor_that_could_go_on() {
    // Between two steps of a, b steps in; where a has stopped, b comes for nothing.
    let graph = Graph::new()
        .system("a begin", 0, 1)
        .system("a end", 1, 2)
        .system("b come", 2, 4)
        .system("b pry", 1, 3)
        .breaks("never-pry")
        .done(4)
        .done(3);
    let safety = Options { liveness: false, ..Options::default() };
    let search = |most| explore(&Deviating { system: &graph, deviation: Deviation::Preemption, most }, &safety);
    let none = search(0);
    assert_eq!((none.verdict, none.counts.states), (Verdict::Holds, 4));
    assert_eq!(names(&search(1).traces[0].steps), ["a begin", "b pry"]);
}

#[test]
fn with_enough_delays_every_state_is_reached() {
    let system = TwoPhaseCommit::new(3);
    let safety = Options { liveness: false, ..Options::default() };
    let whole = explore(&system, &safety).counts.states;
    let reached = |most| {
        let mut seen = std::collections::BTreeSet::new();
        let bounded = Deviating { system: &system, deviation: Deviation::Delay, most };
        let mut frontier = kvweft_check::system::System::initial(&bounded);
        while let Some(state) = frontier.pop() {
            use kvweft_check::system::{Found, System};
            let mut encoding = Vec::new();
            bounded.encode(&state, &mut encoding);
            if !seen.insert(encoding) {
                continue;
            }
            let mut enabled = Vec::new();
            bounded.enabled(&state, &mut enabled);
            for action in enabled {
                let mut next = state.clone();
                bounded.step(&mut next, &action, &mut Found::default());
                frontier.push(next);
            }
        }
        // The last four bytes are what is left of the delays.
        let states = seen.into_iter().map(|bytes| bytes[..bytes.len() - 4].to_vec());
        states.collect::<std::collections::BTreeSet<_>>().len() as u64
    };
    assert!(reached(1) < reached(3) && reached(3) < whole);
    assert_eq!(reached(60), whole);
}

#[test]
fn an_estimate_of_a_small_system_is_exact_and_one_of_a_large_system_is_near() {
    let small = estimate(&TwoPhaseCommit::new(3), &Options::default());
    assert_eq!(
        (small.states, small.exact),
        (explore(&TwoPhaseCommit::new(3), &Options::default()).counts.states, true)
    );
    let large = estimate(&TwoPhaseCommit::new(6), &Options::default());
    assert!(!large.exact && (50_816 / 16..50_816 * 2).contains(&large.states), "{large:?}");
    assert!(large.table_bytes > large.states);
}

#[test]
fn a_bound_on_delays_is_used_up() {
    // Three things that can be done once each, as the bits of a state; passing over more than one of them is too much.
    let mut cube = Graph::new().done(7);
    for state in 0..7 {
        for bit in [1, 2, 4].into_iter().filter(|bit| state & bit == 0) {
            cube = cube.system("do", state, state | bit);
        }
    }
    let states = |most| {
        let options = Options { threads: 1, liveness: false, ..Options::default() };
        explore(&Deviating { system: &cube, deviation: Deviation::Delay, most }, &options).counts.states
    };
    // None: a, b, c. One: also b a c, a c b, each from its delay on in states of its own.
    assert_eq!((states(0), states(1)), (4, 8));
}
