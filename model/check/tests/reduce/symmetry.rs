//! Symmetry by sorting whole records.

use kvweft_check::explore::{Options, Verdict, explore};

use crate::both;
use crate::two_phase_commit::{ALL_DECIDE_ALIKE, Action, TwoPhaseCommit};

#[test]
fn two_phase_commit_of_eight_managers_has_1461_orbits() {
    let outcome = explore(&TwoPhaseCommit::new(8), &Options { reduce: true, ..Options::default() });
    assert_eq!((outcome.verdict, outcome.counts.states), (Verdict::Holds, 1_461));
}

#[test]
fn a_counterexample_in_the_quotient_names_real_managers_and_is_as_short() {
    let faulty = TwoPhaseCommit { managers: 4, aborts_after_prepared: true };
    let (whole, reduced, _) = both(&faulty, &|| "two-phase commit".to_owned());
    let length =
        |outcome: &kvweft_check::explore::Outcome<Action>| outcome.trace(ALL_DECIDE_ALIKE).map(|t| t.steps.len());
    assert_eq!(length(&whole), length(&reduced));
    assert!(reduced.counts.states * 5 < whole.counts.states);
    assert_eq!(explore(&faulty, &Options::default()).counts.states, whole.counts.states);
}
