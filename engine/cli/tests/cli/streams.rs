//! Pipes that close and devices that are full.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::kvweft::{Folder, kvweft};

/// Commands that write more than a pipe holds, and some that write little.
const COMMANDS: &[&[&str]] = &[
    &["list", "rules"],
    &["list", "rules", "--format", "json"],
    &["list", "cells"],
    &["check", "handover"],
    &["check", "handover", "--format", "json"],
    &["completions", "bash"],
    &["man"],
    &["--help"],
    &["--version"],
    &["step", "handover"],
];

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_quietly() {
    for args in COMMANDS {
        let mut command = kvweft(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        // The reader is gone before anything is written, or after the first line.
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("it can be waited for");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {stderr}");
        assert!(!stderr.contains("error") && !stderr.contains("panicked"), "{args:?}: {stderr}");
    }
    let mut child = kvweft(&["completions", "zsh"]).stdout(Stdio::piped()).spawn().expect("as above");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut first).expect("it writes a line");
    assert!(first.starts_with("#compdef kvweft"), "{first}");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else { return };
    for args in COMMANDS {
        let mut command = kvweft(args);
        command.stdin(Stdio::null()).stdout(full.try_clone().expect("it is open")).stderr(Stdio::piped());
        let ended = command.output().expect("the binary was built for this test");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert_eq!(
            last, "error: standard output: cannot write the result: No space left on device (os error 28)",
            "{args:?}"
        );
    }
}

#[test]
fn notes_that_cannot_be_written_are_no_error() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else { return };
    let mut command = kvweft(&["check", "handover"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full.try_clone().expect("it is open"));
    let mut child = command.spawn().expect("the binary was built for this test");
    let mut table = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut table).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(table.contains("handover"));
    let refused = kvweft(&["check", "nothing"]).stderr(full).status().expect("as above");
    assert_eq!(refused.code(), Some(2));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = Folder::new("full-file");
    let trace = folder.trace("reload-before-prefill-read", "reads-see-own-content");
    if std::path::Path::new("/dev/full").exists() {
        folder.run(&["shrink", &trace, "--out", "/dev/full"]).is_refused(
            "18 steps shrunk to 18 in 40 replays\n\
             error: /dev/full: cannot write the trace: No space left on device (os error 28)\n",
        );
    }
    folder.run(&["shrink", &trace, "--out", "no/such/folder"]).is_refused(
        "18 steps shrunk to 18 in 40 replays\n\
         error: no/such/folder: cannot write the trace: there is no such file or folder\n",
    );
    // A folder stands where a counterexample should be written.
    folder.write("out/reload-before-prefill-read.reads-see-own-content.trace/it", "");
    folder.run(&["check", "reload-before-prefill-read", "--out", "out"]).is_refused(
        "error: out/reload-before-prefill-read.reads-see-own-content.trace: cannot write the counterexample: \
         a folder stands in its place\n",
    );
}
