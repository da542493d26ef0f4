//! Random walks: for worlds that are too large to search. They find, and prove nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use crate::explore::{Options, fingerprint};
use crate::numbers::Numbers;
use crate::shrink::shrink_from;
use crate::system::{Class, Found, System, Violation};
use crate::trace::Trace;

/// How the next action is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Every action alike.
    Random,
    /// Every actor by how many steps it still has to take, as earlier walks tell: all interleavings become nearly as
    /// likely (uniform random walk).
    Urw,
    /// Actors have random priorities, which change at `depth - 1` random steps: finds a bug of that depth with a known
    /// probability (probabilistic concurrency testing).
    Pct {
        /// How many events must come in the right order; at least 1.
        depth: u32,
    },
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Urw => f.write_str("urw"),
            Self::Pct { depth } => write!(f, "pct {depth}"),
        }
    }
}

/// What to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walks {
    /// How to choose.
    pub strategy: Strategy,
    /// Every seed gives other walks, the same ones on each run.
    pub seed: u64,
    /// How many.
    pub walks: u64,
    /// Steps of each at most.
    pub steps_max: u64,
}

/// What was found, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked<A> {
    /// The first counterexample of each property, by name; made shorter if a step breaks the property.
    pub traces: Vec<Trace<A>>,
    /// What was seen.
    pub covered: Covered,
}

/// What walks have seen: no more than this may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// What was asked for.
    pub walks: Walks,
    /// Steps of all walks.
    pub steps: u64,
    /// Distinct states, by fingerprint.
    pub states: u64,
    /// Walks that came to a state in which nothing is possible any more.
    pub ended: u64,
    /// Walks that were cut off.
    pub cut_off: u64,
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Walks { strategy, seed, walks, steps_max } = self.walks;
        write!(
            f,
            "{walks} walks ({strategy}, seed {seed}): {} steps, {} distinct states; {} came to an end, {} were cut off after \
             {steps_max} steps; other orders of events were not seen",
            self.steps, self.states, self.ended, self.cut_off
        )
    }
}

/// Walks `system`. A walk ends where nothing is possible, where a property is broken behind which the system does not
/// survive, or where the goal is missed: not done, and no System action possible.
pub fn walk<S: System>(system: &S, walks: &Walks, options: &Options) -> Walked<S::Action> {
    let mut found: BTreeMap<&'static str, Trace<S::Action>> = BTreeMap::new();
    let covered = Covered { walks: *walks, steps: 0, states: 0, ended: 0, cut_off: 0 };
    let mut walker = Walker { system, options, covered, seen: HashSet::new(), schedule: Schedule::new(walks) };
    for _ in 0..walks.walks {
        for trace in walker.walk() {
            found.entry(trace.violation.property).or_insert(trace);
        }
    }
    let mut covered = walker.covered;
    covered.states = walker.seen.len() as u64;
    let traces = found.into_values().map(|trace| match trace.dooming_step {
        Some(_) => trace,
        None => shorter(system, trace),
    });
    Walked { traces: traces.collect(), covered }
}

fn shorter<S: System>(system: &S, trace: Trace<S::Action>) -> Trace<S::Action> {
    let shrunk = shrink_from(system, trace.initial, &trace.steps, trace.violation.property);
    match shrunk.violation {
        Some(violation) => Trace { steps: shrunk.actions, violation, ..trace },
        None => trace,
    }
}

struct Walker<'a, S> {
    system: &'a S,
    options: &'a Options,
    covered: Covered,
    seen: HashSet<u128>,
    schedule: Schedule,
}

impl<S: System> Walker<'_, S> {
    /// One walk: what it broke.
    fn walk(&mut self) -> Vec<Trace<S::Action>> {
        let mut broken = Vec::new();
        let mut initials = self.system.initial();
        if initials.is_empty() {
            return broken;
        }
        let initial = self.schedule.numbers.below(initials.len());
        let mut state = initials.swap_remove(initial);
        let mut steps: Vec<S::Action> = Vec::new();
        let mut enabled = Vec::new();
        self.schedule.begin();
        loop {
            self.see(&state);
            enabled.clear();
            self.system.enabled(&state, &mut enabled);
            let moving = enabled.iter().any(|action| self.system.class(&state, action) == Class::System);
            let liveness = self.options.liveness && !moving && !self.system.done(&state);
            if liveness {
                for violation in self.owed(&state) {
                    let dooming_step = Some(steps.len());
                    broken.push(Trace { initial, steps: steps.clone(), violation, dooming_step, loop_from: None });
                }
            }
            if enabled.is_empty() || liveness {
                self.covered.ended += 1;
                break;
            }
            if steps.len() as u64 >= self.covered.walks.steps_max {
                self.covered.cut_off += 1;
                break;
            }
            let actors: Vec<Cow<'static, str>> =
                enabled.iter().map(|action| self.system.actor(&state, action)).collect();
            let action = enabled.swap_remove(self.schedule.choose(&actors));
            let mut found = Found::default();
            self.system.step(&mut state, &action, &mut found);
            self.covered.steps += 1;
            steps.push(action);
            let wanted = found.violations.iter().filter(|violation| self.options.want.wants(violation.property));
            for violation in wanted.cloned() {
                let steps = steps.clone();
                broken.push(Trace { initial, steps, violation, dooming_step: None, loop_from: None });
            }
            if self.options.ends_at(self.system, &found.violations) {
                self.see(&state);
                self.covered.ended += 1;
                break;
            }
        }
        self.schedule.end();
        broken
    }

    fn see(&mut self, state: &S::State) {
        let mut encoding = Vec::new();
        self.system.encode(state, &mut encoding);
        self.seen.insert(fingerprint(&encoding));
    }

    fn owed(&self, state: &S::State) -> Vec<Violation> {
        let mut owed = self.system.owed(state);
        if owed.is_empty() {
            let detail = "expected the goal to be reached, got a state in which no system action is possible";
            owed.push(Violation { property: crate::liveness::NO_DEADLOCK, detail: detail.to_owned() });
        }
        owed.retain(|violation| self.options.want.wants(violation.property));
        owed
    }
}

/// Chooses, and learns from walk to walk how long they are.
struct Schedule {
    strategy: Strategy,
    numbers: Numbers,
    /// Steps of each actor in the walk before, and in this one.
    expected: BTreeMap<Cow<'static, str>, u64>,
    taken: BTreeMap<Cow<'static, str>, u64>,
    /// The highest runs first.
    priorities: BTreeMap<Cow<'static, str>, u64>,
    /// Steps at which the running actor falls behind all others.
    changes: Vec<u64>,
    steps: u64,
    length: u64,
    lowest: u64,
}

/// Priorities begin above all to which an actor can fall.
const FALLEN_MAX: u64 = 1 << 32;

impl Schedule {
    fn new(walks: &Walks) -> Self {
        Self {
            strategy: walks.strategy,
            numbers: Numbers::new(walks.seed),
            expected: BTreeMap::new(),
            taken: BTreeMap::new(),
            priorities: BTreeMap::new(),
            changes: Vec::new(),
            steps: 0,
            length: 0,
            lowest: FALLEN_MAX,
        }
    }

    fn begin(&mut self) {
        self.taken.clear();
        self.priorities.clear();
        (self.steps, self.lowest) = (0, FALLEN_MAX);
        self.changes.clear();
        if let Strategy::Pct { depth } = self.strategy {
            let length = self.length.max(1) as usize;
            self.changes = (1..depth).map(|_| self.numbers.below(length) as u64).collect();
        }
    }

    fn end(&mut self) {
        std::mem::swap(&mut self.expected, &mut self.taken);
        self.length = self.length.max(self.steps);
    }

    /// The place of one of the enabled actions, whose actors are given.
    fn choose(&mut self, actors: &[Cow<'static, str>]) -> usize {
        let actor = match self.strategy {
            Strategy::Random => return self.numbers.below(actors.len()),
            Strategy::Urw => self.by_rest(actors),
            Strategy::Pct { .. } => self.by_priority(actors),
        };
        self.steps += 1;
        *self.taken.entry(actor.clone()).or_default() += 1;
        let its: Vec<usize> = (0..actors.len()).filter(|&at| actors[at] == actor).collect();
        its[self.numbers.below(its.len())]
    }

    fn by_rest(&mut self, actors: &[Cow<'static, str>]) -> Cow<'static, str> {
        let mut distinct = actors.to_vec();
        distinct.sort();
        distinct.dedup();
        let rest = |actor: &Cow<'static, str>| {
            let expected = self.expected.get(actor).copied().unwrap_or(1);
            expected.saturating_sub(self.taken.get(actor).copied().unwrap_or(0)).max(1)
        };
        let weights: Vec<u64> = distinct.iter().map(rest).collect();
        let mut left = self.numbers.below(weights.iter().sum::<u64>() as usize) as u64;
        let chosen = weights.iter().position(|&weight| {
            let here = left < weight;
            left = left.saturating_sub(weight);
            here
        });
        distinct.swap_remove(chosen.expect("it is below the sum"))
    }

    fn by_priority(&mut self, actors: &[Cow<'static, str>]) -> Cow<'static, str> {
        for actor in actors {
            if !self.priorities.contains_key(actor) {
                let priority = FALLEN_MAX + 1 + (self.numbers.next() >> 2);
                self.priorities.insert(actor.clone(), priority);
            }
        }
        let highest = |priorities: &BTreeMap<Cow<'static, str>, u64>| {
            actors.iter().max_by_key(|actor| (priorities[*actor], *actor)).expect("something is enabled").clone()
        };
        let actor = highest(&self.priorities);
        if !self.changes.contains(&self.steps) {
            return actor;
        }
        self.lowest -= 1;
        self.priorities.insert(actor, self.lowest);
        highest(&self.priorities)
    }
}
