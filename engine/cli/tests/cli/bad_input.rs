//! Arguments and scenario files that are wrong: a short message with what to do, exit code 2.

use crate::kvweft::{Folder, SMALL};

#[test]
fn wrong_arguments_are_refused_with_what_was_meant() {
    let folder = Folder::new("wrong-arguments");
    folder.write("file", "");
    let cases: &[(&[&str], &str)] = &[
        (
            &["check", "handver"],
            "error: no built-in scenario and no file is called `handver`; did you mean `handover`?\n\
             help: `kvweft list scenarios` names the built-in ones\n",
        ),
        (
            &["step", "nothing-like-it"],
            "error: no built-in scenario and no file is called `nothing-like-it`\n\
             help: `kvweft list scenarios` names the built-in ones\n",
        ),
        (
            &["check", "missing.toml"],
            "missing.toml: error: the file cannot be read: there is no such file\n\
             help: check the path and its permissions\n",
        ),
        (
            &["check", "--tag", "handovers"],
            "error: no scenario has the tag `handovers`\nhelp: `kvweft list scenarios` shows the tags\n",
        ),
        (
            &["check", "handover", "--drop", "load-waits-forwards"],
            "error: --drop `load-waits-forwards`: there is no such rule; did you mean `load-waits-forward`?\n\
             help: `kvweft list rules` names them\n",
        ),
        (
            &["check", "handover", "--drop", ""],
            "error: --drop ``: there is no such rule\nhelp: `kvweft list rules` names them\n",
        ),
        (
            &["check", "handover", "--drop", "kv-read-waits-layer@ragged"],
            "error: --drop `kv-read-waits-layer@ragged`: `kv-read-waits-layer` has no such site\n\
             expected: one of ragged-prefill, paged-decode\n",
        ),
        (
            &["check", "handover", "--drop", "kv-read-waits-layer@paged-decodes"],
            "error: --drop `kv-read-waits-layer@paged-decodes`: `kv-read-waits-layer` has no such site; \
             did you mean `paged-decode`?\nexpected: one of ragged-prefill, paged-decode\n",
        ),
        (
            &["check", "handover", "--drop", "ranks-agree-on-acks"],
            "error: --drop `ranks-agree-on-acks`: `ranks-agree-on-acks` is not modelled yet: no world can show it\n\
             help: `kvweft list rules` shows which rules have sites\n",
        ),
        (
            &["check", "handover", "--only", "owner-onyl"],
            "error: --only: there is no property `owner-onyl`; did you mean `owner-only`?\n\
             help: `kvweft list properties` names them\n",
        ),
        (
            &["check", "handover", "--max-states", "0"],
            "error: invalid value '0' for '--max-states <N>': 0 is not in 1..18446744073709551615\n\n\
             For more information, try '--help'.\n",
        ),
        (
            &["check", "handover", "--max-memory", "lots"],
            "error: invalid value 'lots' for '--max-memory <SIZE>': expected a number with an optional K, M or G, \
             as in 512M\n\nFor more information, try '--help'.\n",
        ),
        (
            &["check", "handover", "--max-memory", "99999999999G"],
            "error: invalid value '99999999999G' for '--max-memory <SIZE>': the number is too large\n\n\
             For more information, try '--help'.\n",
        ),
        (
            &["check", "handover", "--threads", "0"],
            "error: invalid value '0' for '--threads <N>': 0 is not in 1..=256\n\n\
             For more information, try '--help'.\n",
        ),
        (
            &["check", "handover", "--grain", "coarse"],
            "error: invalid value 'coarse' for '--grain <GRAIN>'\n  [possible values: default, finest, atomic]\n\n\
             For more information, try '--help'.\n",
        ),
        (
            &["check", "handover", "--drop", "kv-read-waits-layer", "--all-rules"],
            "error: the argument '--drop <RULE[@SITE]>' cannot be used with '--all-rules'\n\n\
             Usage: kvweft check --drop <RULE[@SITE]> <SCENARIO>...\n\nFor more information, try '--help'.\n",
        ),
        (&["check", "handover", "--out", "file"], "error: file: cannot make the folder: a file stands in its place\n"),
        (
            &["check", "handover", "--out", "file/below"],
            "error: file/below: cannot make the folder: a file stands in its place\n",
        ),
        (
            &["check", "handover", "handover", "--out", "out"],
            "error: two scenarios are called `handover`, and --out and --checkpoint name files after them\n\
             help: rename one file, or check them one after the other\n",
        ),
    ];
    for (args, expected) in cases {
        folder.run(args).is_refused(expected);
    }
    assert!(!folder.path("out").exists(), "nothing is made for a command that is refused");
}

/// Pieces of a valid file, what stands in their place, and what is then said.
const SCENARIOS: &[((&str, &str), &str)] = &[
    (
        ("device_pages = 2", "device_page = 2"),
        concat!(
            "it.toml:9:1: error: `device_pages` is missing in [world]\n",
            " 9 | [world]\n",
            "   | ^^^^^^^\n",
            "expected: an integer from 1 to 64\n",
            "help: add `device_pages = 1` in [world]\n",
            "\n",
            "it.toml:10:1: error: unknown key `device_page` in [world]\n",
            " 10 | device_page = 2\n",
            "    | ^^^^^^^^^^^\n",
            "expected: one of roles, device_pages, host_pages, decode_pages, metadata_slots, event_slots, write_policy, prefix_cache, page_tokens, chunk_pages, max_batch, grain, deadlines\n",
            "help: did you mean `device_pages`?\n",
        ),
    ),
    (
        ("device_pages = 2", "device_pages = 0"),
        concat!(
            "it.toml:10:16: error: `world.device_pages` is out of bounds\n",
            " 10 | device_pages = 0\n",
            "    |                ^\n",
            "expected: an integer from 1 to 64\n",
            "found: 0\n",
            "help: choose a value within the bounds\n",
        ),
    ),
    (
        ("prompt = [\"A\"]", "prompt = [\"A\", \"B\", \"C\"]"),
        concat!(
            "it.toml:12:1: error: request \"r1\" can never fit\n",
            " 12 | [[request]]\n",
            "    | ^^^^^^^^^^^\n",
            "expected: at most 2 blocks of prompt and output, since world.device_pages = 2\n",
            "found: 3 blocks\n",
            "help: shorten the request, or raise `device_pages` to 3\n",
        ),
    ),
    (
        ("[[request]]", "[drop]\nrules = [\"load-waits-forwards\"]\n\n[[request]]"),
        concat!(
            "it.toml:13:10: error: there is no rule of this name\n",
            " 13 | rules = [\"load-waits-forwards\"]\n",
            "    |          ^^^^^^^^^^^^^^^^^^^^^\n",
            "expected: a known name\n",
            "found: \"load-waits-forwards\"\n",
            "help: did you mean \"load-waits-forward\"?\n",
        ),
    ),
    (
        ("[[request]]", "[drop]\nrules = [\"load-waits-forward@relaod\"]\n\n[[request]]"),
        concat!(
            "it.toml:13:10: error: the rule `load-waits-forward` has no site of this name\n",
            " 13 | rules = [\"load-waits-forward@relaod\"]\n",
            "    |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^\n",
            "expected: one of reload\n",
            "found: \"relaod\"\n",
            "help: did you mean \"reload\"?\n",
        ),
    ),
    (
        ("[[request]]", "[check]\nproperties = [\"owner-onyl\"]\n\n[[request]]"),
        concat!(
            "it.toml:13:15: error: there is no property of this name\n",
            " 13 | properties = [\"owner-onyl\"]\n",
            "    |               ^^^^^^^^^^^^\n",
            "expected: a known name\n",
            "found: \"owner-onyl\"\n",
            "help: did you mean \"owner-only\"?\n",
        ),
    ),
    (
        ("format = 1", "format = 2"),
        concat!(
            "it.toml:1:10: error: the file is written for a later kvweft\n",
            " 1 | format = 2\n",
            "   |          ^\n",
            "expected: format 1\n",
            "found: format 2\n",
            "help: use a later kvweft for this file\n",
        ),
    ),
    (
        ("prompt = [\"A\"]", "prompt = \"A\""),
        concat!(
            "it.toml:14:10: error: `request.prompt` has the wrong type\n",
            " 14 | prompt = \"A\"\n",
            "    |          ^^^\n",
            "expected: a list of 1 to 64 block names\n",
            "found: the text \"A\"\n",
            "help: write it as `prompt = [\"..\"]`\n",
        ),
    ),
    (
        ("\"dense\"\n", "\"denes\"\n"),
        concat!(
            "it.toml:6:8: error: there is no model file of this name\n",
            " 6 | file = \"denes\"\n",
            "   |        ^^^^^^^\n",
            "expected: one of deepseek-v3.2, deepseek-v4-flash, dense, glm-5\n",
            "found: \"denes\"\n",
            "help: did you mean \"dense\"?\n",
        ),
    ),
];

#[test]
fn wrong_scenario_files_are_refused_with_line_expectation_and_help() {
    let folder = Folder::new("wrong-scenarios");
    for ((from, to), expected) in SCENARIOS {
        folder.write("it.toml", SMALL.replacen(from, to, 1));
        folder.run(&["check", "it.toml"]).is_refused(expected);
        folder.run(&["step", "it.toml"]).is_refused(expected);
    }
    let unmodelled = "[drop]\nrules = [\"ranks-agree-on-acks\"]\n\n[[request]]";
    folder.write("it.toml", SMALL.replacen("[[request]]", unmodelled, 1));
    for command in ["check", "step"] {
        folder.run(&[command, "it.toml"]).is_refused(concat!(
            "it.toml:13:10: error: `ranks-agree-on-acks` is not modelled yet: no world can show it\n",
            " 13 | rules = [\"ranks-agree-on-acks\"]\n",
            "    |          ^^^^^^^^^^^^^^^^^^^^^\n",
            "expected: a rule that has sites\n",
            "help: `kvweft list rules` shows which rules have sites\n",
        ));
    }
}

#[test]
fn files_that_are_no_scenarios_are_refused_by_name() {
    let folder = Folder::new("no-scenarios");
    folder.write("empty.toml", "").write("latin.toml", b"title = \"caf\xe9\"\n").write("void/notes.txt", "");
    folder.write("folder.toml/it.txt", "");
    let cases = [
        (
            "empty.toml",
            "empty.toml:1:1: error: the file has no content\n 1 | \n   | ^\n\
             expected: `format = 1` and the keys of docs/scenarios.md\n\
             found: nothing but white space and comments\n\
             help: start from a copy of a built-in scenario or model file\n",
        ),
        (
            "latin.toml",
            "latin.toml:1:13: error: the file is not UTF-8\n 1 | title = \"caf\u{fffd}\"\n   |             ^\n\
             expected: UTF-8 text\nfound: the byte 0xe9\nhelp: save the file as UTF-8\n",
        ),
        (
            "void",
            "void: error: the folder has no scenario\nexpected: files whose names end in .toml\n\
             help: name another folder, or a scenario file\n",
        ),
        (
            "folder.toml",
            "folder.toml: error: the folder has no scenario\nexpected: files whose names end in .toml\n\
             help: name another folder, or a scenario file\n",
        ),
    ];
    for (name, expected) in cases {
        folder.run(&["check", name]).is_refused(expected);
    }
    folder
        .run(&["step", "void"])
        .is_refused("void: error: a folder stands where a file was expected\nhelp: name a file in it\n");
}

#[test]
fn an_option_that_would_change_nothing_is_refused() {
    let folder = Folder::new("idle-options");
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/traces");
    let trace =
        std::fs::read_dir(traces).expect("traces are kept").next().expect("there is one").expect("it is read").path();
    let cases: &[(&[&str], &str)] = &[
        (&["check", "handover", "--seed", "1"], "--walk <STRATEGY>"),
        (&["check", "handover", "--walks", "5"], "--walk <STRATEGY>"),
        (&["check", "handover", "--depth", "5"], "--walk <STRATEGY>"),
        (&["check", "handover", "--pct-depth", "5"], "--walk <STRATEGY>"),
        (&["check", "handover", "--walk", "random", "--exact"], "cannot be used with '--exact'"),
        (&["check", "handover", "--walk", "random", "--max-states", "9"], "cannot be used with '--max-states <N>'"),
        (&["check", "handover", "--plan", "--out", "d"], "cannot be used with"),
        (&["check", "handover", "--grow", "--out", "d"], "cannot be used with"),
        (&["run", "--device", "1"], "--device: it names a GPU"),
        (&["replay", trace.to_str().expect("UTF-8"), "--times", "2"], "--times: the model does the same each time"),
    ];
    for (args, expected) in cases {
        let ran = folder.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_another_run_writes_into_is_refused() {
    let folder = Folder::new("claimed");
    std::fs::create_dir(folder.path("taken")).expect("it can be made");
    let claim = std::fs::File::open(folder.path("taken")).expect("it is there");
    claim.try_lock().expect("nobody else has it");
    let run = ["run", "--sessions", "1", "--rounds", "1", "--prompt-token-us", "0", "--out", "taken"];
    let check = ["check", "write-back", "--checkpoint", "taken"];
    for args in [&run[..], &check[..]] {
        folder.run(args).is_refused(
            "error: taken: another run of kvweft writes into this folder\nhelp: wait for it, or name another folder\n",
        );
    }
    drop(claim);
    folder.run(&check).ends_with(0);
    folder.run(&run).ends_with(0);
}
