//! Symmetry by sorting whole records.

use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::system::{Class, Found, System, Violation};

use crate::both;
use crate::two_phase_commit::{ALL_DECIDE_ALIKE, Action, State, TwoPhaseCommit};

/// Two-phase commit, with resource managers taken for alike.
struct Alike(TwoPhaseCommit);

impl System for Alike {
    type State = State;
    type Action = Action;

    fn initial(&self) -> Vec<State> {
        self.0.initial()
    }

    fn enabled(&self, state: &State, out: &mut Vec<Action>) {
        self.0.enabled(state, out);
    }

    fn step(&self, state: &mut State, action: &Action, found: &mut Found) {
        self.0.step(state, action, found);
    }

    fn class(&self, state: &State, action: &Action) -> Class {
        self.0.class(state, action)
    }

    fn done(&self, state: &State) -> bool {
        self.0.done(state)
    }

    fn encode(&self, state: &State, out: &mut Vec<u8>) {
        self.0.encode(state, out);
    }

    /// A record is the bits of one manager in all five sets.
    fn canonical(&self, state: &State, out: &mut Vec<u8>) {
        let mut sets = Vec::new();
        self.0.encode(state, &mut sets);
        let (sets, decision) = (&sets[..10], sets[10]);
        let record = |manager: u32| {
            let bits = sets.chunks(2).map(|set| u16::from_le_bytes([set[0], set[1]]) >> manager & 1);
            bits.fold(0u8, |record, bit| record << 1 | bit as u8)
        };
        out.extend((0..self.0.managers).map(record));
        out.sort_unstable();
        out.push(decision);
    }

    fn owed(&self, state: &State) -> Vec<Violation> {
        self.0.owed(state)
    }
}

#[test]
fn two_phase_commit_of_eight_managers_has_1461_orbits() {
    let outcome = explore(&Alike(TwoPhaseCommit::new(8)), &Options { reduce: true, ..Options::default() });
    assert_eq!((outcome.verdict, outcome.counts.states), (Verdict::Holds, 1_461));
}

#[test]
fn a_counterexample_in_the_quotient_names_real_managers_and_is_as_short() {
    let faulty = Alike(TwoPhaseCommit { managers: 4, aborts_after_prepared: true });
    let (whole, reduced, _) = both(&faulty, &|| "two-phase commit".to_owned());
    let length =
        |outcome: &kvweft_check::explore::Outcome<Action>| outcome.trace(ALL_DECIDE_ALIKE).map(|t| t.steps.len());
    assert_eq!(length(&whole), length(&reduced));
    assert!(reduced.counts.states * 5 < whole.counts.states);
    assert_eq!(explore(&faulty, &Options::default()).counts.states, whole.counts.states);
}
