//! Thousands of small systems of processes over shared variables, searched whole and reduced.

use std::collections::BTreeSet;
use std::fmt;

use kvweft_check::reduce::{Footprint, Process, Reduction};
use kvweft_check::system::{Class, Found, System, Violation};

use crate::{both, check_processes};

const VALUES: u8 = 3;

#[derive(Clone, Debug)]
struct Edge {
    from: u8,
    to: u8,
    class: Class,
    /// Possible only while a variable has a value.
    guard: Option<(usize, u8)>,
    effect: Effect,
}

#[derive(Clone, Debug)]
enum Effect {
    Nothing,
    Set(usize, u8),
    /// Modulo [`VALUES`].
    Add(usize, u8),
    /// Breaks a property if a variable has a value; the flag says whether the search goes on behind it.
    Assert(usize, u8, bool),
}

#[derive(Clone, Debug, Default)]
struct Random {
    /// The edges of each process; local states are numbered from 0.
    processes: Vec<Vec<Edge>>,
    /// Local states in which a process has come to its goal.
    goals: Vec<BTreeSet<u8>>,
    /// Whether edges that touch nothing shared are given out as eager.
    eager: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    at: Vec<u8>,
    values: Vec<u8>,
}

/// An edge of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Taken(usize, usize);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} edge {}", self.0, self.1)
    }
}

impl Edge {
    fn footprint(&self, process: usize, with_guard: bool) -> Footprint {
        let mut footprint = Footprint { writes: vec![100 + process as u32], ..Footprint::default() };
        footprint.reads.extend(self.guard.filter(|_| with_guard).map(|(variable, _)| variable as u32));
        match self.effect {
            Effect::Nothing => {}
            Effect::Set(variable, _) => footprint.writes.push(variable as u32),
            Effect::Add(variable, _) => footprint.adds.push(variable as u32),
            Effect::Assert(variable, ..) => footprint.reads.push(variable as u32),
        }
        footprint
    }
}

fn unite<'a>(footprints: impl Iterator<Item = Footprint> + 'a) -> Footprint {
    footprints.fold(Footprint::default(), |mut all, one| {
        all.reads.extend(one.reads);
        all.writes.extend(one.writes);
        all.adds.extend(one.adds);
        all
    })
}

impl Random {
    fn reach(&self, process: usize, from: u8) -> BTreeSet<u8> {
        let mut seen = BTreeSet::from([from]);
        for _ in 0..self.processes[process].len() {
            let next: Vec<u8> =
                self.processes[process].iter().filter(|edge| seen.contains(&edge.from)).map(|edge| edge.to).collect();
            seen.extend(next);
        }
        seen
    }
}

impl System for Random {
    type State = State;
    type Action = Taken;

    fn initial(&self) -> Vec<State> {
        vec![State { at: vec![0; self.processes.len()], values: vec![0; 3] }]
    }

    fn enabled(&self, state: &State, out: &mut Vec<Taken>) {
        for (process, edges) in self.processes.iter().enumerate() {
            out.extend(edges.iter().enumerate().filter_map(|(at, edge)| {
                let open = edge.guard.is_none_or(|(variable, value)| state.values[variable] == value);
                (edge.from == state.at[process] && open).then_some(Taken(process, at))
            }));
        }
    }

    fn step(&self, state: &mut State, &Taken(process, at): &Taken, found: &mut Found) {
        let edge = &self.processes[process][at];
        state.at[process] = edge.to;
        match edge.effect {
            Effect::Nothing => {}
            Effect::Set(variable, value) => state.values[variable] = value,
            Effect::Add(variable, value) => state.values[variable] = (state.values[variable] + value) % VALUES,
            Effect::Assert(variable, value, survives) => {
                if state.values[variable] == value {
                    let property = if survives { "survived" } else { ["p0", "p1", "p2", "p3"][process] };
                    found.violations.push(Violation { property, detail: format!("variable {variable} is {value}") });
                }
            }
        }
    }

    fn class(&self, _: &State, &Taken(process, at): &Taken) -> Class {
        self.processes[process][at].class
    }

    fn done(&self, state: &State) -> bool {
        self.goals.iter().zip(&state.at).all(|(goals, at)| goals.contains(at))
    }

    fn encode(&self, state: &State, out: &mut Vec<u8>) {
        out.extend(&state.at);
        out.extend(&state.values);
    }

    fn survives(&self, violation: &Violation) -> bool {
        violation.property == "survived"
    }

    fn owed(&self, state: &State) -> Vec<Violation> {
        const NAMES: [&str; 4] = ["ends-0", "ends-1", "ends-2", "ends-3"];
        let missing = self.goals.iter().zip(&state.at).enumerate().filter(|(_, (goals, at))| !goals.contains(at));
        missing.map(|(process, _)| Violation { property: NAMES[process], detail: "not there".to_owned() }).collect()
    }

    fn processes(&self, state: &State, out: &mut Vec<Process>) -> bool {
        out.extend((0..self.processes.len()).map(|process| {
            let edges = &self.processes[process];
            let from = |states: BTreeSet<u8>| {
                unite(edges.iter().filter(|edge| states.contains(&edge.from)).map(|edge| edge.footprint(process, true)))
            };
            Process {
                now: from(BTreeSet::from([state.at[process]])),
                later: from(self.reach(process, state.at[process])),
            }
        }));
        true
    }

    fn process_of(&self, _: &State, action: &Taken) -> usize {
        action.0
    }

    fn eager(&self, state: &State, _: u128) -> Option<Taken> {
        (0..self.processes.len()).filter(|_| self.eager).find_map(|process| {
            let mut of = self.processes[process].iter().enumerate().filter(|(_, edge)| edge.from == state.at[process]);
            let (at, edge) = of.next()?;
            let alone = edge.guard.is_none() && matches!(edge.effect, Effect::Nothing) && edge.class == Class::System;
            (of.next().is_none() && alone).then_some(Taken(process, at))
        })
    }
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn random(numbers: &mut Numbers, cyclic: bool) -> Random {
    let mut system = Random { eager: numbers.below(2) == 0, ..Random::default() };
    for _ in 0..2 + numbers.below(3) {
        let states = 2 + numbers.below(3);
        let edges = (0..states + numbers.below(3)).map(|at| {
            let from = if at + 1 < states { at } else { numbers.below(states) };
            let to = if at + 1 < states { at + 1 } else { numbers.below(states) };
            let (from, to) = if cyclic || from < to { (from, to) } else { (to, from + 1) };
            let (variable, value) = (numbers.below(3), numbers.below(usize::from(VALUES)) as u8);
            Edge {
                from: from as u8,
                to: to as u8,
                class: [Class::System, Class::System, Class::System, Class::Timer, Class::Environment]
                    [numbers.below(5)],
                guard: (numbers.below(3) == 0).then(|| (numbers.below(3), numbers.below(usize::from(VALUES)) as u8)),
                effect: match numbers.below(8) {
                    0..4 => Effect::Nothing,
                    4 => Effect::Set(variable, value),
                    5 | 6 => Effect::Add(variable, value),
                    _ => Effect::Assert(variable, value, numbers.below(2) == 0),
                },
            }
        });
        system.processes.push(edges.collect());
        let goals = [(states - 1) as u8, states as u8, numbers.below(states + 1) as u8];
        system.goals.push(goals.into_iter().collect());
    }
    system
}

#[test]
fn a_reduced_search_says_of_every_property_what_the_whole_says() {
    let mut numbers = Numbers(1);
    let (mut states, mut broken, mut holding, mut owing, mut cyclic, mut wholes) = (0, 0, 0, 0, 0, 0);
    for round in 0..4_000 {
        let system = random(&mut numbers, round % 4 == 0);
        let (whole, reduced, how) = both(&system, &|| format!("{system:?}"));
        broken += u64::from(whole.traces.iter().any(|trace| trace.dooming_step.is_none()));
        owing += u64::from(whole.traces.iter().any(|trace| trace.dooming_step.is_some()));
        holding += u64::from(whole.traces.is_empty());
        cyclic += u64::from(how == Reduction::Cyclic);
        states += reduced.counts.states;
        wholes += whole.counts.states;
    }
    let least = broken.min(holding).min(owing).min(cyclic);
    assert!(least > 100, "each kind must occur: {broken} broken, {owing} stuck, {holding} hold, {cyclic} go round");
    assert!(states * 4 < wholes * 3, "the reduction must reduce: {states} of {wholes}");
}

#[test]
fn what_random_systems_say_of_themselves_is_true() {
    let mut numbers = Numbers(2);
    for round in 0..200 {
        check_processes(&random(&mut numbers, round % 2 == 0), 5);
    }
}

#[test]
fn a_loop_of_steps_that_need_not_happen_is_a_cycle_too() {
    for class in [Class::Timer, Class::Environment] {
        let edge = |from, to, class| Edge { from, to, class, guard: None, effect: Effect::Nothing };
        let there_and_back = vec![edge(0, 1, class), edge(1, 0, class)];
        let system = Random { processes: vec![there_and_back], goals: vec![BTreeSet::from([0, 1])], eager: false };
        assert_eq!(both(&system, &|| format!("{class:?}")).2, Reduction::Cyclic);
    }
}
