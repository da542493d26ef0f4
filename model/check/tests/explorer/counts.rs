//! Exact numbers of states, and what a limit does to a verdict.

use std::cell::Cell;

use kvweft_check::explore::{Limit, MissProbability, Options, Verdict, explore, explore_with};

use crate::graph::Graph;
use crate::two_phase_commit::TwoPhaseCommit;

fn options() -> Options {
    Options { threads: 1, ..Options::default() }
}

#[test]
fn two_phase_commit_has_the_known_numbers_of_states() {
    for (managers, states) in [(3, 288), (4, 1_568), (5, 8_832), (6, 50_816), (7, 296_448)] {
        let outcome = explore(&TwoPhaseCommit::new(managers), &options());
        assert_eq!(outcome.counts.states, states, "{managers} resource managers");
        assert_eq!(outcome.verdict, Verdict::Holds);
        assert!(outcome.exhausted && outcome.liveness_judged);
        assert_eq!(outcome.counts.depth, 3 * u64::from(managers) + 1);
        assert_eq!((0..6).filter(|&mark| outcome.marks.contains(mark)).count(), 6);
    }
}

#[test]
fn an_exact_search_and_a_fingerprint_search_agree_to_the_last_number() {
    let system = TwoPhaseCommit::new(6);
    let by_fingerprint = explore(&system, &options());
    let exact = explore(&system, &Options { exact: true, ..options() });
    assert_eq!(exact.counts, by_fingerprint.counts);
    assert_eq!(exact.digest, by_fingerprint.digest);
    assert_eq!(exact.fingerprint_collisions, 0);
    assert_eq!(exact.miss, MissProbability::Zero);
    assert_eq!(by_fingerprint.miss.to_string(), "< 2^-97");
}

#[test]
fn a_system_without_states_holds() {
    let outcome = Graph::new().starting_at(&[]).explore();
    assert_eq!(outcome.verdict, Verdict::Holds);
    assert_eq!(outcome.counts.states, 0);
    assert_eq!(outcome.counts.depth, 0);
    assert_eq!(outcome.table_bytes_per_state(), 0);
}

#[test]
fn equal_initial_states_count_once() {
    let outcome = Graph::new().starting_at(&[3, 3, 4]).done(3).done(4).explore();
    assert_eq!((outcome.verdict, outcome.counts.states), (Verdict::Holds, 2));
}

#[test]
fn a_search_that_may_not_store_the_next_state_is_inconclusive() {
    let system = TwoPhaseCommit::new(5);
    let outcome = explore(&system, &Options { states_max: 8_831, ..options() });
    assert_eq!(outcome.verdict, Verdict::Inconclusive { ran_out_of: Limit::States });
    assert_eq!(outcome.counts.states, 8_831);
    assert!(!outcome.exhausted && !outcome.liveness_judged);

    let outcome = explore(&system, &Options { states_max: 8_832, ..options() });
    assert_eq!(outcome.verdict, Verdict::Holds);
}

#[test]
fn a_search_whose_tables_may_not_grow_is_inconclusive() {
    let system = TwoPhaseCommit::new(6);
    let whole = explore(&system, &options());
    let outcome = explore(&system, &Options { table_bytes_max: whole.table_bytes - 1, ..options() });
    assert_eq!(outcome.verdict, Verdict::Inconclusive { ran_out_of: Limit::Memory });
    assert!(outcome.table_bytes < whole.table_bytes);

    let outcome = explore(&system, &Options { table_bytes_max: whole.table_bytes, ..options() });
    assert_eq!(outcome.verdict, Verdict::Holds);
}

#[test]
fn a_violation_found_before_a_limit_is_still_a_violation() {
    let system = Graph::new().system("bad", 0, 1).breaks("p").system("on", 0, 2).system("further", 2, 3);
    let outcome = explore(&system, &Options { states_max: 2, ..options() });
    assert_eq!(outcome.verdict, Verdict::Violated);
    assert!(!outcome.exhausted);
}

#[test]
fn progress_is_told_level_by_level_and_only_grows() {
    let last = Cell::new((0, 0, 0));
    let outcome = explore_with(&TwoPhaseCommit::new(4), &options(), &|progress| {
        let now = (progress.depth, progress.states, progress.transitions);
        assert!(now >= last.get());
        last.set(now);
    });
    assert_eq!(last.get(), (outcome.counts.depth, outcome.counts.states, outcome.counts.transitions));
}
