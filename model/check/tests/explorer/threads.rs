//! The number of threads changes nothing but the speed.

use kvweft_check::explore::{Options, WantedProperties, explore};

use crate::graph::Graph;
use crate::two_phase_commit::{ALL_DECIDE_ALIKE, TwoPhaseCommit};

/// Options under which a search ends in all the ways it can.
fn ways_to_end() -> Vec<Options> {
    let base = Options::default();
    vec![
        base.clone(),
        Options { exact: true, ..base.clone() },
        Options { expand_violating: true, ..base.clone() },
        Options { stop_at_first: true, ..base.clone() },
        Options { liveness: false, ..base.clone() },
        Options { states_max: 20_000, ..base.clone() },
        Options { table_bytes_max: 1_500_000, ..base.clone() },
        Options { table_bytes_max: 1_500_000, exact: true, ..base.clone() },
        Options { want: WantedProperties::Listed(vec!["other".to_owned()]), ..base },
    ]
}

#[test]
fn outcomes_are_equal_for_1_2_3_and_16_threads() {
    for aborts_after_prepared in [false, true] {
        let system = TwoPhaseCommit { managers: 6, aborts_after_prepared };
        for options in ways_to_end() {
            let alone = explore(&system, &Options { threads: 1, ..options.clone() });
            for threads in [2, 3, 16] {
                let outcome = explore(&system, &Options { threads, ..options.clone() });
                assert_eq!(outcome, alone, "{threads} threads, {options:?}");
            }
            if alone.exhausted || options.stop_at_first {
                let wanted = aborts_after_prepared && options.want == WantedProperties::All;
                assert_eq!(alone.trace(ALL_DECIDE_ALIKE).is_some(), wanted, "{options:?}");
            }
        }
    }
}

#[test]
fn of_equally_encoded_states_the_one_of_the_least_step_is_kept() {
    // 1 and 11 encode alike; only what can be done in the one that is kept is explored. The first level is broad enough
    // to be split among workers.
    let mut system = Graph::new().encoded_modulo(1_000);
    for fan in 1..450 {
        system = system.system("fan", 0, fan);
    }
    for fan in (2..450).rev() {
        system = system.system("late", fan, 1_950);
    }
    system = system.system("first", 1, 950).system("kept", 950, 951).system("dropped", 1_950, 952);
    let alone = explore(&system, &Options { threads: 1, ..Options::default() });
    assert_eq!(alone.counts.states, 452);
    assert!(alone.marks.contains(system.edge_count() - 2) && !alone.marks.contains(system.edge_count() - 1));
    for threads in [2, 16] {
        assert_eq!(explore(&system, &Options { threads, ..Options::default() }), alone);
    }
}
