//! The hand-kept lists are the folders' contents.

use std::path::Path;

use kvweft_scenarios::{DATA, File, MATRICES, MODELS, PROFILES, SCENARIOS, WORKLOADS};

/// What a folder of this crate holds under that suffix, without `strip`, sorted.
fn folder(path: &str, suffix: &str, strip: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let entries = std::fs::read_dir(&root).expect("the folder is part of the crate");
    let names = entries.map(|entry| entry.expect("a readable entry").file_name().into_string().expect("an ASCII name"));
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(suffix) && name != "Cargo.toml")
        .map(|name| name.strip_suffix(strip).unwrap_or(&name).to_owned())
        .collect();
    names.sort();
    names
}

fn listed(files: &[File]) -> Vec<String> {
    files.iter().map(|file| file.name.to_owned()).collect()
}

#[test]
fn every_file_of_a_folder_is_embedded_in_sorted_order() {
    assert_eq!(listed(SCENARIOS), folder(".", ".toml", ".toml"));
    assert_eq!(listed(MATRICES), folder("matrices", ".toml", ".toml"));
    assert_eq!(listed(MODELS), folder("models", ".toml", ".toml"));
    assert_eq!(listed(PROFILES), folder("profiles", ".toml", ".toml"));
    assert_eq!(listed(WORKLOADS), folder("workloads", ".toml", ".toml"));
    assert_eq!(listed(DATA), folder("data", ".jsonl", ""));
}

#[test]
fn data_heads_stay_small_and_their_provenance_names_each_file() {
    let total: usize = DATA.iter().map(|file| file.text.len()).sum();
    assert!(total < 100 * 1024, "the heads have {total} bytes");
    let readme = include_str!("../data/README.md");
    for file in DATA {
        assert!(readme.contains(&format!("`{}`", file.name)), "{} has no provenance", file.name);
    }
}
