//! `kvweft simulate`: one result from one seed, and bad input with its place.

use crate::json::each_fits;
use crate::json::fits;
use crate::kvweft::Folder;

/// Few sessions on a device with room for half of them.
const SMALL: [&str; 13] = [
    "simulate",
    "--sessions",
    "12",
    "--rounds",
    "4",
    "--concurrency",
    "12",
    "--device-pages",
    "1200",
    "--first-tokens",
    "8000",
    "--round-tokens",
    "1000",
];

#[test]
fn it_writes_what_its_schema_says() {
    let folder = Folder::new("simulate-json");
    let more: [&[&str]; 3] = [
        &["--format", "json"],
        &["--format", "json", "--split", "--profile", "rtxpro6000x4", "--seeds", "2"],
        &["--format", "json", "--drop", "index-with-kv", "--index-k", "bf16", "--cache", "on", "--timeout-ms", "60000"],
    ];
    let texts: Vec<String> = more.iter().map(|more| folder.run(&[&SMALL, *more].concat()).stdout).collect();
    let values = each_fits("simulate.schema.json", texts.iter().map(String::as_str));
    assert_eq!(values[0]["runs"][0]["report"]["sessions"]["ok"], 12);
    assert_eq!(values[1]["runs"][1]["seed"], 2);
    assert_ne!(values[2]["runs"][0]["report"]["corrupt_reads"]["index_k_from_host"], 0);
}

#[test]
fn the_number_of_threads_changes_nothing_and_the_exit_code_says_whether_all_is_well() {
    let folder = Folder::new("simulate-threads");
    let run = |more: &[&str]| folder.run(&[&SMALL, more].concat());
    let one = run(&["--seeds", "5", "--threads", "1"]);
    let three = run(&["--seeds", "5", "--threads", "3"]);
    one.ends_with(0);
    assert_eq!(one.stdout, three.stdout);
    assert!(one.stdout.contains("\n0 of 60 sessions corrupt, 0.0 %; 0 of 5 runs do not add up\n"), "{}", one.stdout);
    assert!(one.stdout.contains("assumed: "), "{}", one.stdout);
    let dropped = run(&["--drop", "store-waits-forward"]);
    dropped.ends_with(1);
    assert!(dropped.stdout.contains("pages of KV from the host tier"), "{}", dropped.stdout);
}

#[test]
fn the_heads_of_public_logs_are_played() {
    let folder = Folder::new("simulate-heads");
    for (name, sessions) in [
        ("agentic-sessions-head.jsonl", "3 sessions, "),
        ("mooncake-conversation-head.jsonl", "140 sessions, 140 requests; each session at its time"),
        ("mooncake-synthetic-head.jsonl", "80 sessions, 80 requests"),
    ] {
        let ran = folder.run(&["simulate", name]);
        ran.ends_with(0);
        assert!(ran.stdout.starts_with(&format!("{name}: {sessions}")), "{}", ran.stdout);
    }
}

#[test]
fn bad_input_is_refused_with_its_place() {
    let folder = Folder::new("simulate-bad");
    let row = |time: u32, ids: &str| {
        format!("{{\"timestamp\": {time}, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": {ids}}}\n")
    };
    folder.write("tree.jsonl", row(0, "[1, 2]") + &row(1, "[3, 2]"));
    folder.run(&["simulate", "tree.jsonl"]).is_refused(
        "tree.jsonl:2: error: block 2 does not stand for one prefix: expected it behind 1, as in an earlier request, \
         found it behind 3\n",
    );
    folder.write("ids.jsonl", row(0, "[1, 2]") + "\n" + &row(1, "[1]"));
    folder
        .run(&["simulate", "ids.jsonl"])
        .is_refused("ids.jsonl:3: error: expected 2 hash_ids for 1024 tokens, got 1\n");
    folder.write("back.jsonl", row(5, "[1, 2]") + &row(4, "[1, 2]"));
    folder
        .run(&["simulate", "back.jsonl"])
        .is_refused("back.jsonl:2: error: expected a timestamp of at least 5, got 4\n");
    let one = |output: &str, id: &str| {
        format!(r#"{{"timestamp": 0, "input_length": 512, "output_length": {output}, "hash_ids": [{id}]}}"#)
    };
    folder.write("long.jsonl", one("4294967295", "0")).write("last.jsonl", one("1", "18446744073709551615"));
    folder.run(&["simulate", "long.jsonl"]).is_refused(
        "long.jsonl:1: error: expected a prompt and an answer of at most 1073741824 tokens together, got 4294967807\n",
    );
    folder
        .run(&["simulate", "last.jsonl"])
        .is_refused("last.jsonl:1: error: expected an id below 18446744073709551615, got it itself\n");
    folder.run(&["simulate", "--profile", "h200"]).is_refused(
        "error: --profile: there is no profile `h200`; did you mean `h200x8`?\nexpected: one of h200x8, rtxpro6000x4, or a \
         profile file\n",
    );
    let profile = kvweft_scenarios::profile("h200x8").expect("it is built in");
    folder.write("slow.toml", profile.replace("value = 70,", "value = 0,"));
    let refused = folder.run(&["simulate", "--profile", "slow.toml"]);
    refused.ends_with(2);
    let expected = "slow.toml:8:1: error: `both_ways_percent`: expected 1 to 100, got 0";
    assert!(refused.stderr.starts_with(expected), "{}", refused.stderr);
    folder.write("typo.toml", profile.replace("message_ns", "mesage_ns"));
    let refused = folder.run(&["simulate", "--profile", "typo.toml"]);
    refused.ends_with(2);
    assert!(refused.stderr.starts_with("typo.toml:"), "{}", refused.stderr);
    assert!(refused.stderr.contains("unknown key `mesage_ns`"), "{}", refused.stderr);
    assert!(refused.stderr.contains("did you mean `message_ns`?"), "{}", refused.stderr);
}

#[test]
fn the_chart_is_the_same_bytes_at_any_number_of_threads_and_changes_no_result() {
    let folder = Folder::new("simulate-plot");
    let args = [
        &SMALL[..],
        &["--split", "--drop", "failure-reaches-peer@decode-abort", "--leave-permille", "300", "--index-k", "bf16"],
    ]
    .concat();
    let plain = folder.run(&args);
    let drawn = folder.run(&[&args[..], &["--plot", "one.svg"]].concat());
    assert_eq!(drawn.stdout, plain.stdout);
    assert!(!drawn.stderr.contains("note:"), "{}", drawn.stderr);
    let one = folder.read("one.svg");
    is_well_formed(&one);
    for piece in [
        "asked at, s",
        "virtual time, s",
        ">left, ",
        ">ok, ",
        ">device, 1200 pages<",
        ">host, ",
        ">decode, ",
        ">100 ms<",
    ] {
        assert!(one.contains(piece), "no `{piece}` in\n{one}");
    }
    assert!(one.contains("; seed 1; "), "{one}");
    for threads in ["1", "3"] {
        let ran = folder.run(&[&args[..], &["--seeds", "3", "--threads", threads, "--plot", "several.svg"]].concat());
        assert!(ran.stderr.contains("note: several.svg shows seed 1 alone, of 3 runs\n"), "{}", ran.stderr);
        let several = folder.read("several.svg");
        assert_eq!(several, one.replace("; seed 1; ", "; seed 1 alone, of 3 runs; "));
    }
    folder.run(&["simulate", "--sessions", "1", "--plot", "no/such/folder.svg"]).ends_with(2);
}

/// Every tag that is opened is closed, in the right order; attributes are quoted, and no number is missing.
fn is_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('"') || open.last() == Some(&"text"), "{text}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn shards_of_seeds_merge_in_any_order_to_the_bytes_of_the_whole() {
    let folder = Folder::new("simulate-shards");
    let args = [&SMALL[..], &["--seed", "7", "--seeds", "5"]].concat();
    let run = |more: &[&str]| folder.run(&[&args[..], more].concat());
    let whole = run(&["--out", "whole.jsonl"]);
    whole.ends_with(0);
    assert_eq!(whole.stdout, "");
    let bytes = folder.read("whole.jsonl");
    let lines = each_fits("simulate.schema.json", bytes.lines());
    assert_eq!(lines.iter().skip(1).map(|line| &line["seed"]).collect::<Vec<_>>(), [7, 8, 9, 10, 11]);
    let document = run(&["--format", "json"]).stdout;
    let document = &each_fits("simulate.schema.json", [document.as_str()])[0];
    assert_eq!(document["runs"][4]["report"], lines[5]["report"], "a line says what the document says");
    run(&["--shard", "1/2", "--out", "1.jsonl"]).ends_with(0);
    run(&["--shard", "2/2", "--out", "2.jsonl", "--threads", "3"]).ends_with(0);
    for files in [["1.jsonl", "2.jsonl"], ["2.jsonl", "1.jsonl"]] {
        let merged = folder.run(&["merge", files[0], files[1], files[0]]);
        merged.ends_with(0);
        assert_eq!(merged.stdout, bytes);
    }
    let part = folder.run(&["merge", "2.jsonl"]);
    part.ends_with(3);
    assert!(part.stderr.contains("3 of 5 cells are missing: 0, 2, 4\n"), "{}", part.stderr);
    folder.run(&[&args[..], &["--chunk-pages", "16", "--shard", "2/2", "--out", "other.jsonl"]].concat()).ends_with(0);
    folder
        .run(&["merge", "1.jsonl", "other.jsonl"])
        .is_refused("error: other.jsonl: it is of another work than 1.jsonl: they differ in engine\n");
    let dropped = run(&["--drop", "store-waits-forward", "--out", "dropped.jsonl"]);
    dropped.ends_with(1);
    folder.run(&["merge", "dropped.jsonl"]).ends_with(1);
    folder.run(&["simulate", "--shard", "1/2"]).ends_with(2);
}

#[test]
fn layers_that_are_left_out_are_said() {
    let folder = Folder::new("simulate-layers");
    let ran = folder.run(&["simulate", "--sessions", "1", "--rounds", "1", "--model", "glm-5"]);
    ran.ends_with(0);
    assert!(ran.stdout.contains("\nglm-5, the first 64 of its 78 layers, pages of 64 tokens\n"), "{}", ran.stdout);
    let ran = folder.run(&["simulate", "--sessions", "1", "--rounds", "1"]);
    assert!(ran.stdout.contains("\ndeepseek-v3.2, pages of 64 tokens\n"), "{}", ran.stdout);
}

#[test]
fn faults_are_counted_and_show_what_a_dropped_rule_leaves_behind() {
    let folder = Folder::new("simulate-faults");
    let args =
        [&SMALL[..], &["--split", "--deadline-ms", "5000", "--leave-permille", "800", "--leave-ms", "20000"]].concat();
    let kept = folder.run(&args);
    // Those whose client went away are not at fault.
    kept.ends_with(0);
    assert!(kept.stdout.contains("clients that went away of their own accord  "), "{}", kept.stdout);
    assert!(kept.stdout.contains("nothing stuck, nothing leaked\n"), "{}", kept.stdout);
    let dropped = folder.run(&[&args[..], &["--drop", "failure-reaches-peer@decode-abort"]].concat());
    dropped.ends_with(1);
    assert!(dropped.stdout.contains("leaked pages, device"), "{}", dropped.stdout);
    let failing =
        folder.run(&[&args[..], &["--fail-permille", "20", "--lose-permille", "200", "--format", "json"]].concat());
    let document = &each_fits("simulate.schema.json", [failing.stdout.as_str()])[0];
    assert_eq!(document["faults"]["fail_permille"], 20);
    for count in document["runs"][0]["report"]["faults"].as_object().expect("counts").values() {
        assert_ne!(*count, 0, "{}", document["runs"][0]["report"]["faults"]);
    }
    folder.run(&["simulate", "--lose-permille", "1"]).ends_with(2);
}

#[test]
fn pages_that_were_evicted_under_a_request_are_not_sent_and_break_no_engine() {
    let folder = Folder::new("simulate-evicted");
    let sizes = ["--sessions", "12", "--rounds", "4", "--concurrency", "12", "--device-pages", "1200"];
    let texts = ["--first-tokens", "8000", "--round-tokens", "1000", "--split", "--timeout-ms", "4000"];
    let rest = ["--drop", "evict-skips-leased", "--format", "json"];
    let ran = folder.run(&[&["simulate"], &sizes[..], &texts[..], &rest[..]].concat());
    ran.ends_with(1);
    let document = fits("simulate.schema.json", &ran.stdout);
    assert!(document["runs"][0]["report"]["corrupt_reads"]["requests"].as_u64() > Some(0), "{document}");
}
