//! A system with some of another's actions, and some of its states left out.

use std::sync::{Mutex, PoisonError};

use super::Process;
use crate::explore::{Options, fingerprint};
use crate::system::{Class, Found, System, Violation};
use crate::trace::Trace;

/// States passed in a row without one being kept. A loop of nothing but such states is found after that many.
const PASSED_MAX: usize = 4096;

/// A part of `system`. A step takes one of its actions, and then whatever has no alternative.
pub(super) struct Reduced<'a, S> {
    system: &'a S,
    options: &'a Options,
    /// Kinds of eager actions that are not to be relied on.
    refuted: u128,
    /// Kinds of eager actions that a step has shown not to be eager.
    pub(super) refuting: Mutex<u128>,
}

/// A step that has no alternative, taken.
struct Forced<S: System> {
    action: S::Action,
    state: S::State,
    found: Found,
}

impl<'a, S: System> Reduced<'a, S> {
    pub(super) fn new(system: &'a S, options: &'a Options, refuted: u128) -> Self {
        Self { system, options, refuted, refuting: Mutex::new(0) }
    }

    fn take(&self, state: &S::State, action: S::Action) -> Forced<S> {
        let (mut next, mut found) = (state.clone(), Found::default());
        self.system.step(&mut next, &action, &mut found);
        Forced { action, state: next, found }
    }

    /// Whether the search goes on behind a step. One behind which it ends takes away every other action, and depends on
    /// all of them.
    fn goes_on(&self, step: &Forced<S>) -> bool {
        !self.options.ends_at(self.system, &step.found.violations)
    }

    /// The one step that is worth taking in `state`, if there is one, it breaks nothing, and the state is not a goal.
    fn forced(&self, state: &S::State) -> Option<Forced<S>> {
        if self.system.done(state) {
            return None;
        }
        if let Some(step) = self.eager(state) {
            return Some(step).filter(|step| step.found.violations.is_empty());
        }
        let mut chosen = Vec::new();
        let known = self.chosen(state, &mut chosen);
        let action = chosen.pop().filter(|_| known && chosen.is_empty())?;
        if self.system.class(state, &action) != Class::System {
            return None;
        }
        Some(self.take(state, action)).filter(|step| step.found.violations.is_empty())
    }

    fn eager(&self, state: &S::State) -> Option<Forced<S>> {
        let action = self.system.eager(state, self.refuted)?;
        Some(self.take(state, action)).filter(|step| self.goes_on(step))
    }

    /// Takes every forced step from `state` on, and tells `each`.
    fn pass(&self, state: &mut S::State, mut each: impl FnMut(S::Action, &Found)) {
        for _ in 0..PASSED_MAX {
            let Some(step) = self.forced(state) else { return };
            each(step.action, &step.found);
            *state = step.state;
        }
    }

    /// Appends a persistent set of the actions of `state`: one that holds a System action and none behind
    /// which the search ends, or all of them. The choice is the same in states of one canonical encoding, up to what the
    /// encoding renames. Gives back whether the system tells anything of what depends on what.
    fn chosen(&self, state: &S::State, out: &mut Vec<S::Action>) -> bool {
        self.system.enabled(state, out);
        let known = self.put_off(state, out);
        let mut processes = Vec::new();
        if !self.system.processes(state, &mut processes) {
            return known;
        }
        let of: Vec<usize> = out.iter().map(|action| self.system.process_of(state, action)).collect();
        let mut sets: Vec<Vec<usize>> = (0..processes.len())
            .filter(|process| of.contains(process))
            .map(|process| {
                let inside = closure(&processes, process);
                (0..out.len()).filter(|&at| inside[of[at]]).collect()
            })
            .filter(|set: &Vec<usize>| set.len() < out.len())
            .filter(|set| set.iter().any(|&at| self.system.class(state, &out[at]) == Class::System))
            .collect();
        sets.sort();
        sets.dedup();
        sets.sort_by_key(Vec::len);
        let mut best: Option<(Vec<u128>, Vec<usize>)> = None;
        for set in sets {
            if best.as_ref().is_some_and(|(_, least)| least.len() < set.len()) {
                break;
            }
            let Some(targets) = self.targets(state, out, &set) else { continue };
            if best.as_ref().is_none_or(|(least, _)| targets < *least) {
                best = Some((targets, set));
            }
        }
        if let Some((_, set)) = best {
            let mut at = 0;
            out.retain(|_| {
                at += 1;
                set.contains(&(at - 1))
            });
        }
        true
    }

    /// Takes out of `actions`, all of `state`, those that can wait. Gives back whether the system can tell.
    fn put_off(&self, state: &S::State, actions: &mut Vec<S::Action>) -> bool {
        let mut kept = actions.clone();
        let known = self.system.put_off(state, self.refuted, &mut kept);
        let system = |action: &S::Action| self.system.class(state, action) == Class::System;
        if kept.len() < actions.len()
            && kept.iter().any(system)
            && kept.iter().all(|action| self.goes_on(&self.take(state, action.clone())))
        {
            *actions = kept;
        }
        known
    }

    /// The fingerprints of what the actions of a set lead to, in order; `None` if the search ends behind one of
    /// them.
    fn targets(&self, state: &S::State, actions: &[S::Action], set: &[usize]) -> Option<Vec<u128>> {
        let mut encoding = Vec::new();
        let mut targets = Vec::with_capacity(set.len());
        for &at in set {
            let step = self.take(state, actions[at].clone());
            if !self.goes_on(&step) {
                return None;
            }
            encoding.clear();
            self.system.canonical(&step.state, &mut encoding);
            targets.push(fingerprint(&encoding));
        }
        targets.sort_unstable();
        Some(targets)
    }

    /// Puts into `trace` the steps that were passed.
    pub(super) fn expand(&self, trace: &mut Trace<S::Action>) {
        let mut state = self.system.initial().swap_remove(trace.initial);
        let mut steps = Vec::new();
        // After each step of the reduced system, how many of the whole.
        let mut ends = Vec::new();
        self.pass(&mut state, |action, _| steps.push(action));
        ends.push(steps.len());
        for action in trace.steps.drain(..) {
            let step = self.take(&state, action);
            steps.push(step.action);
            state = step.state;
            if step.found.violations.is_empty() {
                self.pass(&mut state, |action, _| steps.push(action));
            }
            ends.push(steps.len());
        }
        trace.steps = steps;
        // The goal is out of reach behind a step of the reduced system if and only if it is so behind the step of the
        // whole that it begins with: what was passed has no alternative.
        trace.dooming_step = trace.dooming_step.map(|step| if step == 0 { 0 } else { ends[step - 1] + 1 });
    }
}

/// The processes that must act together with `first`: as long as some process outside may ever interfere with what one
/// inside does next, it comes in.
fn closure(processes: &[Process], first: usize) -> Vec<bool> {
    let mut inside = vec![false; processes.len()];
    inside[first] = true;
    let mut unvisited = vec![first];
    while let Some(process) = unvisited.pop() {
        for other in 0..processes.len() {
            if !inside[other] && processes[other].later.conflicts(&processes[process].now) {
                inside[other] = true;
                unvisited.push(other);
            }
        }
    }
    inside
}

impl<S: System> System for Reduced<'_, S> {
    type State = S::State;
    type Action = S::Action;

    fn initial(&self) -> Vec<S::State> {
        let mut initial = self.system.initial();
        initial.iter_mut().for_each(|state| self.pass(state, |_, _| ()));
        initial
    }

    fn enabled(&self, state: &S::State, out: &mut Vec<S::Action>) {
        match self.eager(state) {
            Some(step) => out.push(step.action),
            None => {
                self.chosen(state, out);
            }
        }
    }

    fn step(&self, state: &mut S::State, action: &S::Action, found: &mut Found) {
        self.system.step(state, action, found);
        if found.violations.is_empty() {
            self.pass(state, |_, passed| {
                found.marks.unite(&passed.marks);
                found.refuted |= passed.refuted;
            });
        }
        if found.refuted != 0 {
            *self.refuting.lock().unwrap_or_else(PoisonError::into_inner) |= found.refuted;
        }
    }

    fn class(&self, state: &S::State, action: &S::Action) -> Class {
        self.system.class(state, action)
    }

    fn done(&self, state: &S::State) -> bool {
        self.system.done(state)
    }

    fn encode(&self, state: &S::State, out: &mut Vec<u8>) {
        self.system.canonical(state, out);
    }

    fn survives(&self, violation: &Violation) -> bool {
        self.system.survives(violation)
    }

    fn owed(&self, state: &S::State) -> Vec<Violation> {
        self.system.owed(state)
    }
}
