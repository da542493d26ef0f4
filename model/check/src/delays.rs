//! Delay bounding: all interleavings that differ from one fixed order in at most so many places. Most bugs of concurrency
//! need few delays; a search within the bound proves nothing beyond it.

use std::borrow::Cow;

use kvweft_trace::StepLine;

use crate::system::{Class, Found, System, Violation};
use crate::words::Told;

/// A system under a scheduler that takes the first enabled action, and may pass over `delays` actions in all.
pub struct Delayed<'a, S> {
    /// The system.
    pub system: &'a S,
    /// How many actions may be passed over.
    pub delays: u32,
}

/// A state, and what is left of the delays.
#[derive(Clone, Debug)]
pub struct Delays<T> {
    inner: T,
    left: u32,
}

impl<S: System> System for Delayed<'_, S> {
    type State = Delays<S::State>;
    type Action = S::Action;

    fn initial(&self) -> Vec<Self::State> {
        self.system.initial().into_iter().map(|inner| Delays { inner, left: self.delays }).collect()
    }

    fn enabled(&self, state: &Self::State, out: &mut Vec<S::Action>) {
        let begin = out.len();
        self.system.enabled(&state.inner, out);
        out.truncate(begin + 1 + state.left as usize);
    }

    fn step(&self, state: &mut Self::State, action: &S::Action, found: &mut Found) {
        let mut enabled = Vec::new();
        self.system.enabled(&state.inner, &mut enabled);
        let passed = enabled.iter().position(|other| other == action).expect("it is enabled");
        state.left -= passed as u32;
        self.system.step(&mut state.inner, action, found);
    }

    fn class(&self, state: &Self::State, action: &S::Action) -> Class {
        self.system.class(&state.inner, action)
    }

    fn done(&self, state: &Self::State) -> bool {
        self.system.done(&state.inner)
    }

    fn encode(&self, state: &Self::State, out: &mut Vec<u8>) {
        self.system.encode(&state.inner, out);
        out.extend(state.left.to_le_bytes());
    }

    fn survives(&self, violation: &Violation) -> bool {
        self.system.survives(violation)
    }

    fn owed(&self, state: &Self::State) -> Vec<Violation> {
        self.system.owed(&state.inner)
    }

    fn actor(&self, state: &Self::State, action: &S::Action) -> Cow<'static, str> {
        self.system.actor(&state.inner, action)
    }

    fn tell(&self, initial: usize, actions: &[S::Action]) -> Told {
        self.system.tell(initial, actions)
    }

    fn retrace(&self, initial: usize, lines: &[StepLine]) -> Result<Vec<S::Action>, String> {
        self.system.retrace(initial, lines)
    }
}
