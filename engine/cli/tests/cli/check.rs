//! `kvweft check`: verdicts, exit codes and what the options change.

use serde_json::Value;

use crate::kvweft::{Folder, SMALL};

fn json(folder: &Folder, args: &[&str], code: i32) -> Value {
    let mut args = args.to_vec();
    args.extend(["--format", "json"]);
    let ran = folder.run(&args);
    ran.ends_with(code);
    serde_json::from_str(&ran.stdout).expect("it is JSON")
}

#[test]
fn the_exit_code_says_whether_the_verdict_was_expected() {
    let folder = Folder::new("exit-codes");
    let cases: &[(&[&str], i32)] = &[
        // As the scenario's file expects.
        (&["check", "handover"], 0),
        (&["check", "handover", "--all-rules"], 0),
        // Under the caller's own rules, everything must hold.
        (&["check", "handover", "--drop", "wake-on-completion@offload"], 0),
        (&["check", "handover", "--drop", "success-needs-all-parts"], 1),
        (&["check", "reload-before-prefill-read", "--drop", "index-read-waits-layer"], 1),
        // One bad argument is enough.
        (&["check", "handover", "no-such-scenario"], 2),
        // A limit came first, with and without another scenario that went to its end.
        (&["check", "handover", "--max-states", "10"], 3),
        (&["check", "reload-before-decode-read", "handover", "--max-states", "100"], 3),
        (&["check", "handover", "--max-memory", "1K"], 3),
        // Not as expected comes before inconclusive.
        (
            &[
                "check",
                "reload-before-decode-read",
                "slow-queue",
                "--max-states",
                "100",
                "--drop",
                "index-read-waits-layer",
            ],
            1,
        ),
    ];
    for (args, code) in cases {
        let ran = folder.run(args);
        assert_eq!(ran.code, Some(*code), "{args:?}\n{}\n{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout.is_empty(), *code == 2, "{args:?}");
    }
}

#[test]
fn a_search_that_was_cut_does_not_claim_to_be_exhaustive() {
    let folder = Folder::new("cut-search");
    let ran = folder.run(&["check", "handover", "--max-states", "10"]);
    assert!(ran.stdout.contains("ran out of states"), "{}", ran.stdout);
    assert!(ran.stdout.contains("not every interleaving: a limit came first in 1 of 1 world:"), "{}", ran.stdout);
    let whole = folder.run(&["check", "handover"]);
    assert!(whole.stdout.contains("\nevery interleaving of 1 world: 512 states;"), "{}", whole.stdout);
}

#[test]
fn an_exact_search_gives_the_same_counts_and_cannot_miss_a_state() {
    let folder = Folder::new("exact");
    let mut hashed = json(&folder, &["check", "handover"], 0);
    let mut exact = json(&folder, &["check", "handover", "--exact"], 0);
    for search in ["as_written", "all_rules"] {
        let miss = |value: &mut Value| value["scenarios"][0][search]["miss_probability"].take();
        assert_eq!(miss(&mut exact), "0");
        assert_ne!(miss(&mut hashed), "0");
    }
    assert_eq!(exact, hashed);
    assert_eq!(exact["scenarios"][0]["as_written"]["states"], 282);
}

#[test]
fn only_restricts_what_is_looked_for() {
    let folder = Folder::new("only");
    let all = json(&folder, &["check", "handover"], 0);
    let some = json(&folder, &["check", "handover", "--only", "owner-only", "--only", "accounts-balance"], 0);
    assert_eq!(all["scenarios"][0]["as_written"]["violates"].as_array().expect("a list").len(), 4);
    assert_eq!(some["scenarios"][0]["as_written"]["violates"], serde_json::json!(["owner-only"]));
    let none = json(&folder, &["check", "handover", "--only", "accounts-balance"], 0);
    assert_eq!(none["scenarios"][0]["as_written"]["verdict"], "holds");
}

#[test]
fn grains_differ_in_states_and_the_finest_agrees_with_the_default() {
    let folder = Folder::new("grains");
    let states = |grain: &str, code: i32| {
        let value = json(&folder, &["check", "reload-before-prefill-read", "--grain", grain], code);
        assert_eq!(value["scenarios"][0]["grain"], grain);
        let search = &value["scenarios"][0]["as_written"];
        (search["states"].as_u64().expect("a number"), search["violates"].clone())
    };
    let (default, found) = states("default", 0);
    let (finest, found_finest) = states("finest", 0);
    // One step a copy hides the torn read: that is what the scenario does not expect.
    let (atomic, found_atomic) = states("atomic", 1);
    assert!(atomic < default && default < finest, "{atomic} {default} {finest}");
    assert_eq!(found, found_finest);
    assert_ne!(found, found_atomic);
}

#[test]
fn counterexamples_are_written_as_traces_and_as_drawings_with_memory_at_every_grain() {
    let folder = Folder::new("out");
    for grain in ["default", "finest", "atomic"] {
        let args = ["check", "reload-before-prefill-read", "--grain", grain, "--out", grain];
        assert_ne!(folder.run(&args).code, Some(2));
        let files = folder.files(grain);
        assert_eq!(files.len() % 2, 0);
        assert!(!files.is_empty());
        for (name, text) in files {
            let name = name.as_str();
            if name.ends_with(".txt") {
                assert!(text.contains("[p1: "), "{grain}/{name} is drawn without memory:\n{text}");
            } else {
                assert!(name.ends_with(".trace"), "{name}");
                let path = format!("{grain}/{name}");
                let ran = folder.run(&["replay", &path]);
                ran.ends_with(0);
                assert!(ran.stdout.contains("\nviolated, as recorded: "), "{path}:\n{}", ran.stdout);
            }
        }
    }
}

#[test]
fn files_and_folders_of_scenarios_are_checked_like_built_in_ones() {
    let folder = Folder::new("own-scenarios");
    folder.write("own/one.toml", SMALL).write("own/two.toml", SMALL.replace("device_pages = 2", "device_pages = 3"));
    let value = json(&folder, &["check", "own", "own/one.toml"], 0);
    let names: Vec<&str> =
        value["scenarios"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["one", "two", "one"]);
}

#[test]
fn scenarios_that_are_checked_side_by_side_keep_their_results() {
    let folder = Folder::new("side-by-side");
    let both = json(&folder, &["check", "handover", "write-back", "--threads", "2"], 0);
    for (at, name) in ["handover", "write-back"].into_iter().enumerate() {
        assert_eq!(both["scenarios"][at], json(&folder, &["check", name], 0)["scenarios"][0], "{name}");
    }
}

#[test]
fn a_suite_that_does_not_reach_everything_says_what_and_is_not_as_expected() {
    let folder = Folder::new("coverage");
    let ran = folder.run(&["check", "--max-states", "1"]);
    ran.ends_with(1);
    assert!(!ran.stdout.contains("\n! "), "nothing else is unexpected: {}", ran.stdout);
    for piece in ["\ncoverage with every rule on: ", "\n  missed: slot ", "\n  never held anything back: "] {
        assert!(ran.stdout.contains(piece), "no `{piece}` in\n{}", ran.stdout);
    }
    let part = folder.run(&["check", "handover", "--max-states", "10"]);
    part.ends_with(3);
    assert!(!part.stdout.contains("coverage"), "{}", part.stdout);
}

#[test]
fn numbers_of_states_that_differ_from_the_files_are_not_as_expected() {
    let folder = Folder::new("other-counts");
    let text = include_str!("../../../../scenarios/handover.toml");
    folder.write("other.toml", text.replace("states = 282", "states = 281"));
    let ran = folder.run(&["check", "other.toml"]);
    ran.ends_with(1);
    assert!(ran.stdout.contains("! other: expected 281 states as written, found 282\n"), "{}", ran.stdout);
}
