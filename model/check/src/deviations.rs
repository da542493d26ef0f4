//! Bounds on how far an interleaving deviates from an order that a simple scheduler would choose. Most bugs of concurrency
//! need few deviations; a search within the bound proves nothing beyond it.

use std::borrow::Cow;

use kvweft_trace::StepLine;

use crate::system::{Class, Found, System, Violation};
use crate::words::Told;

/// What counts as a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// To pass over an action: the scheduler takes the first that is possible, in the order of [`System::enabled`].
    Delay,
    /// To take an action of another actor while the one that acted last could go on.
    Preemption,
}

/// A system under a scheduler that deviates at most so many times.
pub struct Deviating<'a, S> {
    /// The system.
    pub system: &'a S,
    /// What is counted.
    pub deviation: Deviation,
    /// How often, at most.
    pub most: u32,
}

/// A state, what is left of the deviations, and whom it would be one to interrupt.
#[derive(Clone, Debug)]
pub struct Deviated<T> {
    inner: T,
    left: u32,
    running: Option<Cow<'static, str>>,
}

impl<S: System> Deviating<'_, S> {
    /// Deviations that it takes to choose each of the actions of `state`.
    fn costs(&self, state: &Deviated<S::State>, enabled: &[S::Action]) -> Vec<u32> {
        match self.deviation {
            Deviation::Delay => (0..enabled.len() as u32).collect(),
            Deviation::Preemption => {
                let runs = |action| state.running == Some(self.system.actor(&state.inner, action));
                let goes_on = enabled.iter().any(runs);
                enabled.iter().map(|action| u32::from(goes_on && !runs(action))).collect()
            }
        }
    }
}

impl<S: System> System for Deviating<'_, S> {
    type State = Deviated<S::State>;
    type Action = S::Action;

    fn initial(&self) -> Vec<Self::State> {
        let initial = self.system.initial().into_iter();
        initial.map(|inner| Deviated { inner, left: self.most, running: None }).collect()
    }

    fn enabled(&self, state: &Self::State, out: &mut Vec<S::Action>) {
        let mut enabled = Vec::new();
        self.system.enabled(&state.inner, &mut enabled);
        let costs = self.costs(state, &enabled);
        out.extend(enabled.into_iter().zip(costs).filter(|&(_, cost)| cost <= state.left).map(|(action, _)| action));
    }

    fn step(&self, state: &mut Self::State, action: &S::Action, found: &mut Found) {
        let mut enabled = Vec::new();
        self.system.enabled(&state.inner, &mut enabled);
        let place = enabled.iter().position(|other| other == action).expect("it is enabled");
        state.left -= self.costs(state, &enabled)[place];
        if self.deviation == Deviation::Preemption {
            state.running = Some(self.system.actor(&state.inner, action));
        }
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
        if let Some(running) = &state.running {
            out.extend_from_slice(running.as_bytes());
            out.push(running.len() as u8);
        }
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
