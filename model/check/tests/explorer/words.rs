//! A system whose encodings are words is searched exactly, and otherwise like any other.

use kvweft_check::explore::{MissProbability, Options, explore};
use kvweft_check::system::{Class, Found, System};

use crate::two_phase_commit::{Action, State, TwoPhaseCommit};

/// Two-phase commit with at most 8 resource managers, in one word.
struct InAWord(TwoPhaseCommit);

impl System for InAWord {
    type State = State;
    type Action = Action;
    const ENCODES_A_WORD: bool = true;

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
        let mut wide = Vec::new();
        self.0.encode(state, &mut wide);
        // The upper half of each set is empty.
        out.extend(wide.chunks(2).map(|set| set[0]));
        out.extend([0, 0]);
    }
}

#[test]
fn words_and_fingerprints_give_the_same_counts_and_traces() {
    for aborts_after_prepared in [false, true] {
        let system = TwoPhaseCommit { managers: 6, aborts_after_prepared };
        let wide = explore(&system, &Options::default());
        for (threads, exact) in [(1, false), (2, false), (16, true)] {
            let words = explore(&InAWord(system), &Options { threads, exact, ..Options::default() });
            assert_eq!((words.verdict, words.counts, &words.traces), (wide.verdict, wide.counts, &wide.traces));
            assert_eq!((words.miss, words.fingerprint_collisions), (MissProbability::Zero, 0));
            assert!(words.table_bytes + 7 * wide.counts.states < wide.table_bytes);
        }
    }
}
