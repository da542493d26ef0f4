//! `kvweft check --plan`, `--grow`, `--delays`, `--preemptions` and `--walk`.

use crate::json::fits;
use crate::kvweft::{Folder, SMALL};

#[test]
fn a_plan_says_what_a_search_takes_and_is_right_where_it_says_so() {
    let folder = Folder::new("plan");
    folder.write("small.toml", SMALL);
    let ran = folder.run(&["check", "small.toml", "handover", "--plan"]);
    ran.ends_with(0);
    assert!(ran.stdout.contains("282 states"), "{}", ran.stdout);
    assert!(ran.stdout.contains("1 request, 1 device page, 2 decode pages, 2 layers\n"), "{}", ran.stdout);
    let args = ["check", "case-everything-on", "handover", "--plan", "--format", "json"];
    let value = fits("plan.schema.json", &folder.run(&args).stdout);
    let large = &value["scenarios"][0];
    assert_eq!(large["exact"], false);
    // 14,752 are counted by a search; an estimate is rather too low.
    assert!((14_752 / 16..14_752 * 2).contains(&large["states"].as_u64().expect("a number")), "{large}");
    assert_eq!(value["scenarios"][1]["exact"], true);
}

#[test]
fn growing_a_scenario_searches_every_world_next_to_it() {
    let folder = Folder::new("grow");
    folder.write("small.toml", SMALL);
    let ran = folder.run(&["check", "small.toml", "--grow"]);
    ran.ends_with(0);
    for row in ["requests      1 -> 2  holds        20  4.0", "aborts        0 -> 1  holds        12  2.4"] {
        assert!(ran.stdout.contains(row), "{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("losses"), "one engine alone loses no message");
    let cut = folder.run(&["check", "handover", "--grow", "--max-states", "300", "--format", "json"]);
    cut.ends_with(3);
    let value = fits("grow.schema.json", &cut.stdout);
    let grown = value["scenarios"][0]["grown"].as_array().expect("a list");
    let search =
        |dimension: &str| &grown.iter().find(|entry| entry["dimension"] == dimension).expect(dimension)["search"];
    assert_eq!(search("host pages")["verdict"], "violated", "{value}");
    assert_eq!(search("requests")["ran_out_of"], "states", "{value}");
}

#[test]
fn a_larger_world_that_breaks_more_is_not_as_expected() {
    let folder = Folder::new("grow-worse");
    folder.write("small.toml", SMALL);
    let ran = folder.run(&["check", "small.toml", "--grow", "--drop", "completion-names-life"]);
    ran.ends_with(1);
    let worse = "\npreemptions   0 -> 1  VIOLATED      11  2.2    visible-means-complete\n";
    assert!(ran.stdout.contains(worse), "{}", ran.stdout);
}

#[test]
fn a_search_that_runs_out_names_the_dimension_to_take_from() {
    let ran = Folder::new("run-out").run(&["check", "case-everything-on", "--max-states", "1000"]);
    ran.ends_with(3);
    let said = ran.stdout.lines().find(|line| line.starts_with("case-everything-on: ran out; take from the"));
    let said = said.unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(said.contains(" first: with ") && said.ends_with(" states"), "{said}");
}

#[test]
fn what_holds_says_what_it_covers() {
    let folder = Folder::new("covers");
    let ran = folder.run(&["check", "case-everything-on"]);
    let covers = "\ncase-everything-on holds: safety and liveness in every interleaving of 3 requests, 1 device page, \
                  2 host pages, 1 decode page, 3 layers, 1 abort, 1 loss, at the default grain: 14752 states, \
                  probability of a miss < 2^-101\n";
    assert!(ran.stdout.contains(covers), "{}", ran.stdout);
    let exact = folder.run(&["check", "handover", "--all-rules", "--exact", "--grain", "finest"]);
    assert!(exact.stdout.contains("at the finest grain: "), "{}", exact.stdout);
    assert!(exact.stdout.contains(" states, exact\n"), "{}", exact.stdout);
    let expected = folder.run(&["check", "handover"]);
    assert!(expected.stdout.contains("\nhandover with every rule on holds: safety and "), "{}", expected.stdout);
    let violated = folder.run(&["check", "handover", "--drop", "success-needs-all-parts"]);
    assert!(!violated.stdout.contains(" holds: "), "{}", violated.stdout);
}

#[test]
fn walks_and_bounds_find_what_replays_and_claim_nothing_where_they_find_nothing() {
    let folder = Folder::new("bounded");
    for bound in [
        ["--walk", "random", "--walks", "200"],
        ["--walk", "urw", "--walks", "200"],
        ["--walk", "pct", "--walks", "200"],
        ["--delays", "3", "--threads", "2"],
        ["--preemptions", "1", "--threads", "2"],
    ] {
        let args = |more: &[&str]| -> Vec<String> {
            ["check", "handover"].iter().chain(&bound).chain(more).map(|arg| (*arg).to_owned()).collect()
        };
        let run = |more: &[&str]| folder.run(&args(more).iter().map(String::as_str).collect::<Vec<_>>());
        let found = run(&["--out", "found", "--format", "json"]);
        found.ends_with(0);
        let value = fits("bounded.schema.json", &found.stdout);
        assert!(!value["scenarios"][0]["causes"].as_array().expect("a list").is_empty(), "{bound:?}");
        for (name, _) in folder.files("found").iter().filter(|(name, _)| name.ends_with(".trace")) {
            folder.run(&["replay", &format!("found/{name}")]).ends_with(0);
        }
        let nothing = run(&["--all-rules"]);
        nothing.ends_with(3);
        assert!(nothing.stdout.contains("(nothing found)"), "{}", nothing.stdout);
        assert!(nothing.stdout.contains("other orders of events were not seen\n"), "{}", nothing.stdout);
        let asked = run(&["--drop", "success-needs-all-parts"]);
        asked.ends_with(1);
        assert_eq!(run(&["--all-rules"]), nothing, "the same on every run");
    }
}

#[test]
fn another_seed_takes_other_walks() {
    let folder = Folder::new("seeds");
    let steps = |seed: &str| {
        let args = ["check", "handover", "--all-rules", "--walk", "random", "--walks", "50", "--seed", seed];
        folder.run(&args).stdout
    };
    assert_ne!(steps("1"), steps("2").replace("seed 2", "seed 1"));
}

#[test]
fn ways_to_search_exclude_each_other() {
    let folder = Folder::new("modes");
    for args in [
        ["--plan", "--grow"].as_slice(),
        &["--walk", "urw", "--plan"],
        &["--delays", "1", "--preemptions", "1"],
        &["--delays", "1", "--grow"],
    ] {
        let ran = folder.run(&[["check", "handover"].as_slice(), args].concat());
        assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)));
    }
    for args in
        [["--walk", "straight"], ["--walks", "0"], ["--delays", "-1"], ["--preemptions", "many"], ["--pct-depth", "0"]]
    {
        let ran = folder.run(&[["check", "handover"].as_slice(), &args].concat());
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)), "{args:?}: {}", ran.stderr);
    }
}
