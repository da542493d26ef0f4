//! Every counterexample of the suite: as a picture, as a trace file, and replayed.
//!
//! The trace files lie in `scenarios/traces`; with `KVWEFT_TRACES=write` this test writes them anew.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kvweft_check::build::{CacheSystem, build, build_with, dropped, with_names};
use kvweft_check::explore::Options;
use kvweft_check::record::replay;
use kvweft_check::scenario::{self, Scenario};
use kvweft_check::verdict::{Settings, check};
use kvweft_check::{lanes, shrink};
use kvweft_core::{AllocationOrder, RuleSet};
use kvweft_trace::TraceFile;

fn scenarios() -> Vec<Scenario> {
    with_names(scenario::load_embedded).expect("the built-in scenarios are right")
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios/traces")
}

fn system(scenario: &Scenario, trace: &TraceFile) -> CacheSystem {
    build(scenario, drops(trace))
}

fn drops(trace: &TraceFile) -> RuleSet {
    dropped(trace.drops.iter().map(String::as_str)).expect("the rules of a trace exist")
}

/// The trace files by name, with their scenarios.
fn traces() -> Vec<(String, Scenario, TraceFile)> {
    let scenarios = scenarios();
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder of traces")
        .map(|entry| entry.expect("readable").path())
        .collect();
    names.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let trace = TraceFile::parse(&std::fs::read_to_string(&path).expect("readable")).expect(&name);
        let scenario = scenarios.iter().find(|scenario| scenario.name == trace.scenario).expect(&name).clone();
        (name, scenario, trace)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn every_counterexample_is_drawn_as_its_snapshot_and_stands_in_its_trace_file() {
    let settings = Settings { explore: Options::default(), drop: None, only: None, grain: None };
    let mut files = BTreeMap::new();
    for scenario in scenarios() {
        let report = check(&scenario, &settings, &|_| ());
        let mut drawn = String::new();
        for cause in &report.causes {
            let replayed = replay(&system(&scenario, &cause.file), &cause.file).expect("a new trace replays");
            let memory: Vec<_> = replayed.steps.into_iter().map(|step| step.memory).collect();
            drawn += &lanes::draw(&cause.file, &memory);
            drawn += "\n";
            let rules = if report.drops.len() > 1 { format!(".{}", cause.drops.join("+")) } else { String::new() };
            let name = format!("{}.{}{rules}.trace", scenario.name, cause.trace.violation.property);
            files.insert(name, cause.file.to_string());
        }
        if !drawn.is_empty() {
            assert!(drawn.lines().all(|line| line.chars().count() <= lanes::WIDTH_MAX), "{}", scenario.name);
            insta::assert_snapshot!(scenario.name.clone(), drawn);
        }
    }
    if std::env::var("KVWEFT_TRACES").as_deref() == Ok("write") {
        let _ = std::fs::remove_dir_all(folder());
        std::fs::create_dir_all(folder()).expect("the folder of traces");
        for (name, text) in &files {
            std::fs::write(folder().join(name), text).expect("writable");
        }
    }
    let stored: BTreeMap<String, String> = std::fs::read_dir(folder())
        .expect("the folder of traces; KVWEFT_TRACES=write makes it")
        .map(|entry| {
            let path = entry.expect("readable").path();
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("readable"))
        })
        .collect();
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&stored), names(&files), "KVWEFT_TRACES=write writes the traces anew");
    for (name, text) in &files {
        assert_eq!(&stored[name], text, "{name}; KVWEFT_TRACES=write writes the traces anew");
    }
}

#[test]
fn every_trace_replays_to_its_violation_in_whatever_order_pages_are_handed_out() {
    for (name, scenario, trace) in traces() {
        for order in [AllocationOrder::Ascending, AllocationOrder::Descending] {
            let system = build_with(&scenario, drops(&trace), None, order);
            let replayed = replay(&system, &trace).unwrap_or_else(|why| panic!("{name}: {why}"));
            let violation = replayed.violation.unwrap_or_else(|| panic!("{name} violates nothing"));
            assert_eq!(violation.property, trace.violates, "{name}");
            assert_eq!(violation.detail, trace.detail, "{name}");
        }
    }
}

#[test]
fn with_every_rule_on_no_trace_reaches_its_violation_and_fences_are_named() {
    let mut fenced = 0;
    for (name, scenario, trace) in traces() {
        match replay(&build(&scenario, RuleSet::EMPTY), &trace) {
            Ok(replayed) => assert_eq!(replayed.violation, None, "{name}"),
            Err(impossible) => {
                assert!(!impossible.wanted.is_empty());
                if let Some(blocked) = impossible.blocked {
                    let rule = blocked.owed_to.to_string();
                    let dropped_here = drops(&trace).has(blocked.owed_to);
                    fenced += usize::from(dropped_here);
                    assert!(!blocked.waits_for.is_empty(), "{name}: {rule}");
                }
            }
        }
    }
    assert!(fenced >= 10, "only {fenced} traces end at the fence of the rule they drop");
}

#[test]
fn no_stored_trace_can_be_shrunk() {
    for (name, scenario, trace) in traces() {
        let system = system(&scenario, &trace);
        let actions = replay(&system, &trace).expect(&name).actions;
        let shrunk = shrink::shrink(&system, &actions, &trace.violates);
        assert_eq!(shrunk.actions.len(), actions.len(), "{name}");
    }
}
