//! What no compiler checks: who may know whom, the size of things, what the documentation covers, leftovers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use kvweft_core::RULES;
use kvweft_world::PROPERTIES;

const LINES_OF_A_FILE_MAX: usize = 600;
const LINES_OF_A_FUNCTION_MAX: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The output of a program, if it can be run and succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(root()).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).expect("it writes UTF-8"))
}

fn cargo(args: &[&str]) -> String {
    output(env!("CARGO"), args).unwrap_or_else(|| panic!("`cargo {}` failed", args.join(" ")))
}

/// Every file that belongs to the tree, relative to its root: what git knows or would add, or, without git, all files
/// outside build folders.
fn files() -> Vec<String> {
    let known = output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut files: Vec<String> = match known {
        Some(list) => list.split_terminator('\0').map(str::to_owned).collect(),
        None => {
            let mut found = Vec::new();
            walk(&root(), "", &mut found);
            found
        }
    };
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    assert!(files.len() > 100, "only {} files were found", files.len());
    files
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the tree can be read") {
        let entry = entry.expect("as above");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        if ["target", ".git", "kvweft-out"].contains(&name.as_str()) || name.ends_with(".snap.new") {
            continue;
        }
        if entry.path().is_dir() {
            walk(&entry.path(), &format!("{prefix}{name}/"), found);
        } else {
            found.push(format!("{prefix}{name}"));
        }
    }
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files with one of these endings, and their texts.
fn texts(endings: &[&str]) -> Vec<(String, String)> {
    let wanted = |file: &String| endings.iter().any(|ending| file.ends_with(ending));
    files().into_iter().filter(wanted).map(|file| (file.clone(), read(&file))).collect()
}

#[track_caller]
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

// ---- Crates

/// Which crates of the workspace a crate may name. Nothing below the explorer knows files, and no model knows an engine.
const EDGES: &[(&str, &[&str])] = &[
    ("kvweft-core", &[]),
    ("kvweft-kernels", &[]),
    ("kvweft-scenarios", &[]),
    ("kvweft-sim", &["kvweft-core"]),
    ("kvweft-trace", &["kvweft-core"]),
    ("kvweft-world", &["kvweft-core", "kvweft-trace"]),
    ("kvweft-check", &["kvweft-core", "kvweft-scenarios", "kvweft-trace", "kvweft-world"]),
    ("kvweft-cuda", &["kvweft-core", "kvweft-kernels", "kvweft-shell", "kvweft-trace", "kvweft-world"]),
    ("kvweft-shell", &["kvweft-core", "kvweft-kernels", "kvweft-trace", "kvweft-world"]),
    (
        "kvweft",
        &[
            "kvweft-check",
            "kvweft-core",
            "kvweft-cuda",
            "kvweft-scenarios",
            "kvweft-shell",
            "kvweft-sim",
            "kvweft-trace",
            "kvweft-world",
        ],
    ),
    (
        "kvweft-tests",
        &["kvweft-check", "kvweft-core", "kvweft-scenarios", "kvweft-shell", "kvweft-trace", "kvweft-world"],
    ),
];

/// What a pure crate may use from outside, for its library.
const PURE: &[(&str, &[&str])] = &[
    ("kvweft-core", &["hashbrown", "serde"]),
    ("kvweft-sim", &["serde", "serde_json", "thiserror"]),
    ("kvweft-trace", &["serde", "serde_json"]),
    ("kvweft-world", &[]),
];

fn metadata() -> serde_json::Value {
    let text = cargo(&["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]);
    serde_json::from_str(&text).expect("cargo writes JSON")
}

fn text<'a>(value: &'a serde_json::Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a serde_json::Value, field: &str) -> &'a [serde_json::Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn crates_name_only_those_that_the_design_lets_them_name() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for package in list(&metadata, "packages") {
        let name = text(package, "name");
        seen.insert(name);
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name} has no entry in this test's table of edges"));
            continue;
        };
        let pure = PURE.iter().find(|(known, _)| *known == name);
        for dependency in list(package, "dependencies") {
            let other = text(dependency, "name");
            if other.starts_with("kvweft") && !allowed.contains(&other) {
                wrong.push(format!("{name} names {other}"));
            }
            let only_for_tests = text(dependency, "kind") == "dev";
            let outside = !other.starts_with("kvweft") && !only_for_tests;
            if outside && pure.is_some_and(|(_, allowed)| !allowed.contains(&other)) {
                wrong.push(format!("{name} is pure and uses {other}"));
            }
            if ["loom", "shuttle"].contains(&other) && name != "kvweft-tests" {
                wrong.push(format!("{name} uses {other}, which only kvweft-tests may"));
            }
        }
        if text(package, "license") != "Apache-2.0" || package["publish"] != serde_json::json!([]) {
            wrong.push(format!("{name} does not take licence and publish from the workspace"));
        }
    }
    none("crate edges that docs/architecture.md does not allow", &wrong);
    let known: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    assert_eq!(seen, known, "the table of edges names the crates of the workspace");
}

#[test]
fn the_explorer_alone_builds_without_scenario_files_and_their_parsers() {
    let args = ["tree", "-p", "kvweft-check", "-e", "normal", "--offline", "--locked", "--prefix", "none"];
    let crates = |more: &[&str]| -> BTreeSet<String> {
        let tree = cargo(&[args.as_slice(), more].concat());
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let heavy = ["toml", "miette", "serde", "serde_json", "clap", "kvweft-scenarios"];
    let bare = crates(&["--no-default-features"]);
    assert!(bare.contains("kvweft-world"), "{bare:?}");
    none(
        "kvweft-check without default features uses",
        &heavy.map(str::to_owned).into_iter().filter(|name| bare.contains(name)).collect::<Vec<_>>(),
    );
    // The question is not empty: with them it does use parsers.
    assert!(crates(&[]).contains("toml"));
}

// ---- Sources

#[test]
fn files_and_functions_stay_readable() {
    let mut long = Vec::new();
    for (file, text) in texts(&[".rs", ".md", ".toml"]) {
        let lines = text.lines().count();
        if lines > LINES_OF_A_FILE_MAX {
            long.push(format!("{file} has {lines} lines"));
        }
        if file.ends_with(".rs") {
            long.extend(long_functions(&file, &text));
        }
    }
    none("split these", &long);
}

/// Functions that are too long: rustfmt closes each at the indentation at which it begins.
fn long_functions(file: &str, text: &str) -> Vec<String> {
    let mut long = Vec::new();
    let mut open: Option<(usize, String, &str)> = None;
    for (number, line) in text.lines().enumerate() {
        let head = line.trim();
        let close = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let begins = (head.starts_with("fn ") || head.starts_with("pub") || head.starts_with("const"))
            && format!(" {head}").contains(" fn ")
            && !head.ends_with([';', '}']);
        match &open {
            Some((begin, close, head)) if line == close => {
                let lines = number - begin + 1;
                if lines > LINES_OF_A_FUNCTION_MAX {
                    long.push(format!("{file}:{}: {lines} lines: {head}", begin + 1));
                }
                open = None;
            }
            // One at the same depth as the last, which was a declaration.
            Some((_, last, _)) if begins && *last == close => open = Some((number, close, head)),
            None if begins => open = Some((number, close, head)),
            _ => {}
        }
    }
    long
}

#[test]
fn the_search_for_long_functions_finds_one() {
    let body = "    let x = 1;\n".repeat(LINES_OF_A_FUNCTION_MAX);
    let text = format!("fn short() {{\n}}\n\nimpl A {{\n    pub(crate) fn long<T>() {{\n{body}    }}\n}}\n");
    assert_eq!(long_functions("a.rs", &text), ["a.rs:5: 102 lines: pub(crate) fn long<T>() {"]);
}

#[test]
fn nothing_is_left_over_in_sources() {
    // Put together here, so that this file does not find itself.
    let words = [
        ["#[ig", "nore"].concat(),
        ["should_", "panic"].concat(),
        ["todo", "!"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X:"].concat(),
    ];
    let mut found = Vec::new();
    for (file, text) in texts(&[".rs"]) {
        for (number, line) in text.lines().enumerate() {
            let hit = words.iter().find(|word| line.contains(word.as_str()));
            found.extend(hit.map(|word| format!("{file}:{}: {word}", number + 1)));
        }
    }
    none("finish these", &found);
}

#[test]
fn no_file_names_somebodys_machine() {
    let folders = ["work", "root", "home", "Users"].map(|name| format!("/{name}/"));
    let hosts = ["artifactory", "sparse+http", "index.crates", ".cargo/registry"].map(|name| name.to_owned());
    let mut found = Vec::new();
    for file in files() {
        // Data and pictures need not be text.
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        if file == "tests/tests/tidy.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let absolute = folders.iter().find(|folder| {
                line.match_indices(folder.as_str())
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "._-*)}".contains(c)))
            });
            let host = hosts.iter().find(|host| line.contains(host.as_str()));
            let source = file == "Cargo.lock" && line.starts_with("source = ");
            let other = source && line != "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
            if absolute.is_some() || host.is_some() || other {
                found.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none("paths and hosts of one machine", &found);
}

#[test]
fn the_top_folder_holds_what_belongs_there() {
    const ALLOWED: [&str; 17] = [
        ".ci",
        ".editorconfig",
        ".gitignore",
        ".rustfmt.toml",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "deny.toml",
        "docs",
        "engine",
        "justfile",
        "kernels",
        "model",
        "rust-toolchain.toml",
        "scenarios",
        "tests",
    ];
    let top: BTreeSet<String> = files().iter().filter_map(|file| file.split('/').next()).map(str::to_owned).collect();
    let other: Vec<String> = top.into_iter().filter(|name| !ALLOWED.contains(&name.as_str())).collect();
    none("unexpected in the top folder", &other);
}

// ---- Snapshots

#[test]
fn every_snapshot_belongs_to_a_test() {
    let mut orphans = Vec::new();
    let mut seen = 0;
    for file in files().into_iter().filter(|file| file.ends_with(".snap")) {
        seen += 1;
        let (folder, name) = file.rsplit_once('/').expect("a snapshot lies in a folder");
        let (test, name) = name.trim_end_matches(".snap").split_once("__").unwrap_or((name, ""));
        let source = format!("{}/{test}.rs", folder.trim_end_matches("/snapshots"));
        if !root().join(&source).is_file() {
            orphans.push(format!("{file}: there is no {source}"));
            continue;
        }
        let source = read(&source);
        let named = source.contains(&format!("\"{name}\"")) || source.contains(&format!("fn {name}("));
        let scenario =
            source.contains("assert_snapshot!") && kvweft_scenarios::SCENARIOS.iter().any(|s| s.name == name);
        if !named && !scenario {
            orphans.push(format!("{file}: {test}.rs asserts no `{name}`"));
        }
    }
    none("snapshots that no test refers to", &orphans);
    assert!(seen >= 4, "only {seen} snapshots were found");
}

// ---- Documentation

/// The names in headings of `docs/rules.md` at one depth, and whether each is marked as later.
fn headings(marker: &str) -> Vec<(String, bool)> {
    let page = read("docs/rules.md");
    let heading = |line: &str| {
        let (name, rest) = line.strip_prefix(marker)?.strip_prefix('`')?.split_once('`')?;
        Some((name.to_owned(), rest.trim() == "(later)"))
    };
    page.lines().filter_map(heading).collect()
}

#[test]
fn every_rule_and_property_is_documented_in_the_order_of_the_tables() {
    let rules: Vec<(String, bool)> = RULES.iter().map(|info| (info.name.to_owned(), info.sites.is_empty())).collect();
    assert_eq!(headings("### "), rules);
    let documented: BTreeSet<String> = headings("#### ").into_iter().map(|(name, _)| name).collect();
    let modelled: BTreeSet<String> = PROPERTIES.iter().map(|info| info.name.to_owned()).collect();
    let missing: Vec<String> = modelled.difference(&documented).cloned().collect();
    none("properties without a heading in docs/rules.md", &missing);
    let extra: Vec<String> = documented.difference(&modelled).cloned().collect();
    none("headings in docs/rules.md of properties that do not exist", &extra);
}

#[test]
fn the_sites_of_every_rule_are_documented() {
    let page = read("docs/rules.md");
    for info in RULES.iter().filter(|info| !info.sites.is_empty()) {
        let section = page.split("\n### ").find(|section| section.starts_with(&format!("`{}`", info.name)));
        let section = section.unwrap_or_else(|| panic!("docs/rules.md has no section on {}", info.name));
        let sites: Vec<&str> = info.sites.iter().map(|site| site.name()).collect();
        let expected = format!("Sites: `{}`.", sites.join("`, `"));
        let one_line = section.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(one_line.contains(&expected), "{}: expected `{expected}` in docs/rules.md", info.name);
    }
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<&str> {
    let behind = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    behind.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

#[test]
fn links_of_the_documentation_lead_somewhere_and_every_page_is_in_the_book() {
    let mut broken = Vec::new();
    for (file, text) in texts(&[".md"]) {
        let folder = root().join(&file).parent().expect("a file lies in a folder").to_path_buf();
        for target in links(&text).into_iter().filter(|target| !target.contains("://")) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !folder.join(path).exists() {
                broken.push(format!("{file}: {target}"));
            }
        }
    }
    none("links to files that do not exist", &broken);
    let summary = read("docs/SUMMARY.md");
    let listed: BTreeSet<&str> = links(&summary).into_iter().collect();
    let pages = files().into_iter().filter_map(|file| file.strip_prefix("docs/").map(str::to_owned));
    let lost: Vec<String> =
        pages.filter(|page| page.ends_with(".md") && page != "SUMMARY.md" && !listed.contains(page.as_str())).collect();
    none("pages that docs/SUMMARY.md does not list", &lost);
}
