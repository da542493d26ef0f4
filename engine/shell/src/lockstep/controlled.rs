//! A gate that lets one operation happen at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvweft_core::RuleSite;
use kvweft_world::Operation;

use crate::gate::{Gate, Held};

/// How long a thread may take to come to its gate and through it: far more than it ever needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Holds every thread before its next operation until that very operation is granted.
#[derive(Debug, Default)]
pub struct Controlled {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    granted: Option<Operation>,
    held: Option<RuleSite>,
}

/// What came of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The operation has happened.
    Done,
    /// A fence keeps it back.
    Held(RuleSite),
    /// No thread came to do it.
    Nobody,
}

impl Controlled {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is a few plain values, right whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one operation happen. `poke` must wake every thread that may be waiting at the gate.
    pub fn grant(&self, operation: Operation, poke: impl Fn()) -> Granted {
        let mut state = self.state();
        state.granted = Some(operation);
        state.held = None;
        drop(state);
        poke();
        let until = Instant::now() + PATIENCE;
        let mut state = self.state();
        loop {
            if state.granted.is_none() {
                return Granted::Done;
            }
            if let Some(owed_to) = state.held {
                return Granted::Held(owed_to);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.granted = None;
                return Granted::Nobody;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Holds nothing from now on.
    pub fn release(&self) {
        let mut state = self.state();
        state.open = true;
        state.granted = None;
    }
}

impl Gate for Controlled {
    fn open(&self) -> bool {
        self.state().open
    }

    fn allows(&self, operation: &Operation) -> bool {
        let state = self.state();
        state.open || state.granted.as_ref() == Some(operation)
    }

    fn done(&self, operation: &Operation) {
        let mut state = self.state();
        if state.granted.as_ref() == Some(operation) {
            state.granted = None;
            self.changed.notify_all();
        }
    }

    fn held(&self, operation: &Operation, held: Held) {
        let mut state = self.state();
        if state.granted.as_ref() == Some(operation) {
            state.held = Some(held.owed_to);
            self.changed.notify_all();
        }
    }
}
