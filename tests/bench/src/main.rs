//! Races of the explorer against other checkers, on one machine and in one run: `kvweft-bench [ROUNDS [WORLD..]]`. With
//! worlds named, only they are searched.
//!
//! Two-phase commit with eight resource managers is searched by kvweft and stateright with a state of one word, by
//! stateright with the state that its authors wrote, and by SPIN. Worlds of the cache are searched by kvweft and by
//! stateright, which drives the same system. All must agree on the number of states.

mod adapter;
mod bundled;
mod measure;
mod packed;
mod spin;

use std::cell::Cell;

use adapter::Adapter;
use kvweft_check::build::{build, with_names};
use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::scenario::load_embedded_one;
use kvweft_check::system::System;
use kvweft_core::RuleSet;
use measure::{Contender, Measured, race, timed};
use packed::TwoPhaseCommit;
use spin::Spin;
use stateright::{Checker, Model};

const MANAGERS: u32 = 8;
/// The largest world of the suite, and the story of the suite with every part in play.
const WORLDS: [&str; 2] = ["abort-between-chunks", "case-everything-on"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(3, |text| text.parse().expect("expected a number of rounds"));
    let named: Vec<String> = arguments.collect();
    if named.is_empty() {
        two_phase_commit(rounds);
    }
    let worlds = if named.is_empty() { WORLDS.map(str::to_owned).to_vec() } else { named };
    for name in worlds {
        world(&name, rounds);
    }
}

/// Searches with kvweft; safety alone where the peers judge no more.
fn kvweft<S: System>(system: &S, threads: usize, liveness: bool, transitions: &Cell<u64>) -> Measured {
    timed(|| {
        let outcome = explore(system, &Options { threads, liveness, ..Options::default() });
        assert_eq!(outcome.verdict, Verdict::Holds);
        transitions.set(outcome.counts.transitions);
        let states = outcome.counts.states;
        (states, Some(outcome.table_bytes as f64 / states as f64))
    })
}

fn stateright<M>(model: M) -> Measured
where
    M: 'static + Model<State: Clone + std::fmt::Debug + std::hash::Hash + PartialEq + Send + Sync> + Send + Sync,
    M::Action: Clone + PartialEq + Send + Sync,
{
    timed(|| (model.checker().threads(1).spawn_bfs().join().unique_state_count() as u64, None))
}

fn two_phase_commit(rounds: usize) {
    println!("# Two-phase commit, {MANAGERS} resource managers, safety, one thread\n");
    let system = TwoPhaseCommit { managers: MANAGERS };
    let transitions = Cell::new(0);
    // How many steps there are is asked first; every checker takes the same.
    kvweft(&system, 1, false, &transitions);
    let spin = Spin::compiled();
    let mut contenders = vec![
        Contender::new("kvweft, packed", || kvweft(&system, 1, false, &transitions)),
        Contender::new("stateright 0.31, packed, breadth first", || stateright(system)),
        Contender::new("stateright 0.31, its own example, breadth first", || {
            timed(|| (bundled::search(MANAGERS), None))
        }),
    ];
    match &spin {
        Ok(spin) => {
            let name = format!("SPIN, gcc {}, pan {}", spin::FLAGS.join(" "), spin::ARGUMENTS.join(" "));
            contenders.push(Contender::new(name, || spin.search().unwrap_or_else(|why| panic!("{why}"))));
        }
        Err(why) => println!("SPIN is left out: {why}. Debian has it as the package `spin`.\n"),
    }
    race(contenders, rounds, transitions.get());
}

fn world(name: &str, rounds: usize) {
    println!("\n# `{name}`, every rule on\n");
    let scenario = with_names(|known| load_embedded_one(name, known));
    let scenario = scenario.expect("the scenario is built in").expect("built-in scenarios are right");
    // Stateright keeps its models for ever.
    let system = &*Box::leak(Box::new(build(&scenario, RuleSet::EMPTY)));
    let transitions = Cell::new(0);
    kvweft(system, 1, true, &transitions);
    let contenders = vec![
        Contender::new("kvweft, one thread, safety and liveness", || kvweft(system, 1, true, &transitions)),
        Contender::new("kvweft, one thread, safety", || kvweft(system, 1, false, &transitions)),
        Contender::new("kvweft, two threads, safety and liveness", || kvweft(system, 2, true, &transitions)),
        Contender::new("stateright 0.31, one thread, safety", || stateright(Adapter(system))),
    ];
    race(contenders, rounds, transitions.get());
}
