//! Two-phase commit after Gray and Lamport, "Consensus on Transaction Commit" (2006), section 3: a transaction manager
//! and N resource managers that share a growing set of messages. Steps that change nothing are left out.

use std::fmt;

use kvweft_check::system::{Class, Found, System, Violation};

/// The property that the decisions of two resource managers break.
pub(crate) const ALL_DECIDE_ALIKE: &str = "all-decide-alike";

/// The protocol for some number of resource managers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoPhaseCommit {
    /// How many resource managers there are, at most 16.
    pub(crate) managers: u32,
    /// The fault: a manager may still abort of its own accord after it said that it is prepared.
    pub(crate) aborts_after_prepared: bool,
}

impl TwoPhaseCommit {
    /// The correct protocol.
    pub(crate) fn new(managers: u32) -> Self {
        Self { managers, aborts_after_prepared: false }
    }
}

/// One state; the sets have one bit a resource manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Has said that it is prepared (and the message is there for ever).
    prepared_sent: u16,
    /// Prepared, neither committed nor aborted.
    prepared: u16,
    committed: u16,
    aborted: u16,
    /// Whose message the transaction manager has seen.
    seen: u16,
    decision: Decision,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Decision {
    #[default]
    None,
    Commit,
    Abort,
}

/// One action; the number is that of a resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    Commit,
    Abort,
    SeePrepared(u32),
    Prepare(u32),
    ChooseAbort(u32),
    ObeyCommit(u32),
    ObeyAbort(u32),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit => f.write_str("tm commit"),
            Self::Abort => f.write_str("tm abort"),
            Self::SeePrepared(manager) => write!(f, "tm see-prepared r{manager}"),
            Self::Prepare(manager) => write!(f, "r{manager} prepare"),
            Self::ChooseAbort(manager) => write!(f, "r{manager} choose-abort"),
            Self::ObeyCommit(manager) => write!(f, "r{manager} obey-commit"),
            Self::ObeyAbort(manager) => write!(f, "r{manager} obey-abort"),
        }
    }
}

impl System for TwoPhaseCommit {
    type State = State;
    type Action = Action;

    fn initial(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn enabled(&self, state: &State, out: &mut Vec<Action>) {
        let all = ((1u32 << self.managers) - 1) as u16;
        if state.decision == Decision::None {
            if state.seen == all {
                out.push(Action::Commit);
            }
            out.push(Action::Abort);
        }
        for manager in 0..self.managers {
            let bit = 1 << manager;
            let decided = (state.committed | state.aborted) & bit != 0;
            let working = !decided && state.prepared & bit == 0;
            if state.decision == Decision::None && state.prepared_sent & !state.seen & bit != 0 {
                out.push(Action::SeePrepared(manager));
            }
            if working {
                out.push(Action::Prepare(manager));
            }
            if working || self.aborts_after_prepared && !decided {
                out.push(Action::ChooseAbort(manager));
            }
            if state.decision == Decision::Commit && state.committed & bit == 0 {
                out.push(Action::ObeyCommit(manager));
            }
            if state.decision == Decision::Abort && state.aborted & bit == 0 {
                out.push(Action::ObeyAbort(manager));
            }
        }
    }

    fn step(&self, state: &mut State, action: &Action, found: &mut Found) {
        let decide = |state: &mut State, manager: u32| {
            state.prepared &= !(1 << manager);
            state.committed &= !(1 << manager);
            state.aborted &= !(1 << manager);
        };
        let mark = match *action {
            Action::Commit => {
                state.decision = Decision::Commit;
                0
            }
            Action::Abort => {
                state.decision = Decision::Abort;
                1
            }
            Action::SeePrepared(manager) => {
                state.seen |= 1 << manager;
                2
            }
            Action::Prepare(manager) => {
                state.prepared |= 1 << manager;
                state.prepared_sent |= 1 << manager;
                3
            }
            Action::ChooseAbort(manager) | Action::ObeyAbort(manager) => {
                decide(state, manager);
                state.aborted |= 1 << manager;
                4
            }
            Action::ObeyCommit(manager) => {
                decide(state, manager);
                state.committed |= 1 << manager;
                5
            }
        };
        found.marks.set(mark);
        if state.committed != 0 && state.aborted != 0 {
            found.violations.push(Violation {
                property: ALL_DECIDE_ALIKE,
                detail: "expected one decision, got a commit and an abort".to_owned(),
            });
        }
    }

    fn class(&self, _: &State, action: &Action) -> Class {
        match action {
            Action::ChooseAbort(_) => Class::Environment,
            _ => Class::System,
        }
    }

    fn done(&self, state: &State) -> bool {
        (state.committed | state.aborted).count_ones() == self.managers
    }

    fn encode(&self, state: &State, out: &mut Vec<u8>) {
        for set in [state.prepared_sent, state.prepared, state.committed, state.aborted, state.seen] {
            out.extend_from_slice(&set.to_le_bytes());
        }
        out.push(state.decision as u8);
    }

    /// A record is the bits of one manager in all five sets.
    fn canonical(&self, state: &State, out: &mut Vec<u8>) {
        let mut sets = Vec::new();
        self.encode(state, &mut sets);
        let (sets, decision) = (&sets[..10], sets[10]);
        let record = |manager: u32| {
            let bits = sets.chunks(2).map(|set| u16::from_le_bytes([set[0], set[1]]) >> manager & 1);
            bits.fold(0u8, |record, bit| record << 1 | bit as u8)
        };
        out.extend((0..self.managers).map(record));
        out.sort_unstable();
        out.push(decision);
    }
}
