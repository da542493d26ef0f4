//! Finds the two-phase commit that stateright brings as an example, so that it is measured as its authors wrote it.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    let metadata = Command::new(env::var("CARGO").expect("cargo sets it"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform"])
        .arg(env::var("TARGET").expect("cargo sets it"))
        .arg("--manifest-path")
        .arg(Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    let metadata = String::from_utf8(metadata.stdout).expect("cargo writes UTF-8");
    let manifest = metadata
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next())
        .find(|path| path.contains("stateright-"))
        .expect("stateright is a dependency");
    let example = Path::new(manifest).with_file_name("examples").join("2pc.rs");
    let text = fs::read_to_string(&example).unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    // A file that is included has no documentation of its own.
    let lines = text.lines().filter(|line| !line.starts_with("//!"));
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("bundled.rs");
    fs::write(out, lines.collect::<Vec<_>>().join("\n")).expect("the build folder can be written");
    println!("cargo::rerun-if-changed=Cargo.lock");
}
