//! Nothing that a manager does depends on the numbers that it gives to pages, generations, transfers, lives and steps.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use kvweft_core::{AllocationOrder, WritePolicy};
use kvweft_tests::operation::{Case, Setup, any_case, any_operation};
use kvweft_tests::rig::Rig;
use kvweft_tests::runner::judge;
use kvweft_tests::shadow::Checked;
use kvweft_tests::twins::{Moment, compare, warm_up};
use proptest::collection::vec;
use proptest::prelude::*;

fn in_the_other_order(case: &Case) -> Checked {
    let other = Setup { order: AllocationOrder::Descending, ..case.setup.clone() };
    compare(case, Rig::new(&case.setup), Rig::new(&other))
}

fn after_another_past(case: &Case) -> Checked {
    // What is remembered of the past must be the same: so it must be short.
    let setup = Setup { concluded_kept: 2, ..case.setup.clone() };
    let (mut left, mut right) = (Rig::new(&setup), Rig::new(&setup));
    warm_up(&mut left, &[])?;
    warm_up(&mut right, &[case.operations.len() as u8 % 11, 7, 4])?;
    compare(case, left, right)
}

#[test]
fn the_order_in_which_pages_are_handed_out_changes_nothing_but_their_numbers() {
    judge(600, &any_case(false, 1, 80), in_the_other_order);
    judge(600, &any_case(true, 1, 80), in_the_other_order);
}

#[test]
fn a_reset_engine_with_a_past_acts_like_one_with_another_past() {
    judge(600, &any_case(false, 1, 80), after_another_past);
    judge(600, &any_case(true, 1, 80), after_another_past);
}

#[test]
fn states_with_equal_encodings_answer_equal_inputs_with_equal_encodings() {
    for (policy, chunk_pages) in [(WritePolicy::Off, 1), (WritePolicy::Through, 0), (WritePolicy::Back, 0)] {
        // So small that states come again.
        let setup = Setup { write_policy: policy, chunk_pages, ..Setup::small() };
        let known: RefCell<HashMap<Vec<u8>, (Moment, u32)>> = RefCell::default();
        let names: RefCell<BTreeMap<Vec<u8>, u32>> = RefCell::default();
        let compared = RefCell::new(0);
        let cases = vec(any_operation(), 1..60).prop_map(|operations| Case { setup: setup.clone(), operations });
        judge(300, &cases, |case| {
            let mut rig = Rig::new(&case.setup);
            // An encoding has a byte for the name of a block: start afresh before they run out.
            if names.borrow().len() > 100 {
                names.borrow_mut().clear();
                known.borrow_mut().clear();
            }
            rig.names.clone_from(&names.borrow());
            for operation in &case.operations {
                if rig.operate(operation).is_err() || rig.names.len() > 200 {
                    break;
                }
                names.borrow_mut().clone_from(&rig.names);
                let (code, moment) = Moment::of(&rig);
                let mut known = known.borrow_mut();
                let (first, times) = known.entry(code).or_insert_with(|| (moment.clone(), 0));
                *times += 1;
                if (2..12).contains(times) {
                    *compared.borrow_mut() += 1;
                    first.compare(&moment)?;
                }
            }
            Ok(())
        });
        let compared = *compared.borrow();
        assert!(compared > 300, "only {compared} states came again");
    }
}
