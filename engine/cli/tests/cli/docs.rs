//! What the documentation shows is what the program does.

use std::path::Path;

use crate::kvweft::Folder;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text between two marks of a page.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("there is no {from}")) + from.len();
    &text[start..start + text[start..].find(to).unwrap_or_else(|| panic!("there is no {to}"))]
}

#[test]
fn the_readme_shows_what_check_prints() {
    let readme = page("README.md");
    let block = between(&readme, "<!-- counterexample -->\n", "<!-- /counterexample -->");
    let ran = Folder::new("readme").run(&["check", "reload-before-prefill-read"]);
    ran.ends_with(0);
    let drawn = ran.stdout.split_once("\n\nreload-before-prefill-read violates ").expect("it draws one").1;
    let expected = format!(
        "```console\n$ cargo run --release -- check reload-before-prefill-read\n..\n\
         reload-before-prefill-read violates {drawn}```\n"
    );
    assert!(block == expected, "put this between the marks of README.md:\n{expected}");
    assert!(readme.lines().count() < 140, "the README has {} lines", readme.lines().count());
}

#[test]
fn the_page_on_traces_shows_a_trace_as_it_is_written() {
    let folder = Folder::new("docs-traces");
    let trace = folder.read(&folder.trace("write-back", "every-request-ends"));
    let traces = page("docs/traces.md");
    let block = between(&traces, "<!-- trace -->\n", "<!-- /trace -->");
    let expected = format!("```text\n{trace}```\n");
    assert!(block == expected, "put this between the marks of docs/traces.md:\n{expected}");
}

/// Every `kvweft ..` line in a block of a page can be run; the words in capitals are places for something else.
#[test]
fn commands_in_the_documentation_are_commands() {
    let folder = Folder::new("docs-commands");
    let mut seen = 0;
    for name in [
        "README.md",
        "docs/testing.md",
        "docs/traces.md",
        "docs/json.md",
        "docs/scenarios.md",
        "docs/limits.md",
        "docs/introduction.md",
        "docs/lessons.md",
        "docs/workloads.md",
        "docs/compare.md",
        "docs/exposure.md",
        "docs/hits.md",
        "docs/import.md",
        "docs/simulate.md",
        "docs/event-log.md",
        "docs/repair.md",
        "docs/bounded.md",
        "docs/sweep.md",
    ] {
        for piece in page(name).split('`').skip(1).step_by(2) {
            let Some(args) = piece.strip_prefix("kvweft ") else { continue };
            let command = args.split_whitespace().next().unwrap_or_default();
            if !command.chars().all(|c| c.is_ascii_lowercase()) {
                continue;
            }
            seen += 1;
            let help = folder.run(&[command, "--help"]);
            assert_eq!(help.code, Some(0), "{name} names `kvweft {args}`: there is no such command");
            for option in args.split_whitespace().filter(|word| word.starts_with("--")) {
                let option = option.trim_end_matches([']', '.', ',']);
                assert!(help.stdout.contains(option), "{name} names `kvweft {args}`: it has no {option}");
            }
        }
    }
    assert!(seen > 10, "only {seen} commands were found");
}

#[test]
fn the_page_on_workloads_has_every_key_and_every_option() {
    let folder = Folder::new("docs-workloads");
    let page = page("docs/workloads.md");
    folder.write("it.toml", "nothing_like_it = 1\n");
    let refused = folder.run(&["run", "--workload", "it.toml"]).stderr;
    let keys: Vec<&str> = between(&refused, "expected: one of ", "\n").split(", ").collect();
    assert!(keys.len() > 15, "{keys:?}");
    let help = folder.run(&["run", "--help"]).stdout;
    for key in keys {
        assert!(page.contains(&format!("\n| `{key}` |")), "docs/workloads.md has no row for `{key}`");
        let option = format!("--{}", key.replace('_', "-"));
        assert!(["format", "title"].contains(&key) || help.contains(&option), "there is no {option}");
    }
}

#[test]
fn the_page_on_the_event_log_has_every_event() {
    let page = page("docs/event-log.md");
    let schema = self::page("docs/schemas/event-log.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("a schema is JSON");
    let forms = schema["oneOf"].as_array().expect("a list");
    assert!(forms.len() > 8);
    for form in forms {
        let name = form["properties"]["event"]["const"].as_str().expect("a name");
        assert!(page.contains(&format!("\n| `{name}` |")), "docs/event-log.md has no row for `{name}`");
    }
}

#[test]
fn the_page_on_repair_shows_what_repair_prints() {
    let repair = page("docs/repair.md");
    let block = between(&repair, "<!-- repair -->\n", "<!-- /repair -->");
    let ran = Folder::new("docs-repair").run(&["repair", "case-all-causes"]);
    let expected = format!("```text\n{}```\n", ran.stdout);
    assert!(block == expected, "put this between the marks of docs/repair.md:\n{expected}");
}
