//! `docs/scenarios.md` documents every key, with the type and default that the loader uses, and no other.
#![cfg(feature = "scenario-files")]

mod scenario_common;

use kvweft_check::scenario::schema::KEYS;
use scenario_common::rendered;

const DOCS: &str = include_str!("../../../docs/scenarios.md");

/// The headings under which the keys of a place are documented.
const HEADINGS: &[(&str, &str)] = &[
    ("scenario", "## The file"),
    ("model", "### `[model]`"),
    ("world", "### `[world]`"),
    ("request", "### `[[request]]`"),
    ("requests", "### `[requests]`"),
    ("requests.from", "### `from` in `[requests]`"),
    ("faults", "### `[faults]`"),
    ("faults.abort", "### an entry of `abort`"),
    ("faults.flush", "### `flush` as a table"),
    ("drop", "### `[drop]`"),
    ("check", "### `[check]`"),
    ("expect", "### `[expect]`"),
    ("model file", "## Model files"),
    ("layers", "### `[[layers]]`"),
    ("layout", "### `[[layout]]`"),
];

#[test]
fn the_documented_keys_are_the_keys_of_the_schema() {
    let mut documented = Vec::new();
    let mut place = "";
    for line in DOCS.lines() {
        if line.starts_with('#') {
            place = HEADINGS.iter().find(|(_, heading)| *heading == line).map_or("", |(place, _)| place);
        } else if let Some(row) = line.strip_prefix("| `") {
            let [key, kind, default, meaning] = row.splitn(4, " | ").collect::<Vec<_>>()[..] else {
                panic!("not four columns: {line}")
            };
            assert!(meaning.len() > 5, "no meaning: {line}");
            documented.push(format!("{place}: `{key} | {kind} | {default}"));
        }
    }
    let declared = KEYS.iter().map(|key| format!("{}: `{}` | {} | {}", key.place, key.name, key.kind, key.default));
    assert_eq!(documented, declared.collect::<Vec<_>>());
}

#[test]
fn the_example_of_the_documentation_is_a_scenario() {
    let example = DOCS.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    assert_eq!(rendered(example), "");
}
