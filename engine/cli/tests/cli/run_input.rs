//! Workload files, and what `kvweft run` refuses: a short message with what to do, exit code 2.

use serde_json::Value;

use crate::json::fits;
use crate::kvweft::Folder;

/// A workload that is played in a moment.
const SMALL: &str = "\
format = 1
title = \"A small one\"
sessions = 3
rounds = 2
model = \"glm-5\"
layers = [\"producer\", \"reuser\"]
index_k = \"bf16\"
cache = true
split = true
drop = [\"peers-agree-on-layout\"]
device_pages = \"50%\"
host_pages = 40
decode_pages = \"100%\"
chunk_pages = 4
seed = 7
heads = 2
system_tokens = 300
first_tokens = 200
round_tokens = 70
timeout_ms = 60000
deadline_ms = 9000
";

#[test]
fn a_workload_file_is_played_and_the_command_line_has_the_last_word() {
    let folder = Folder::new("workload");
    folder.write("it.toml", SMALL);
    let play = |more: &[&str]| {
        let ran = folder.run(&[&["run", "--workload", "it.toml", "--format", "json"], more].concat());
        fits("run.schema.json", &ran.ends_with(0).stdout)["workload"].clone()
    };
    let played = play(&[]);
    let table = [
        ("sessions", 3),
        ("rounds", 2),
        ("host_pages", 40),
        ("chunk_pages", 4),
        ("seed", 7),
        ("heads", 2),
        ("system_tokens", 300),
        ("first_tokens", 200),
        ("round_tokens", 70),
        ("timeout_ms", 60_000),
        ("deadline_ms", 9000),
    ];
    for (key, value) in table {
        assert_eq!(played[key], value, "{key}");
    }
    assert_eq!(played["device_pages"].as_u64(), played["decode_pages"].as_u64().map(|pages| pages.div_ceil(2)));
    assert_eq!(played["dropped"], serde_json::json!(["peers-agree-on-layout@handshake"]));
    assert_eq!((&played["split"], &played["cache"]), (&Value::Bool(true), &Value::Bool(true)));
    assert_eq!(played["geometry"]["components"][1]["layout"]["dtype"], "bf16");
    assert_eq!(played["geometry"]["layers"], 2);
    let other = play(&["--sessions", "2", "--cache", "off", "--device-pages", "100", "--drop", "load-waits-forward"]);
    assert_eq!((&other["sessions"], &other["device_pages"]), (&Value::from(2), &Value::from(100)));
    assert_eq!(other["dropped"], serde_json::json!(["load-waits-forward@reload"]));
    assert_eq!((&other["cache"], &other["rounds"]), (&Value::Bool(false), &Value::from(2)));
}

#[test]
fn built_in_workloads_are_played_by_name() {
    let folder = Folder::new("workload-built-in");
    let ran = folder.run(&["run", "--workload", "offload-and-reload", "--sessions", "6", "--rounds", "2"]);
    ran.ends_with(0);
    assert!(ran.stderr.contains("6 sessions of 2 rounds, seed 1: 512 + 512 tokens"), "{}", ran.stderr);
}

/// What is said on the command line, and what is then said.
const ARGUMENTS: &[(&[&str], &str)] = &[
    (
        &["--sessions", "0"],
        "error: invalid value '0' for '--sessions <N>': 0 is not in 1..=4096\n\nFor more information, try '--help'.\n",
    ),
    (
        &["--layers", "0"],
        "error: invalid value '0' for '--layers <N|KINDS>': expected a number from 1 to 64, or a list of \
                 layer kinds as in window,c4\n\nFor more information, try '--help'.\n",
    ),
    (
        &["--device-pages", "lots"],
        "error: invalid value 'lots' for '--device-pages <N|P%>': expected a number of pages, as in 200, or a \
                 share, as in 40%\n\nFor more information, try '--help'.\n",
    ),
    (
        &["--on", "moon"],
        "error: invalid value 'moon' for '--on <ON>'\n  [possible values: host, cuda]\n\nFor more information, try '--help'.\n",
    ),
    (
        &["--model", "deepseek-v3"],
        "error: --model: there is no model `deepseek-v3`\n\
             expected: one of deepseek-v3.2, deepseek-v4-flash, dense, glm-5, or a model file\n\
             help: did you mean \"deepseek-v3.2\"?\n",
    ),
    (
        &["--model", "none.toml"],
        "none.toml: error: the file cannot be read: there is no such file\n\
             help: check the path and its permissions\n",
    ),
    (
        &["--model", "dense", "--layers", "3"],
        "error: --layers: dense has no 3 layers\nexpected: at most 2\nhelp: take fewer layers, or another model\n",
    ),
    (
        &["--model", "glm-5", "--layers", "producers"],
        "error: --layers: glm-5 has no layers of kind `producers`\nexpected: one of producer, reuser\n\
             help: did you mean \"producer\"?\n",
    ),
    (
        &["--model", "deepseek-v4-flash", "--layers", "c4,window"],
        "error: --layers: no layer of kind `window` is left behind the ones before\n\
             expected: layers in the model's order\nhelp: sort the list as the model's layers are\n",
    ),
    (
        &["--model", "dense", "--index-k", "fp8"],
        "error: --index-k: no layer taken from dense has index keys\n\
             help: take a layer that has an indexer, or leave the dtype out\n",
    ),
    (
        &["--model", "narrow.toml"],
        "error: the recall model cannot be served: layer 0: expected rows of at least 192 fp8 or bf16 values, \
             got 64\nhelp: take other layers, or a model such as deepseek-v3.2\n",
    ),
    (
        &["--drop", "load-waits-forwards"],
        "error: --drop `load-waits-forwards`: there is no such rule; did you mean `load-waits-forward`?\n\
             help: `kvweft list rules` names them\n",
    ),
    (
        &["--drop", "load-waits-forward@offload"],
        "error: --drop `load-waits-forward@offload`: `load-waits-forward` has no such site; \
             did you mean `reload`?\n\
             expected: one of reload\n",
    ),
    (
        &["--decode-pages", "9"],
        "error: --decode-pages: there is no decode engine by itself\n\
             help: split the engines, or leave the pages of the decode engine out\n",
    ),
    (
        &["--device-pages", "25"],
        "error: --device-pages: the device pool has 25 pages, and one session needs 26 at its longest\n\
             help: take more pages, or shorter sessions\n",
    ),
    (
        &["--split", "--decode-pages", "1%"],
        "error: --decode-pages: the decode pool has 21 pages, and one session needs 26 at its longest\n\
             help: take more pages, or shorter sessions\n",
    ),
    (
        &["--sessions", "4096", "--rounds", "1000"],
        "error: the pools would take 2123 GiB, more than 64 GiB\n\
             help: choose fewer sessions, rounds, layers or tokens, or smaller pools\n",
    ),
    (
        &["--workload", "offload-and-relod"],
        "offload-and-relod: error: there is no such workload file, and none of this name is built in\n\
             expected: a file, or one of offload-and-reload\nhelp: did you mean `offload-and-reload`?\n",
    ),
    (&["--workload", "."], ".: error: a folder stands where a file was expected\nhelp: name a file in it\n"),
];

#[test]
fn wrong_arguments_are_refused_with_what_was_meant() {
    let folder = Folder::new("run-arguments");
    let rows = "bytes_per_entry = 640\nscale = \"per-row\"\nscale_bytes_per_entry = 16";
    let model = kvweft_scenarios::model("deepseek-v3.2").expect("it is built in").replace(rows, "bytes_per_entry = 64");
    folder.write("narrow.toml", model).write("broken.toml", "format = 1\n");
    for (args, expected) in ARGUMENTS {
        folder.run(&[&["run", "--out", "out"], *args].concat()).is_refused(expected);
        assert!(!folder.path("out").exists(), "{args:?}: nothing is made for a run that is refused");
    }
    folder.run(&["run", "--no-log"]).is_refused(
        "error: the following required arguments were not provided:\n  --out <DIR>\n\n\
         Usage: kvweft run --out <DIR> --no-log\n\nFor more information, try '--help'.\n",
    );
}

/// A line of the small workload, what stands in its place, and what is then said.
const FILES: &[(&str, &str, &str)] = &[
    (
        "sessions = 3",
        "session = 3",
        "it.toml:3:1: error: unknown key `session`\n 3 | session = 3\n   | ^^^^^^^\n\
         expected: one of format, title, sessions, rounds, model, layers, index_k, cache, split, drop, device_pages, \
         host_pages, decode_pages, chunk_pages, seed, heads, system_tokens, first_tokens, round_tokens, \
         prompt_token_us, timeout_ms, deadline_ms\nhelp: did you mean `sessions`?\n",
    ),
    (
        "sessions = 3",
        "sessions = \"3\"",
        "it.toml:3:12: error: `sessions` has the wrong type\n 3 | sessions = \"3\"\n   |            ^^^\n\
         expected: an integer from 1 to 4096\nfound: \"3\"\nhelp: write it as `sessions = 1`\n",
    ),
    (
        "rounds = 2",
        "rounds = -2",
        "it.toml:4:10: error: `rounds` is out of bounds\n 4 | rounds = -2\n   |          ^^\n\
         expected: an integer from 1 to 1000\nfound: -2\nhelp: choose a value within the bounds\n",
    ),
    (
        "format = 1",
        "format = 2",
        "it.toml:1:10: error: the file is written for a later kvweft\n 1 | format = 2\n   |          ^\n\
         expected: format 1\nfound: format 2\nhelp: use a later kvweft for this file\n",
    ),
    (
        "model = \"glm-5\"",
        "model = \"glm-4\"",
        "it.toml:5:9: error: there is no model `glm-4`\n 5 | model = \"glm-4\"\n   |         ^^^^^^^\n\
         expected: one of deepseek-v3.2, deepseek-v4-flash, dense, glm-5, or a model file\nfound: \"glm-4\"\n\
         help: did you mean \"glm-5\"?\n",
    ),
    (
        "index_k = \"bf16\"",
        "index_k = \"bf61\"",
        "it.toml:7:11: error: `index_k` has no value of this name\n 7 | index_k = \"bf61\"\n   |           ^^^^^^\n\
         expected: one of fp8, bf16, fp4\nfound: \"bf61\"\nhelp: did you mean \"bf16\"?\n",
    ),
    (
        "split = true",
        "split = 1",
        "it.toml:9:9: error: `split` has the wrong type\n 9 | split = 1\n   |         ^\n\
         expected: `true` or `false`\nfound: 1\nhelp: write it as `split = true`\n",
    ),
    (
        "split = true",
        "split = false",
        "it.toml:13:16: error: there is no decode engine by itself\n 13 | decode_pages = \"100%\"\n    |                ^^^^^^\n\
         found: \"100%\"\nhelp: split the engines, or leave the pages of the decode engine out\n",
    ),
    (
        "drop = [\"peers-agree-on-layout\"]",
        "drop = [\"peers-agree-on-layouts\"]",
        "it.toml:10:9: error: there is no such rule; did you mean `peers-agree-on-layout`?\n \
         10 | drop = [\"peers-agree-on-layouts\"]\n    |         ^^^^^^^^^^^^^^^^^^^^^^^^\n\
         found: \"peers-agree-on-layouts\"\nhelp: `kvweft list rules` names them\n",
    ),
    (
        "device_pages = \"50%\"",
        "device_pages = \"half\"",
        "it.toml:11:16: error: `device_pages` is out of bounds\n 11 | device_pages = \"half\"\n    |                ^^^^^^\n\
         expected: an integer from 0 to 10000000, or a share from \"0%\" to \"1000%\"\nfound: \"half\"\n\
         help: choose a value within the bounds\n",
    ),
    (
        "device_pages = \"50%\"",
        "device_pages = 3",
        "it.toml:11:16: error: the device pool has 3 pages, and one session needs 13 at its longest\n \
         11 | device_pages = 3\n    |                ^\n\
         found: 3\nhelp: take more pages, or shorter sessions\n",
    ),
    (
        "seed = 7",
        "seed = 7\nseed = 8",
        "it.toml:16:1: error: duplicate key\n 16 | seed = 8\n    | ^^^^\nhelp: keep one of them\n",
    ),
];

#[test]
fn wrong_workload_files_are_refused_with_the_line_and_what_was_meant() {
    let folder = Folder::new("workload-files");
    for (line, other, expected) in FILES {
        assert_eq!(SMALL.matches(&format!("{line}\n")).count(), 1, "{line}");
        folder.write("it.toml", SMALL.replace(line, other));
        folder.run(&["run", "--workload", "it.toml"]).is_refused(expected);
    }
    folder.write("it.toml", b"seed = 1 # \xff\n");
    folder.run(&["run", "--workload", "it.toml"]).is_refused(
        "it.toml:1:12: error: the file is not UTF-8\n 1 | seed = 1 # \u{fffd}\n   |            ^\n\
         expected: UTF-8 text\nhelp: save the file as UTF-8\n",
    );
    // Everything that is wrong is said at once.
    folder.write("it.toml", "sesions = 1\nrounds = 0\n");
    let ran = folder.run(&["run", "--workload", "it.toml"]);
    assert_eq!(ran.ends_with(2).stderr.matches(": error: ").count(), 2, "{}", ran.stderr);
}
