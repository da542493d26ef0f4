//! Counterexamples, and taking them again.

use std::fmt::{Debug, Display};

use kvweft_trace::StepLine;

use crate::system::{Class, Found, System, Violation};

/// A way to break a property.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trace<A> {
    /// Where it starts: the place among [`System::initial`], 0 for a system with one initial state.
    pub initial: usize,
    /// What happens. For a property of single steps, the last step breaks it. For a liveness property, the last step
    /// enters the state in which nothing more can happen, or closes the loop.
    pub steps: Vec<A>,
    /// The property that is broken.
    pub violation: Violation,
    /// For a liveness property, the number of the step (from 1) after which the rest of the trace stays where System
    /// actions alone can never reach the goal; 0 if it stays there from the initial state on. `None` for a property of
    /// single steps, and for a loop from which the goal is still within reach.
    pub dooming_step: Option<usize>,
    /// For a loop, how many steps lead to it: `steps[loop_from..]` can repeat for ever. The state at its end encodes to
    /// the same bytes as the state at its start.
    pub loop_from: Option<usize>,
}

/// What kind of failure a trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The last step breaks a property.
    Step,
    /// The last step before nothing is possible any more is the one after which the goal was out of reach.
    Deadlock,
    /// The system goes on behind the step after which the goal is out of reach, and gets stuck later.
    Wedge,
    /// The system can go round for ever, and never gets stuck.
    Livelock,
}

impl Failure {
    /// Its name in reports: `step`, `deadlock`, `wedge` or `livelock`.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Step => "step",
            Failure::Deadlock => "deadlock",
            Failure::Wedge => "wedge",
            Failure::Livelock => "livelock",
        }
    }
}

/// Behind the step that breaks a property.
const VIOLATION: &str = "violation";
/// Behind the first step after which the goal is out of reach.
pub(crate) const DOOMING: &str = "dooming step";
/// Behind the first step of a loop.
pub(crate) const LOOP: &str = "the loop begins";

/// Marks as trace files have them.
pub(crate) fn mark_lines<A>(lines: &mut [StepLine], trace: &Trace<A>) {
    let last = lines.len();
    for (at, line) in lines.iter_mut().enumerate() {
        if trace.dooming_step == Some(at + 1) {
            line.mark = DOOMING.to_owned();
        } else if trace.loop_from == Some(at) {
            line.mark = LOOP.to_owned();
        } else if at + 1 == last && trace.dooming_step.is_none() && trace.loop_from.is_none() {
            line.mark = VIOLATION.to_owned();
        }
    }
}

impl<A> Trace<A> {
    /// What kind of failure this is.
    pub fn failure(&self) -> Failure {
        match (self.dooming_step, self.loop_from) {
            (_, Some(_)) => Failure::Livelock,
            (None, None) => Failure::Step,
            (Some(step), None) if step == self.steps.len() => Failure::Deadlock,
            (Some(_), None) => Failure::Wedge,
        }
    }
}

/// An action that is not possible where a replay came to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: expected an action that is enabled, got {action}")]
pub struct ReplayError<A: Debug + Display> {
    /// The number of the step, from 1.
    pub step: usize,
    /// The action that is not enabled there.
    pub action: A,
}

/// Takes `actions` one after the other from the first initial state; gives all states, the initial one included. A
/// system without an initial state gives no states, and refuses the first action.
///
/// # Errors
///
/// The first action that is not enabled.
pub fn replay<S: System>(system: &S, actions: &[S::Action]) -> Result<Vec<S::State>, ReplayError<S::Action>> {
    replay_from(system, 0, actions)
}

/// As [`replay`], from the initial state at the place `initial`.
///
/// # Errors
///
/// The first action that is not enabled.
pub fn replay_from<S: System>(
    system: &S,
    initial: usize,
    actions: &[S::Action],
) -> Result<Vec<S::State>, ReplayError<S::Action>> {
    let mut states: Vec<S::State> = system.initial().into_iter().skip(initial).take(1).collect();
    let mut enabled = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        enabled.clear();
        if let Some(state) = states.last() {
            system.enabled(state, &mut enabled);
        }
        let Some(state) = states.last().filter(|_| enabled.contains(action)) else {
            return Err(ReplayError { step: index + 1, action: action.clone() });
        };
        let mut next = state.clone();
        system.step(&mut next, action, &mut Found::default());
        states.push(next);
    }
    Ok(states)
}

/// A path as the search stores it: positions in the lists of enabled actions.
pub(crate) struct Path {
    pub(crate) initial: usize,
    pub(crate) positions: Vec<u16>,
}

/// The actions of `path`, and the state at its end.
pub(crate) fn walk<S: System>(system: &S, path: &Path) -> (Vec<S::Action>, S::State) {
    let mut state = system.initial().swap_remove(path.initial);
    let mut steps = Vec::with_capacity(path.positions.len());
    for &position in &path.positions {
        let mut enabled = Vec::new();
        system.enabled(&state, &mut enabled);
        let count = enabled.len();
        let action = enabled.into_iter().nth(usize::from(position)).unwrap_or_else(|| {
            panic!("`enabled` or `step` is not deterministic: expected an action at {position}, got {count} actions")
        });
        system.step(&mut state, &action, &mut Found::default());
        steps.push(action);
    }
    (steps, state)
}

/// Takes the System action of `state` that leads to a state whose encoding `is_target`: the one `wanted` if it does, or else
/// the first.
///
/// The search stores which states follow, not by which action: `state` may be another concrete form of the state that
/// was expanded, in which the same successor hides behind another action. `allowed` refuses steps for what they break.
pub(crate) fn follow<S: System>(
    system: &S,
    state: &mut S::State,
    is_target: impl Fn(&[u8]) -> bool,
    wanted: Option<&S::Action>,
    allowed: impl Fn(&Found) -> bool,
) -> S::Action {
    let mut enabled = Vec::new();
    system.enabled(state, &mut enabled);
    if let Some(place) = enabled.iter().position(|action| Some(action) == wanted) {
        enabled[..=place].rotate_right(1);
    }
    let mut encoding = Vec::new();
    for action in enabled {
        if system.class(state, &action) != Class::System {
            continue;
        }
        let mut next = state.clone();
        let mut found = Found::default();
        system.step(&mut next, &action, &mut found);
        encoding.clear();
        system.encode(&next, &mut encoding);
        if is_target(&encoding) && allowed(&found) {
            *state = next;
            return action;
        }
    }
    panic!("states of one encoding are not interchangeable: a System step of one is missing in the other")
}
