//! The production case, told by the explorer.

use kvweft_check::build::{build, dropped, with_names};
use kvweft_check::explore::{Options, Outcome, Verdict, WantedProperties, explore};
use kvweft_check::scenario::{self, Scenario};
use kvweft_check::verdict::{Report, Settings, check};
use kvweft_core::RuleSet;
use kvweft_world::Action;

fn named(name: &str) -> Scenario {
    with_names(|names| scenario::load_embedded_one(name, names)).expect("built in").expect("right")
}

fn with_dropped(name: &str, rules: &[&str]) -> Outcome<Action> {
    let drops = dropped(rules.iter().copied()).expect("the rules exist");
    explore(&build(&named(name), drops), &Options::default())
}

fn report(name: &str) -> Report {
    let settings = Settings { explore: Options::default(), drop: None, only: None, grain: None };
    check(&named(name), &settings, &|_| ())
}

#[test]
fn as_found_it_fails_with_one_shortest_trace_for_each_cause() {
    let report = report("case-as-found");
    let found: Vec<(String, &str)> = report
        .causes
        .iter()
        .map(|cause| (cause.drops.join(" "), cause.trace.violation.property))
        .filter(|(_, property)| *property == "reads-see-own-content" || *property == "done-means-arrived")
        .collect();
    let has = |rule: &str| found.iter().any(|(drops, _)| drops == rule);
    for rule in [
        "host-layout-from-device",
        "copy-moves-pool-layout",
        "send-moves-pool-layout",
        "index-read-waits-layer@ragged-prefill",
    ] {
        assert!(has(rule), "{rule} alone reaches no reader; found {found:?}");
    }
}

#[test]
fn the_missing_layer_wait_is_found_in_fp8_as_well_as_in_bf16() {
    for dtype in ["fp8", "bf16"] {
        for (getter, site) in [("prefill", "ragged-prefill"), ("decode", "paged-decode")] {
            let name = format!("case-layer-wait-{dtype}-{getter}");
            let outcome = with_dropped(&name, &[&format!("index-read-waits-layer@{site}")]);
            let trace = outcome.trace("reads-see-own-content").unwrap_or_else(|| panic!("{name}"));
            assert!(trace.violation.detail.contains("index-k"), "{name}: {}", trace.violation.detail);
            assert_eq!(with_dropped(&name, &[]).verdict, Verdict::Holds, "{name}");
        }
    }
}

#[test]
fn the_same_reads_are_reachable_in_both_dtypes_by_traces_of_the_same_length() {
    let length = |dtype: &str| {
        let name = format!("case-layer-wait-{dtype}-prefill");
        let outcome = with_dropped(&name, &["index-read-waits-layer@ragged-prefill"]);
        outcome.trace("reads-see-own-content").expect("it is reachable").steps.len()
    };
    assert_eq!(length("fp8"), length("bf16"));
}

#[test]
fn layout_mistakes_fail_in_bf16_alone() {
    for rule in ["host-layout-from-device", "copy-moves-pool-layout", "send-moves-pool-layout"] {
        let fp8 = with_dropped("case-layer-wait-fp8-prefill", &[rule]);
        assert_eq!(fp8.verdict, Verdict::Holds, "{rule} in fp8");
        let bf16 = with_dropped("case-layer-wait-bf16-prefill", &[rule]);
        assert_eq!(bf16.verdict, Verdict::Violated, "{rule} in bf16");
        assert!(bf16.trace("layouts-match").is_some(), "{rule}");
        let read = bf16.trace("reads-see-own-content").or_else(|| bf16.trace("done-means-arrived"));
        assert!(read.expect("somebody uses the bytes").violation.detail.contains("mislaid"), "{rule}");
    }
}

#[test]
fn corruption_and_the_stuck_run_have_separate_causes() {
    let corrupt = report("case-host-layout-fixed");
    assert!(corrupt.violates().contains(&"reads-see-own-content"));
    assert!(!corrupt.violates().contains(&"every-request-ends"), "{:?}", corrupt.violates());
    let stuck = report("case-restart-after-wedge");
    assert!(stuck.violates().contains(&"every-request-ends"));
    assert!(!stuck.violates().contains(&"reads-see-own-content"), "{:?}", stuck.violates());
}

#[test]
fn after_a_complete_reset_nothing_of_the_wedged_run_is_left() {
    // What wedges r1 is the failure that nobody told; what would wedge r2 is what an incomplete reset leaves behind.
    let scenario = "case-restart-after-wedge";
    let untold = with_dropped(scenario, &["failure-reaches-peer@prefill-abort"]);
    let incomplete = with_dropped(scenario, &["reset-clears-everything@rooms"]);
    let waits = |outcome: &Outcome<Action>, property: &str| outcome.trace(property).map(|t| t.violation.detail.clone());
    assert_eq!(waits(&untold, "every-request-ends").as_deref(), Some("r1 waits for ever"));
    assert!(waits(&incomplete, "every-page-returns").is_some());
    assert!(waits(&incomplete, "every-request-ends").is_some_and(|detail| detail.contains("r2")));
    assert_eq!(with_dropped(scenario, &[]).verdict, Verdict::Holds);
}

#[test]
fn cache_on_bf16_and_every_rule_on_holds_for_safety_and_liveness() {
    let outcome = explore(&build(&named("case-everything-on"), RuleSet::EMPTY), &Options::default());
    assert_eq!(outcome.verdict, Verdict::Holds);
    assert!(outcome.exhausted && outcome.liveness_judged);
}

#[test]
fn a_stuck_transfer_is_a_wedge_with_its_dooming_step_although_a_timer_could_rescue_the_request() {
    let scenario = named("dense-handover");
    assert!(scenario.world.deadlines, "timers are armed in this world");
    let drops = dropped(["metadata-not-behind-state"]).expect("the rule exists");
    let system = build(&scenario, drops);
    let outcome = explore(&system, &Options::default());
    let trace = outcome.trace("every-request-ends").expect("it is stuck");
    let dooming = trace.dooming_step.expect("a wedge has a dooming step");
    assert!(dooming >= 1 && dooming < trace.steps.len(), "{dooming} of {}", trace.steps.len());
    assert!(outcome.trace("no-needless-timeout").is_some(), "the rescue is a needless timeout");
}

#[test]
fn no_request_times_out_needlessly_with_every_rule_on() {
    let want = WantedProperties::Listed(vec!["no-needless-timeout".to_owned()]);
    let options = Options { want, liveness: false, ..Options::default() };
    let scenarios = with_names(scenario::load_embedded).expect("the built-in scenarios are right");
    for scenario in scenarios.iter().filter(|scenario| scenario.world.deadlines) {
        assert_eq!(explore(&build(scenario, RuleSet::EMPTY), &options).verdict, Verdict::Holds, "{}", scenario.name);
    }
}
