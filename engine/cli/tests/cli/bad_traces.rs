//! Traces that are damaged, of another version or of an unknown scenario: the line, what was expected, exit code 2.

use crate::kvweft::{Folder, Numbers};

const SCENARIO: &str = "reload-before-prefill-read";
const PROPERTY: &str = "reads-see-own-content";

/// `replay`, `shrink` and `render` read traces in the same way.
const READERS: [&str; 3] = ["replay", "shrink", "render"];

#[test]
fn a_trace_that_cannot_be_used_is_refused_by_every_command_that_reads_one() {
    let folder = Folder::new("bad-traces");
    let good = folder.read(&folder.trace(SCENARIO, PROPERTY));
    let edit = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let cases = [
        (String::new(), "t.trace:1: error: expected `kvweft-trace 1`, the file is empty\n"),
        (
            edit("kvweft-trace 1", "kvweft-trace 2"),
            "t.trace:1: error: the trace is of format 2, this kvweft reads up to 1: use a newer one\n",
        ),
        (edit("kvweft-trace 1", "{"), "t.trace:1: error: expected `kvweft-trace 1`, found `{`\n"),
        (
            edit("scenario  reload-before-prefill-read", "scenario  mine"),
            "t.trace:2: error: the trace is of `mine`, which is not built in\n\
             help: name its file with --scenario FILE\n",
        ),
        (
            edit("index-read-waits-layer@ragged-prefill", "index-read-waits-layers@ragged-prefill"),
            "t.trace:2: error: drops `index-read-waits-layers@ragged-prefill`: there is no such rule; \
             did you mean `index-read-waits-layer`?\nhelp: `kvweft list rules` names them\n",
        ),
        (
            edit("violates  reads-see-own-content", "violates  reads-see-own-contents"),
            "t.trace:3: error: there is no property `reads-see-own-contents`; did you mean `reads-see-own-content`?\n\
             help: `kvweft list properties` names them\n",
        ),
        (edit("\n 3  forward", "\n 4  forward"), "t.trace:7: error: expected step 3, found `4`\n"),
        (
            edit("end  18 steps", "end  17 steps"),
            "t.trace:23: error: expected `end  18 steps`, found `end  17 steps`: the trace was cut or changed\n",
        ),
    ];
    for (text, expected) in cases {
        folder.write("t.trace", &text);
        for command in READERS {
            folder.run(&[command, "t.trace"]).is_refused(expected);
        }
    }
}

#[test]
fn files_that_are_no_traces_are_refused_by_name() {
    let folder = Folder::new("no-traces");
    folder.write("latin.trace", b"kvweft-trace 1\nscenario \xe9\n").write("folder/it", "");
    for command in READERS {
        folder
            .run(&[command, "missing.trace"])
            .is_refused("error: missing.trace: cannot read the trace: there is no such file or folder\n");
        folder
            .run(&[command, "latin.trace"])
            .is_refused("error: latin.trace: cannot read the trace: it is not UTF-8 text\n");
        folder
            .run(&[command, "folder"])
            .is_refused("error: folder: a folder stands where a trace file was expected\nhelp: name a file in it\n");
    }
}

#[test]
fn a_trace_cut_at_any_line_or_at_any_byte_is_refused_with_the_line() {
    let folder = Folder::new("cut-traces");
    let good = folder.read(&folder.trace(SCENARIO, PROPERTY));
    let ends_of_lines = good.match_indices('\n').map(|(at, _)| at + 1).filter(|&at| at < good.len());
    let mut numbers = Numbers(7);
    let anywhere = (0..60).map(|_| numbers.below(good.trim_end().len()));
    for end in ends_of_lines.chain(anywhere) {
        folder.write("cut.trace", &good[..end]);
        let ran = folder.run(&["replay", "cut.trace"]);
        let last = good[..end].lines().count().max(1);
        ran.ends_with(2);
        assert_eq!(ran.stdout, "");
        let at = format!("cut.trace:{last}: error: ");
        assert!(ran.stderr.starts_with(&at) && ran.stderr.contains("expected"), "cut at {end}: {}", ran.stderr);
    }
}

#[test]
fn a_trace_of_a_changed_scenario_is_replayed_with_a_warning() {
    let folder = Folder::new("changed-scenario");
    let good = folder.read(&folder.trace(SCENARIO, PROPERTY));
    let digest = good.split("digest ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it has one");
    folder.write("old.trace", good.replace(digest, "0123456789abcdef"));
    let ran = folder.run(&["replay", "old.trace"]);
    ran.ends_with(0);
    assert_eq!(
        ran.stderr,
        format!(
            "warning: old.trace was recorded on another version of `{SCENARIO}` (digest 0123456789abcdef, now {digest})\n"
        )
    );
}
