//! `kvweft repair`: which rules break what, and which make it hold.

use crate::kvweft::{Folder, SMALL};

#[test]
fn the_corruption_and_the_stuck_transfers_of_the_case_have_separate_causes() {
    let ran = Folder::new("repair-case").run(&["repair", "case-all-causes"]);
    ran.ends_with(0);
    let (_, conclusion) = ran.stdout.split_once("\n\n2 groups of symptoms").expect(&ran.stdout);
    assert_eq!(
        conclusion,
        " that share no rule, so their causes are separate:\n\
         \x20 done-means-arrived index-follows-kv layouts-match no-read-under-write reads-see-own-content\n\
         \x20   because of copy-moves-pool-layout host-layout-from-device index-read-waits-layer@ragged-prefill \
         send-moves-pool-layout\n\
         \x20 every-page-returns every-request-ends\n\
         \x20   because of failure-reaches-peer@prefill-abort\n"
    );
}

#[test]
fn repair_is_the_same_with_any_number_of_threads_and_writes_every_trace() {
    let folder = Folder::new("repair-threads");
    let one = folder.run(&["repair", "case-restart-after-wedge", "--threads", "1", "--out", "traces"]);
    let many = folder.run(&["repair", "case-restart-after-wedge", "--threads", "7"]);
    assert_eq!((&one.stdout, one.code), (&many.stdout, Some(0)));
    let files = folder.files("traces");
    assert_eq!(files.len(), 2 * 4, "four minimal breaking sets, each as a trace and as lanes");
    for (name, _) in files.iter().filter(|(name, _)| name.ends_with(".trace")) {
        folder.run(&["replay", &format!("traces/{name}")]).ends_with(0);
    }
}

#[test]
fn the_rules_may_be_named_in_place_of_the_scenarios_own() {
    let folder = Folder::new("repair-drop");
    let args =
        ["repair", "reload-before-prefill-read", "--drop", "index-read-waits-layer", "--drop", "load-waits-forward"];
    let ran = folder.run(&args);
    ran.ends_with(0);
    assert!(ran.stdout.contains("all 4 sets of 2 dropped rules searched"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("\neverything             all      -          index-read-waits-layer\n"),
        "{}",
        ran.stdout
    );
}

#[test]
fn what_cannot_be_repaired_is_refused_with_a_reason() {
    let folder = Folder::new("repair-refused");
    folder.write("small.toml", SMALL);
    let help = "help: `--drop RULE` names the rules in place of the scenario's own\n";
    folder
        .run(&["repair", "small.toml"])
        .is_refused(&format!("error: small: no rule is dropped, so there is none to keep again\n{help}"));
    let rules = [
        "host-layout-from-device",
        "copy-moves-pool-layout",
        "send-moves-pool-layout",
        "peers-agree-on-layout",
        "index-read-waits-layer",
        "kv-read-waits-layer",
        "load-waits-forward",
        "store-waits-forward",
        "send-waits-writes",
        "event-on-copy-stream",
        "event-slot-has-generation",
    ];
    let many: Vec<&str> = rules.iter().flat_map(|rule| ["--drop", *rule]).collect();
    folder.run(&[["repair", "small.toml"].as_slice(), many.as_slice()].concat()).is_refused(&format!(
        "error: small: expected at most 10 dropped rules, whose subsets are all searched, got 11\n{help}"
    ));
    let none = folder.run(&["repair", "nothing-like-it"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(2), ""));
}

#[test]
fn a_repair_that_was_cut_off_says_what_it_does_not_know() {
    let ran = Folder::new("repair-cut").run(&["repair", "reload-before-prefill-read", "--max-states", "10"]);
    ran.ends_with(3);
    assert!(ran.stdout.contains("cut off with (none) dropped: what rests on that search is unknown"), "{}", ran.stdout);
}

#[test]
fn a_rule_that_is_kept_again_can_break_what_held() {
    let folder = Folder::new("repair-not-monotone");
    let rules = ["host-layout-from-device", "visible-after-complete@forward"];
    let ran = folder.run(&["repair", "case-layer-wait-bf16-decode", "--drop", rules[0], "--drop", rules[1]]);
    ran.ends_with(0);
    let said = "index-follows-kv holds as written, and breaks when some of the rules are kept again\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    let args = ["repair", "case-layer-wait-bf16-decode", "--drop", rules[0], "--drop", rules[1], "--format", "json"];
    let value: serde_json::Value = serde_json::from_str(&folder.run(&args).stdout).expect("it is JSON");
    let property = value["properties"].as_array().expect("a list").iter().find(|p| p["property"] == "index-follows-kv");
    let property = property.expect("some set breaks it");
    assert_eq!(property["broken_by"][0]["drops"], serde_json::json!([rules[0]]));
    assert_eq!(property["holds_with"], serde_json::json!([{ "rules": [], "undone_by": [rules[1]] }]));
}
