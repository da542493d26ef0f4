//! Ways to fail for ever, told apart by name.

use serde_json::Value;

use crate::kvweft::Folder;

const SPLIT: &str = r#"format = 1
title  = "One request is handed over"
source = "a test"

[model]
file   = "deepseek-v4-flash"
layers = ["c4"]

[world]
roles        = "split"
device_pages = 2
decode_pages = 2
deadlines    = DEADLINES

[[request]]
name   = "r1"
prompt = ["A"]

"#;

/// `check` and `replay` call the failure of `property` in a scenario by the same name.
fn fails_by(folder: &Folder, scenario: &str, property: &str, failure: &str) {
    let ran = folder.run(&["check", scenario, "--out", "traces"]);
    let named = |line: &str| line.split_whitespace().skip(1).take(2).eq([property, failure]);
    assert!(ran.stdout.lines().any(named), "{property} {failure}:\n{}", ran.stdout);
    let ran = folder.run(&["check", scenario, "--format", "json"]);
    let document: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let causes = document["scenarios"][0]["causes"].as_array().expect("a list");
    assert!(causes.iter().any(|cause| cause["property"] == property && cause["failure"] == failure), "{causes:?}");
    let name = scenario.trim_end_matches(".toml");
    let trace = format!("traces/{name}.{property}.trace");
    let trace = trace.as_str();
    let args = if name == scenario { vec!["replay", trace] } else { vec!["replay", trace, "--scenario", scenario] };
    let ran = folder.run(&args);
    ran.ends_with(0);
    let last = ran.stdout.lines().last().expect("a line");
    assert!(last.starts_with(&format!("violated, as recorded: {failure}: {property}: ")), "{last}");
    let ran = folder.run(&[&args[..], &["--format", "json"]].concat());
    let document: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    assert_eq!(document["failure"], failure);
}

#[test]
fn a_deadlock_a_wedge_and_a_livelock_are_called_by_name() {
    let folder = Folder::new("failures");
    folder.write("deadlock.toml", SPLIT.replace("DEADLINES", "false") + "[faults]\nlose = 1\n");
    fails_by(&folder, "deadlock.toml", "every-request-ends", "deadlock");
    fails_by(&folder, "hold-and-wait", "every-request-ends", "wedge");
    // Nobody tells the prefill engine to stop, and the decode engine asks again and again whether it has.
    let drop = "[faults]\nslow = 1\n[drop]\nrules = [\"failure-reaches-peer@decode-abort\"]\n";
    folder.write("livelock.toml", SPLIT.replace("DEADLINES", "true") + drop);
    fails_by(&folder, "livelock.toml", "no-idle-loop", "livelock");
}
