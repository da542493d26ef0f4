//! `kvweft simulate`: one result from one seed, and bad input with its place.

use crate::json::each_fits;
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
