//! The manager against a naive reference: whatever is done to it in whatever legal order, the accounts balance, every page
//! has one owner, what is visible is complete, and in the end everything comes back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvweft_core::{Rule, RuleSet, Site};
use kvweft_tests::drive::run;
use kvweft_tests::operation::any_case;
use kvweft_tests::runner::{find, judge};

#[test]
fn an_engine_that_does_both_keeps_every_invariant_after_every_input() {
    judge(6000, &any_case(false, 1, 80), run);
}

#[test]
fn a_prefill_and_a_decode_engine_keep_every_invariant_after_every_input() {
    judge(6000, &any_case(true, 1, 80), run);
}

#[test]
fn two_steps_in_flight_keep_every_invariant_too() {
    judge(2000, &any_case(false, 2, 80), run);
    judge(2000, &any_case(true, 2, 80), run);
}

/// What the reference must notice: it is worth as much as the defects that it finds.
const NOTICED: &[(Rule, Site, bool)] = &[
    (Rule::KvReadWaitsLayer, Site::RaggedPrefill, false),
    (Rule::KvReadWaitsLayer, Site::PagedDecode, false),
    (Rule::LoadWaitsForward, Site::Reload, false),
    (Rule::StoreWaitsForward, Site::Offload, false),
    (Rule::SendWaitsWrites, Site::Forward, true),
    (Rule::SendWaitsWrites, Site::Reload, true),
    (Rule::PinUntilStored, Site::Abort, false),
    (Rule::PinUntilStored, Site::Preempt, false),
    (Rule::PinUntilLoaded, Site::Reload, false),
    (Rule::PinUntilSent, Site::Abort, true),
    (Rule::PinUntilSent, Site::Failure, true),
    (Rule::HoldUntilDrained, Site::Abort, true),
    (Rule::HoldUntilDrained, Site::Deadline, true),
    (Rule::EvictSkipsLeased, Site::Device, false),
    (Rule::EvictSkipsLeased, Site::Host, false),
    (Rule::VisibleAfterComplete, Site::Forward, false),
    (Rule::VisibleAfterComplete, Site::Offload, false),
    (Rule::NoEarlyHitOnLoading, Site::Match, false),
    (Rule::MetadataNamesRoom, Site::Receive, true),
    (Rule::FailureReachesPeer, Site::PrefillAbort, true),
    (Rule::WakeOnCompletion, Site::Reload, false),
    (Rule::ReserveBeforeHold, Site::Admit, false),
];

#[test]
fn the_reference_notices_a_manager_that_leaves_out_a_rule() {
    let mut unnoticed = Vec::new();
    for &(rule, site, split) in NOTICED {
        let rules = RuleSet::ALL.without(rule.at(site));
        let strategy = any_case(split, 1, 80);
        let broken = |case: &kvweft_tests::operation::Case| {
            let mut case = case.clone();
            case.setup.rules = rules;
            // A panic of a manager that leaves out a rule is as good a sign as a check that does not hold.
            catch_unwind(AssertUnwindSafe(|| run(&case))).is_ok_and(|checked| checked.is_ok())
        };
        match find(20_000, &strategy, |case| !broken(case)) {
            Some(after) => println!("{} at {}: after {after} cases", rule.info().name, site.name()),
            None => unnoticed.push(format!("{}@{}", rule.info().name, site.name())),
        }
    }
    assert!(unnoticed.is_empty(), "nothing shows that these are left out: {unnoticed:?}");
}
