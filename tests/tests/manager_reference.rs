//! The manager against a naive reference: whatever is done to it in whatever legal order, the accounts balance, every page
//! has one owner, what is visible is complete, and in the end everything comes back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvweft_core::{Rule, RuleSet, Site, WritePolicy};
use kvweft_tests::drive::run;
use kvweft_tests::operation::{Case, Operation, Setup, any_case};
use kvweft_tests::runner::{find, judge};

#[test]
fn an_engine_that_does_both_keeps_every_invariant_after_every_input() {
    judge(4000, &any_case(false, 1, 80), run);
}

#[test]
fn a_prefill_and_a_decode_engine_keep_every_invariant_after_every_input() {
    judge(4000, &any_case(true, 1, 80), run);
}

#[test]
fn two_steps_in_flight_keep_every_invariant_too() {
    judge(1000, &any_case(false, 2, 80), run);
    judge(1000, &any_case(true, 2, 80), run);
}

/// What the reference must notice: it is worth as much as the defects that it finds.
const NOTICED: &[(Rule, Site, bool)] = &[
    (Rule::KvReadWaitsLayer, Site::RaggedPrefill, false),
    (Rule::KvReadWaitsLayer, Site::PagedDecode, false),
    (Rule::StoreWaitsForward, Site::Offload, false),
    (Rule::SendWaitsWrites, Site::Forward, true),
    (Rule::SendWaitsWrites, Site::Reload, true),
    (Rule::PinUntilStored, Site::Abort, false),
    (Rule::PinUntilStored, Site::Preempt, false),
    (Rule::PinUntilLoaded, Site::Reload, false),
    (Rule::PinUntilSent, Site::Abort, true),
    (Rule::PinUntilSent, Site::Failure, true),
    (Rule::HoldUntilDrained, Site::Abort, true),
    (Rule::EvictSkipsLeased, Site::Device, false),
    (Rule::EvictSkipsLeased, Site::Host, false),
    (Rule::VisibleAfterComplete, Site::Forward, false),
    (Rule::VisibleAfterComplete, Site::Offload, false),
    (Rule::MetadataNamesRoom, Site::Receive, true),
    (Rule::FailureReachesPeer, Site::PrefillAbort, true),
    (Rule::ReserveBeforeHold, Site::Admit, false),
];

/// What does not hold with a rule left out. A panic of such a manager is as good a sign as a check that fails.
fn shown(case: &Case, rules: RuleSet) -> Option<String> {
    let case = Case { setup: Setup { rules, ..case.setup.clone() }, operations: case.operations.clone() };
    catch_unwind(AssertUnwindSafe(|| run(&case).err())).unwrap_or_else(|_| Some("it panics".to_owned()))
}

#[test]
fn the_reference_notices_a_manager_that_leaves_out_a_rule() {
    let mut unnoticed = Vec::new();
    for &(rule, site, split) in NOTICED {
        let rules = RuleSet::ALL.without(rule.at(site));
        match find(5000, &any_case(split, 1, 80), |case| shown(case, rules)) {
            Some((after, what)) => println!("{}@{}, case {after}: {what}", rule.name(), site.name()),
            None => unnoticed.push(format!("{}@{}", rule.name(), site.name())),
        }
    }
    assert!(unnoticed.is_empty(), "nothing shows that these are left out: {unnoticed:?}");
}

#[test]
fn leaving_out_a_rule_of_layouts_shows_nothing_because_the_reference_has_none() {
    // The control: a dropped rule alone, without a defect that pages could show, is not taken for one.
    let rules = RuleSet::ALL.without(Rule::CopyMovesPoolLayout.at(Site::Reload));
    assert_eq!(find(500, &any_case(false, 1, 80), |case| shown(case, rules)), None);
}

#[test]
fn a_reload_that_does_not_wait_for_the_step_of_a_former_owner_is_noticed() {
    let submit = |request, prompt: &[u8]| Operation::Submit {
        request,
        prompt: prompt.to_vec(),
        tail: 0,
        output: 0,
        priority: 0,
        late: false,
    };
    let setup = Setup {
        device_pages: [4, 1],
        host_pages: 4,
        write_policy: WritePolicy::Through,
        chunk_pages: 3,
        ..Setup::small()
    };
    let operations = vec![
        submit(0, &[0, 0]),
        Operation::Round,
        // Takes all four pages; its first step, of three pages, is still to run when it goes away.
        submit(1, &[1, 1, 1, 1]),
        Operation::Abort { engine: 0, request: 1 },
        // Reloads the first prompt into pages which that step will write.
        submit(2, &[0, 0]),
        Operation::RoundWithout(0),
        Operation::Round,
    ];
    let case = Case { setup, operations };
    assert_eq!(shown(&case, RuleSet::ALL), None);
    let shows = shown(&case, RuleSet::ALL.without(Rule::LoadWaitsForward.at(Site::Reload)));
    let shows = shows.expect("the step writes over what was reloaded");
    assert!(shows.contains("is visible as block"), "{shows}");
}
