//! The manager against a naive reference: whatever is done to it in whatever legal order, the accounts balance, every page
//! has one owner, what is visible is complete, and in the end everything comes back.

use kvweft_tests::drive::run;
use kvweft_tests::operation::any_case;
use kvweft_tests::runner::judge;

#[test]
fn an_engine_that_does_both_keeps_every_invariant_after_every_input() {
    judge(4000, &any_case(false, 1, 80), run);
}

#[test]
fn a_prefill_and_a_decode_engine_keep_every_invariant_after_every_input() {
    judge(4000, &any_case(true, 1, 80), run);
}
