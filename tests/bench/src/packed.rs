//! Two-phase commit in one word, for kvweft and for stateright: the relation of stateright's example, step for step.

use std::fmt;

use kvweft_check::system::{Class, Found, System, Violation};
use stateright::{Model, Property};

/// The protocol for some number of resource managers, at most 15.
#[derive(Clone, Copy)]
pub(crate) struct TwoPhaseCommit {
    pub(crate) managers: u32,
}

/// A quarter of the word a set of managers: prepared (and the message sent), seen by the transaction manager, committed,
/// aborted; the top bit of two sets is the transaction manager's own decision.
pub(crate) type State = u64;

const SENT: u32 = 0;
const SEEN: u32 = 16;
const COMMITTED: u32 = 32;
const ABORTED: u32 = 48;
const TM_COMMITTED: u64 = 1 << (COMMITTED + 15);
const TM_ABORTED: u64 = 1 << (ABORTED + 15);

/// An action; the number is that of a resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    Commit,
    Abort,
    SeePrepared(u8),
    Prepare(u8),
    ChooseAbort(u8),
    ObeyCommit(u8),
    ObeyAbort(u8),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl TwoPhaseCommit {
    #[inline]
    fn all(self) -> u64 {
        (1 << self.managers) - 1
    }

    #[inline]
    fn list(self, state: State, out: &mut Vec<Action>) {
        let open = state & (TM_COMMITTED | TM_ABORTED) == 0;
        if open {
            if state >> SEEN & self.all() == self.all() {
                out.push(Action::Commit);
            }
            out.push(Action::Abort);
        }
        for manager in 0..self.managers as u8 {
            let has = |set: u32| state >> (set + u32::from(manager)) & 1 == 1;
            // A message that was sent stays; whoever sent it works no more.
            let working = !(has(SENT) || has(COMMITTED) || has(ABORTED));
            if open && has(SENT) {
                out.push(Action::SeePrepared(manager));
            }
            if working {
                out.push(Action::Prepare(manager));
                out.push(Action::ChooseAbort(manager));
            }
            if state & TM_COMMITTED != 0 {
                out.push(Action::ObeyCommit(manager));
            }
            if state & TM_ABORTED != 0 {
                out.push(Action::ObeyAbort(manager));
            }
        }
    }

    #[inline]
    fn take(state: &mut State, action: Action) {
        let put = |state: &mut State, set: u32, manager: u8| *state |= 1 << (set + u32::from(manager));
        match action {
            Action::Commit => *state |= TM_COMMITTED,
            Action::Abort => *state |= TM_ABORTED,
            Action::SeePrepared(manager) => put(state, SEEN, manager),
            Action::Prepare(manager) => put(state, SENT, manager),
            Action::ChooseAbort(manager) | Action::ObeyAbort(manager) => put(state, ABORTED, manager),
            Action::ObeyCommit(manager) => put(state, COMMITTED, manager),
        }
    }

    #[inline]
    fn apart(self, state: State) -> bool {
        state >> COMMITTED & self.all() != 0 && state >> ABORTED & self.all() != 0
    }
}

impl System for TwoPhaseCommit {
    type State = State;
    type Action = Action;
    const ENCODES_A_WORD: bool = true;

    fn initial(&self) -> Vec<State> {
        vec![0]
    }

    fn enabled(&self, state: &State, out: &mut Vec<Action>) {
        self.list(*state, out);
    }

    fn step(&self, state: &mut State, action: &Action, found: &mut Found) {
        Self::take(state, *action);
        if self.apart(*state) {
            let detail = "expected one decision, got a commit and an abort".to_owned();
            found.violations.push(Violation { property: "consistent", detail });
        }
    }

    fn class(&self, _: &State, action: &Action) -> Class {
        if matches!(action, Action::ChooseAbort(_)) { Class::Environment } else { Class::System }
    }

    fn done(&self, state: &State) -> bool {
        (state >> COMMITTED | state >> ABORTED) & self.all() == self.all()
    }

    fn encode(&self, state: &State, out: &mut Vec<u8>) {
        out.extend_from_slice(&state.to_le_bytes());
    }
}

impl Model for TwoPhaseCommit {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![0]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.list(*state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        Self::take(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("consistent", |model: &Self, state: &State| !model.apart(*state))]
    }
}
