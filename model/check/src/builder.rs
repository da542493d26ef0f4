//! Checks in a plain `#[test]`: properties as functions of a state, one call, and a failure that can be read, pasted and
//! replayed.
//!
//! ```
//! # use kvweft_check::system::{Class, Found, System};
//! # struct Door;
//! # impl System for Door {
//! #     type State = bool;
//! #     type Action = &'static str;
//! #     fn initial(&self) -> Vec<bool> { vec![false] }
//! #     fn enabled(&self, open: &bool, out: &mut Vec<&'static str>) { out.push(if *open { "close" } else { "open" }) }
//! #     fn step(&self, open: &mut bool, _: &&'static str, _: &mut Found) { *open = !*open; }
//! #     fn class(&self, open: &bool, _: &&'static str) -> Class { if *open { Class::System } else { Class::Environment } }
//! #     fn done(&self, open: &bool) -> bool { !open }
//! #     fn encode(&self, open: &bool, out: &mut Vec<u8>) { out.push(u8::from(*open)); }
//! # }
//! use kvweft_check::builder::Checker;
//!
//! Checker::new(Door)
//!     .sometimes("open", |open| *open)
//!     .leads_to("it-closes-again", |open| *open, |open| !*open)
//!     .check()
//!     .assert_holds();
//! ```

use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;

use kvweft_trace::TraceFile;

use crate::explore::{Options, Outcome, Verdict, WantedProperties, explore};
use crate::lanes;
use crate::liveness::NO_IDLE_LOOP;
use crate::regressions::{Home, Stored};
use crate::system::{Class, Found, Marks, System, Violation};
use crate::trace::{Trace, mark_lines};

type Test<S> = Box<dyn Fn(&<S as System>::State) -> bool + Send + Sync>;

/// A system and what is asked of it.
pub struct Checker<S: System> {
    pub(crate) system: S,
    options: Options,
    always: Vec<(&'static str, Test<S>)>,
    sometimes: Vec<(&'static str, Test<S>)>,
    leads_to: Vec<(&'static str, Test<S>, Test<S>)>,
    done: Option<Test<S>>,
    home: Home,
}

impl<S: System> Checker<S> {
    /// Asks what the system itself reports, and whether it gets where it must.
    #[track_caller]
    pub fn new(system: S) -> Self {
        let home = Home::of_caller(std::panic::Location::caller());
        let (always, sometimes, leads_to) = (Vec::new(), Vec::new(), Vec::new());
        Self { system, options: Options::default(), always, sometimes, leads_to, done: None, home }
    }

    /// Every state must satisfy `test`.
    pub fn always(mut self, name: &'static str, test: impl Fn(&S::State) -> bool + Send + Sync + 'static) -> Self {
        self.always.push((name, Box::new(test)));
        self
    }

    /// Some state must satisfy `test`, or the check has not seen what it should be about. Noted in the highest
    /// [`Marks`], which the system must leave alone.
    pub fn sometimes(mut self, name: &'static str, test: impl Fn(&S::State) -> bool + Send + Sync + 'static) -> Self {
        self.sometimes.push((name, Box::new(test)));
        self
    }

    /// From every state that satisfies `cause`, one that satisfies `effect` must follow by System actions. It is broken
    /// by a state where none is possible before that, and by a run of them that repeats for ever, as
    /// [`liveness`](crate::liveness) judges it.
    pub fn leads_to(
        mut self,
        name: &'static str,
        cause: impl Fn(&S::State) -> bool + Send + Sync + 'static,
        effect: impl Fn(&S::State) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.leads_to.push((name, Box::new(cause), Box::new(effect)));
        self
    }

    /// Which states count as a good end, in place of [`System::done`].
    pub fn done(mut self, test: impl Fn(&S::State) -> bool + Send + Sync + 'static) -> Self {
        self.done = Some(Box::new(test));
        self
    }

    /// How the search is run, and where it gives up.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The name under which counterexamples are kept, in place of that of the test. Needed where one test checks several
    /// systems.
    pub fn named(mut self, name: &str) -> Self {
        self.home.name = name.to_owned();
        self
    }

    /// Where counterexamples are kept, in place of `kvweft-regressions` beside the `Cargo.toml` of the test.
    pub fn kept_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.home.folder = folder.into();
        self
    }

    /// Replays the counterexamples that are kept; if none of them violates any more, searches all states.
    pub fn check(self) -> Checked {
        let mut checked = Checked::new(self.home.clone());
        for Stored { path, file } in self.home.stored() {
            if let Some(trace) = self.again(&file) {
                checked.verdict = Verdict::Violated;
                checked.coverage = format!("the trace in {} violates {} again", path.display(), file.violates);
                checked.failures.push(self.failure(&trace));
                return checked;
            }
        }
        let safety = explore(&Watched { checker: &self, goal: None }, &self.options);
        let mut traces: Vec<Trace<S::Action>> = self.broken_at_the_start();
        let known: Vec<&str> = traces.iter().map(|trace| trace.violation.property).collect();
        traces.extend(safety.traces.iter().filter(|t| !known.contains(&t.violation.property)).cloned());
        let mut verdicts = vec![safety.verdict];
        for goal in 0..self.leads_to.len() {
            let outcome = self.search_goal(goal);
            verdicts.push(outcome.verdict);
            traces.extend(outcome.traces.into_iter().map(|trace| self.named_by_goal(goal, trace)));
        }
        traces.sort_by(|a, b| a.violation.property.cmp(b.violation.property).then(a.steps.len().cmp(&b.steps.len())));
        traces.dedup_by_key(|trace| trace.violation.property);
        let cut = verdicts.iter().find(|verdict| matches!(verdict, Verdict::Inconclusive { .. }));
        checked.failures = traces.iter().map(|trace| self.failure(trace)).collect();
        checked.verdict = if traces.is_empty() { cut.copied().unwrap_or(Verdict::Holds) } else { Verdict::Violated };
        if safety.exhausted {
            let reached = |&(at, _): &(usize, &(&'static str, Test<S>))| safety.marks.contains(mark(at));
            let missed = self.sometimes.iter().enumerate().filter(|sometimes| !reached(sometimes));
            checked.unreached = missed.map(|(_, (name, _))| *name).collect();
        }
        checked.coverage = covers(&safety);
        checked
    }

    fn search_goal(&self, goal: usize) -> Outcome<S::Action> {
        let want = WantedProperties::Listed(vec![self.leads_to[goal].0.to_owned(), NO_IDLE_LOOP.to_owned()]);
        explore(&Watched { checker: self, goal: Some(goal) }, &Options { want, liveness: true, ..self.options.clone() })
    }

    /// A run that repeats for ever breaks the property whose goal it never reaches.
    fn named_by_goal(&self, goal: usize, mut trace: Trace<S::Action>) -> Trace<S::Action> {
        let name = self.leads_to[goal].0;
        if trace.violation.property == NO_IDLE_LOOP {
            let detail = "expected what it leads to, got a run of system actions that repeats for ever".to_owned();
            trace.violation = Violation { property: name, detail };
        }
        trace
    }

    fn broken_at_the_start(&self) -> Vec<Trace<S::Action>> {
        let mut traces = Vec::new();
        for (initial, state) in self.system.initial().iter().enumerate() {
            for violation in self.broken(state) {
                traces.push(Trace { initial, steps: Vec::new(), violation, dooming_step: None, loop_from: None });
            }
        }
        traces
    }

    fn broken<'a>(&'a self, state: &'a S::State) -> impl Iterator<Item = Violation> + 'a {
        let broken = self.always.iter().filter(|(name, test)| self.options.want.wants(name) && !test(state));
        broken.map(|(property, _)| Violation { property, detail: "a state does not satisfy it".to_owned() })
    }

    fn failure(&self, trace: &Trace<S::Action>) -> Failure {
        let mut told = self.system.tell(trace.initial, &trace.steps);
        mark_lines(&mut told.lines, trace);
        let file = TraceFile {
            scenario: self.home.name.clone(),
            digest: String::new(),
            drops: Vec::new(),
            violates: trace.violation.property.to_owned(),
            detail: trace.violation.detail.clone(),
            steps: told.lines,
        };
        let lanes = lanes::draw(&file, &told.memory);
        Failure { property: trace.violation.property, lanes, file }
    }

    /// The stored trace, if it can be taken and violates its property again.
    fn again(&self, file: &TraceFile) -> Option<Trace<S::Action>> {
        let goal = self.leads_to.iter().position(|(name, ..)| *name == file.violates);
        let steps = self.system.retrace(0, &file.steps).ok()?;
        let watched = Watched { checker: self, goal };
        let mut state = watched.initial().into_iter().next()?;
        let mut encodings = vec![encoded(&watched, &state)];
        let mut broken = if goal.is_none() { self.broken(&state.inner).collect() } else { Vec::new() };
        for action in &steps {
            let mut found = Found::default();
            watched.step(&mut state, action, &mut found);
            broken = found.violations;
            encodings.push(encoded(&watched, &state));
        }
        let end = encodings.pop();
        let loop_from = encodings.iter().position(|before| Some(before) == end.as_ref());
        let doomed = watched.owed_at(&state);
        let dooming = || file.steps.iter().position(|line| line.mark == "dooming step").map(|at| at + 1);
        let named = |violation: &Violation| violation.property == file.violates;
        let (violation, dooming_step, loop_from) = if let Some(violation) = broken.into_iter().find(named) {
            (violation, None, None)
        } else if let Some(violation) = doomed.into_iter().find(named) {
            (violation, Some(dooming().unwrap_or(steps.len())), None)
        } else {
            let property = self.leads_to.get(goal?).map(|(name, ..)| *name).filter(|_| state.owing)?;
            (Violation { property, detail: file.detail.clone() }, dooming(), Some(loop_from?))
        };
        Some(Trace { initial: 0, steps, violation, dooming_step, loop_from })
    }
}

fn encoded<S: System>(system: &S, state: &S::State) -> Vec<u8> {
    let mut bytes = Vec::new();
    system.encode(state, &mut bytes);
    bytes
}

fn mark(sometimes: usize) -> usize {
    Marks::CAPACITY - 1 - sometimes
}

/// What a search has seen, in one line.
pub fn covers<A>(outcome: &Outcome<A>) -> String {
    let counts = outcome.counts;
    let miss = match outcome.miss {
        crate::explore::MissProbability::Zero => "exact".to_owned(),
        below => format!("probability that a state was missed {below}"),
    };
    let extent = if outcome.exhausted { "every interleaving" } else { "not every interleaving" };
    let liveness = if outcome.liveness_judged { "liveness judged" } else { "liveness not judged" };
    format!("{extent}: {} states, {} steps deep; {liveness}; {miss}", counts.states, counts.depth)
}

/// The system as the checker sees it: with the checker's properties; or, while it asks for one goal, with what is owed to
/// that alone, so that System actions are those of states that owe it.
struct Watched<'a, S: System> {
    checker: &'a Checker<S>,
    goal: Option<usize>,
}

#[derive(Clone)]
struct Owing<T> {
    inner: T,
    owing: bool,
}

impl<S: System> Watched<'_, S> {
    fn owing(&self, before: bool, state: &S::State) -> bool {
        let Some(goal) = self.goal else { return false };
        let (_, cause, effect) = &self.checker.leads_to[goal];
        (before || cause(state)) && !effect(state)
    }

    /// What is owed in `state` if no System action is possible there and it is not done.
    fn owed_at(&self, state: &Owing<S::State>) -> Vec<Violation> {
        let mut enabled = Vec::new();
        self.enabled(state, &mut enabled);
        let moving = enabled.iter().any(|action| self.class(state, action) == Class::System);
        if moving || self.done(state) { Vec::new() } else { self.owed(state) }
    }
}

impl<S: System> System for Watched<'_, S> {
    type State = Owing<S::State>;
    type Action = S::Action;

    fn initial(&self) -> Vec<Self::State> {
        let owing = |inner: S::State| Owing { owing: self.owing(false, &inner), inner };
        self.checker.system.initial().into_iter().map(owing).collect()
    }

    fn enabled(&self, state: &Self::State, out: &mut Vec<S::Action>) {
        self.checker.system.enabled(&state.inner, out);
    }

    fn step(&self, state: &mut Self::State, action: &S::Action, found: &mut Found) {
        self.checker.system.step(&mut state.inner, action, found);
        state.owing = self.owing(state.owing, &state.inner);
        found.violations.extend(self.checker.broken(&state.inner));
        for (at, (_, test)) in self.checker.sometimes.iter().enumerate() {
            if test(&state.inner) {
                found.marks.set(mark(at));
            }
        }
    }

    fn class(&self, state: &Self::State, action: &S::Action) -> Class {
        let class = self.checker.system.class(&state.inner, action);
        if self.goal.is_some() && !state.owing { Class::Environment } else { class }
    }

    fn done(&self, state: &Self::State) -> bool {
        match (self.goal, &self.checker.done) {
            (Some(_), _) => !state.owing,
            (None, Some(done)) => done(&state.inner),
            (None, None) => self.checker.system.done(&state.inner),
        }
    }

    fn encode(&self, state: &Self::State, out: &mut Vec<u8>) {
        self.checker.system.encode(&state.inner, out);
        out.push(u8::from(state.owing));
    }

    fn survives(&self, violation: &Violation) -> bool {
        let own = self.checker.always.iter().any(|(name, _)| *name == violation.property);
        own || self.checker.system.survives(violation)
    }

    fn owed(&self, state: &Self::State) -> Vec<Violation> {
        match self.goal {
            None => self.checker.system.owed(&state.inner),
            Some(goal) => {
                let detail = "expected what it leads to, got a state in which no system action is possible".to_owned();
                vec![Violation { property: self.checker.leads_to[goal].0, detail }]
            }
        }
    }

    fn actor(&self, state: &Self::State, action: &S::Action) -> Cow<'static, str> {
        self.checker.system.actor(&state.inner, action)
    }
}

/// One counterexample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The property that is broken.
    pub property: &'static str,
    /// The trace as lanes of at most [`lanes::WIDTH_MAX`] columns.
    pub lanes: String,
    /// The trace in words.
    pub file: TraceFile,
}

/// What a [`Checker`] found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The answer to everything but `sometimes`.
    pub verdict: Verdict,
    /// One shortest counterexample for each broken property, by name.
    pub failures: Vec<Failure>,
    /// Which `sometimes` no state satisfies; empty too if the search did not see every state.
    pub unreached: Vec<&'static str>,
    /// What the verdict covers, in one line.
    pub coverage: String,
    home: Home,
}

impl Checked {
    fn new(home: Home) -> Self {
        Self { verdict: Verdict::Holds, failures: Vec::new(), unreached: Vec::new(), coverage: String::new(), home }
    }

    /// Whether everything holds and every `sometimes` was reached.
    pub fn holds(&self) -> bool {
        self.verdict == Verdict::Holds && self.unreached.is_empty()
    }

    /// Everything there is to say, for people.
    pub fn report(&self) -> String {
        let mut out = String::new();
        for failure in &self.failures {
            let _ = writeln!(out, "{}", failure.lanes);
        }
        for name in &self.unreached {
            let _ = writeln!(out, "`{name}` is expected of some state, and true of none");
        }
        if let Verdict::Inconclusive { ran_out_of } = self.verdict {
            let _ = writeln!(
                out,
                "inconclusive: ran out of {ran_out_of:?}; let the options allow more, or the world be less"
            );
        }
        let _ = writeln!(out, "{}", self.coverage);
        out
    }

    /// Keeps the counterexamples; gives the files.
    ///
    /// # Errors
    /// If the folder or a file cannot be written.
    pub fn keep(&self) -> std::io::Result<Vec<PathBuf>> {
        self.failures.iter().map(|failure| self.home.keep(&failure.file)).collect()
    }

    /// Does nothing if everything [holds](Self::holds).
    ///
    /// # Panics
    /// If not: with the counterexamples as lanes, the files in which they are kept, and the command that replays them.
    #[track_caller]
    pub fn assert_holds(&self) {
        if self.holds() {
            return;
        }
        let kept = match self.keep() {
            Ok(paths) => paths.iter().map(|path| format!("kept in {}\n", path.display())).collect(),
            Err(error) => format!("{} cannot be written: {error}\n", self.home.folder.display()),
        };
        panic!("{} does not hold\n\n{}{kept}{}", self.home.name, self.report(), self.home.command());
    }
}
