//! `kvweft import` and `kvweft redact`: what comes out can be used, and holds nothing of what went in.

use serde_json::{Value, json};

use crate::kvweft::Folder;

/// Logs as servers write them, by their form.
const LOGS: [(&str, &str); 3] = [
    ("dynamo-request-trace", include_str!("../logs/dynamo.jsonl")),
    ("openai-jsonl", include_str!("../logs/openai.jsonl")),
    ("vllm-events", include_str!("../logs/vllm.jsonl")),
];
const SALT: &str = "4c1f6e0b7a93d852";

/// Every text of a JSON value, and every number of at least six digits.
fn secrets(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Number(number) if number.to_string().len() >= 6 => out.push(number.to_string()),
        Value::Array(values) => values.iter().for_each(|value| secrets(value, out)),
        Value::Object(fields) => fields.values().for_each(|value| secrets(value, out)),
        _ => {}
    }
}

/// Imports a log, looks for everything that must not come out, and simulates what does.
fn imported(folder: &Folder, form: &str, log: &str, more: &[&str]) -> Vec<Value> {
    folder.write("log.jsonl", log);
    let ran = folder.run(&[&["import", "log.jsonl", "--format", form], more].concat());
    ran.ends_with(0);
    let mut hidden: Vec<String> = more.iter().map(|more| (*more).to_owned()).collect();
    log.lines().for_each(|line| secrets(&serde_json::from_str(line).expect("JSON"), &mut hidden));
    assert!(hidden.len() > 5, "{hidden:?}");
    // Words of the form that comes out.
    hidden.retain(|text| !["request_id", "completion", "dispatch", "sequence"].contains(&text.as_str()));
    for text in hidden.iter().filter(|text| !text.is_empty()) {
        assert!(!ran.stdout.contains(text.as_str()), "`{text}` is in\n{}", ran.stdout);
    }
    folder.write("mine.jsonl", &ran.stdout);
    let pages = ["--model", "deepseek-v3.2", "--device-pages", "2000"];
    let played = folder.run(&[&["simulate", "mine.jsonl"], &pages[..]].concat());
    // Blocks of vLLM have 16 tokens, and pages of this model 64.
    played.ends_with(0);
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn ids(row: &Value) -> Vec<u64> {
    row["hash_ids"].as_array().expect("a list").iter().map(|id| id.as_u64().expect("a number")).collect()
}

fn shared(a: &Value, b: &Value) -> usize {
    ids(a).iter().zip(ids(b)).take_while(|(a, b)| *a == b).count()
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn logs_as_servers_write_them_become_workloads_without_a_word_of_them() {
    let folder = Folder::new("import-realistic");
    for (form, log) in LOGS {
        for more in [&[][..], &["--salt", SALT]] {
            let rows = imported(&folder, form, log, more);
            assert_eq!(rows.len(), 3, "{form}");
            let field = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
            match form {
                "dynamo-request-trace" => {
                    assert_eq!(field("input_length"), [200, 256, 130]);
                    assert_eq!(field("output_length"), [41, 17, 0]);
                    assert_eq!([shared(&rows[0], &rows[1]), shared(&rows[0], &rows[2])], [3, 2]);
                    assert_eq!(rows[1]["dependencies"][0]["request_id"], rows[0]["request_id"]);
                    assert_eq!(rows[1]["dependencies"][0]["delay_ms"], 950);
                }
                "openai-jsonl" => {
                    assert_eq!(field("output_length")[0], 77);
                    assert_eq!(field("session_id")[0], field("session_id")[2]);
                    assert_ne!(field("session_id")[0], field("session_id")[1]);
                    assert_eq!(rows[2]["dependencies"][0]["delay_ms"], 2500);
                    assert!(shared(&rows[0], &rows[2]) > shared(&rows[0], &rows[1]) && shared(&rows[0], &rows[1]) > 3);
                }
                _ => {
                    assert_eq!(field("input_length"), [48, 32, 32]);
                    assert_eq!([shared(&rows[0], &rows[1]), shared(&rows[0], &rows[2])], [0, 1]);
                    assert_eq!(field("not_before_ms"), [0, 522, 2228]);
                }
            }
        }
    }
}

#[test]
fn one_salt_gives_logs_that_were_imported_apart_the_same_blocks_and_another_one_gives_none() {
    let folder = Folder::new("import-salt");
    for (form, log) in LOGS {
        let whole = imported(&folder, form, log, &["--salt", SALT]);
        assert_eq!(whole, imported(&folder, form, log, &["--salt", SALT]), "{form}");
        // The log as two: the first line, and the others.
        let cut = log.match_indices('\n').map(|(at, _)| at + 1).nth(log.lines().count() - 2).expect("several lines");
        let first = imported(&folder, form, &log[..cut], &["--salt", SALT]);
        let last = imported(&folder, form, &log[cut..], &["--salt", SALT]);
        let blocks = |rows: &[Value]| rows.iter().map(ids).collect::<Vec<_>>();
        let apart = [blocks(&first), blocks(&last)].concat();
        if form == "vllm-events" {
            // What stands before a block is on a line of the other part.
            assert_eq!(apart[..2], blocks(&whole)[..2], "{form}");
        } else {
            let sorted = |mut blocks: Vec<Vec<u64>>| {
                blocks.sort_unstable();
                blocks
            };
            assert_eq!(sorted(apart), sorted(blocks(&whole)), "{form}");
            // Put together again they are a workload: no name is there twice.
            folder.write("both.jsonl", lines(&[first, last].concat()));
            folder.run(&["hits", "both.jsonl"]).ends_with(0);
        }
        let other = imported(&folder, form, log, &["--salt", "another salt, as long"]);
        for (a, b) in whole.iter().zip(&other) {
            assert!(ids(a).iter().all(|id| !ids(b).contains(id)), "{form}");
            assert_ne!((&a["request_id"], &a["session_id"]), (&b["request_id"], &b["session_id"]));
        }
    }
    let refused = folder.run(&["import", "log.jsonl", "--format", "vllm-events", "--salt", "pepper"]);
    refused.is_refused(
        "error: --salt: expected at least 16 bytes, got 6\nhelp: take them from chance, for instance `openssl rand -hex 16`, \
         and keep them to yourself\n",
    );
}

#[test]
fn requests_that_are_alike_have_names_of_their_own() {
    let folder = Folder::new("import-alike");
    let line = json!({ "messages": [{ "role": "user", "content": "What is the time in Reykjavik?" }], "user": "nobody in particular",
        "model": "gpt-secret", "timestamp": 1_764_500_000 });
    let rows = imported(&folder, "openai-jsonl", &lines(&[line.clone(), line.clone(), line]), &["--salt", SALT]);
    let mut names: Vec<u64> = rows.iter().map(|row| row["request_id"].as_u64().expect("a number")).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3);
    assert_eq!(ids(&rows[0]), ids(&rows[2]));
    assert_eq!(rows[2]["dependencies"][0]["request_id"], rows[1]["request_id"]);
}

#[test]
fn a_request_trace_without_partial_hashes_gets_an_end_of_its_own() {
    let folder = Folder::new("import-ends");
    let end = |id: &str, input: u64, hashes: &[u64]| {
        json!({ "schema": "dynamo.request.trace.v1", "event_type": "request_end",
            "agent_context": { "session_id": "session-of-carol" },
            "request": { "request_id": id, "model": "secret-model", "output_tokens": 33, "request_received_ms": 1_764_500_000_000_u64,
                "total_time_ms": 900,
                "replay": { "trace_block_size": 128, "input_length": input, "input_sequence_hashes": hashes } } })
    };
    let known = [918_273_645_546, 817_263_545_443, 716_253_443_342];
    let log = lines(&[
        end("req-first", 300, &known[..2]),
        end("req-second", 384, &known),
        end("req-third", 300, &known[..2]),
    ]);
    let rows = imported(&folder, "dynamo-request-trace", &log, &[]);
    let found: Vec<_> = rows.iter().map(ids).collect();
    assert_eq!(found, [[0, 1, 2], [0, 1, 3], [0, 1, 4]]);
    assert_eq!(rows[1]["block_size"], 128);
}

#[test]
fn lines_that_do_not_fit_are_refused_with_their_number() {
    let folder = Folder::new("import-refused");
    let dynamo = r#"{"event_type":"request_end","request":{"replay":{"trace_block_size":16,"input_length":64,"input_sequence_hashes":[1]}}}"#;
    let table = [
        ("openai-jsonl", "{\"messages\":[]}\nnothing\n", "log:2: error: it is no JSON"),
        ("openai-jsonl", "{\"prompt\":\"x\"}\n", "log:1: error: expected `messages`"),
        ("dynamo-request-trace", dynamo, "log:1: error: expected 4 hashes for 64 tokens, got 1"),
        ("dynamo-request-trace", "{}\n", "it holds no request of this form"),
        ("vllm-events", "[1, 2]\n", "log:1: error: expected a batch"),
        (
            "vllm-events",
            "[1,[[\"BlockStored\",[1],null,[],16],[\"BlockStored\",[2],null,[],32]]]\n",
            "expected blocks of 16 tokens",
        ),
    ];
    let refused = |form: &str, text: &str, expected: &str| {
        let ran = folder.write("log", text).run(&["import", "log", "--format", form]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{form}: {text}");
        assert!(ran.stderr.contains(expected), "no `{expected}` in {}", ran.stderr);
    };
    for (form, text, expected) in table {
        refused(form, text, expected);
    }
    // A server that was killed leaves half a line, and a log of another form holds none of these.
    for (at, (form, log)) in LOGS.into_iter().enumerate() {
        let whole = log.lines().count();
        let half = log.lines().last().map_or(0, |line| line.len() / 2);
        refused(form, &log[..log.len() - half], &format!("log:{whole}: error: it is no JSON: EOF"));
        let spoiled = log.replacen('\n', "\n\u{fffd}{\"half\":\n", 1);
        refused(form, &spoiled, "log:2: error: it is no JSON");
        refused(form, LOGS[(at + 1) % LOGS.len()].1, "error: ");
    }
    folder.run(&["redact", "log"]).ends_with(2);
}

#[test]
fn a_redacted_event_log_still_conforms_and_holds_no_hash() {
    let folder = Folder::new("redact");
    let args =
        ["run", "--sessions", "3", "--rounds", "2", "--prompt-token-us", "0", "--device-pages", "60%", "--out", "out"];
    folder.run(&args).ends_with(0);
    let redacted = folder.run(&["redact", "out/events.jsonl"]);
    redacted.ends_with(0);
    folder.write("redacted.jsonl", &redacted.stdout);
    folder.run(&["conform", "redacted.jsonl"]).ends_with(0);
    let log = folder.read("out/events.jsonl");
    let mut hidden: Vec<&str> =
        log.split('"').filter(|w| [16, 32].contains(&w.len()) && w.bytes().all(|b| b.is_ascii_hexdigit())).collect();
    hidden.sort_unstable();
    hidden.dedup();
    assert!(hidden.len() > 100);
    // A zero checksum is its own rank.
    for word in hidden.into_iter().filter(|word| !word.starts_with("00000000")) {
        assert!(!redacted.stdout.contains(word), "{word} is in the redacted log");
    }
    let run = log.split("\"run\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
    assert!(run.starts_with("run-") && !redacted.stdout.contains(run), "{run}");
    let header: Value = serde_json::from_str(redacted.stdout.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&header["run"], &header["device"]), (&Value::from("redacted"), &Value::from("redacted")));
    let log = folder.read("out/events.jsonl");
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    lines[1] = "what somebody said".to_owned();
    folder.write("garbage.jsonl", lines.join("\n") + "\n");
    folder.write("newer.jsonl", log.replacen("\"schema\":1", "\"schema\":2", 1));
    for (file, expected) in [
        ("garbage.jsonl", "garbage.jsonl:2: error: "),
        ("newer.jsonl", "newer.jsonl:1: error: expected a log of schema 1, got 2\n"),
    ] {
        let refused = folder.run(&["redact", file]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{file}");
        assert!(refused.stderr.starts_with(expected), "{}", refused.stderr);
    }
    folder.write("cut.jsonl", &log[..log.len() - 9]);
    let cut = folder.run(&["redact", "cut.jsonl"]);
    cut.ends_with(0);
    assert_eq!(cut.stdout.lines().count() + 1, lines.len());
    assert!(cut.stderr.contains("the last line is cut short, and left out"), "{}", cut.stderr);
}

#[test]
fn a_redacted_trace_names_nothing_of_a_scenario_and_replays_where_its_names_are_put_in() {
    let folder = Folder::new("redact-trace");
    let source = |name: &str| {
        let known = kvweft_scenarios::SCENARIOS.iter().find(|file| file.name == name);
        known.expect("it is built in").text.to_owned()
    };
    for (name, property) in
        [("write-back", "every-request-ends"), ("reload-before-prefill-read", "reads-see-own-content")]
    {
        let mine = source(name);
        let names = [
            ("\"r1\"", "\"alice.first\""),
            ("\"r2\"", "\"bob_2\""),
            ("\"A\"", "\"merger-plan\""),
            ("\"B\"", "\"salary-list\""),
        ];
        let mine = names.iter().fold(mine, |text, (from, to)| text.replace(from, to));
        folder.write("project-nightjar.toml", &mine);
        folder.run(&["check", "project-nightjar.toml", "--out", "out"]);
        let path = format!("out/project-nightjar.{property}.trace");
        let trace = folder.read(&path);
        let redacted = folder.run(&["redact", &path]);
        redacted.ends_with(0);
        let digest = trace.split("digest ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("it has one");
        let hidden = ["alice.first", "bob_2", "merger-plan", "salary-list", "project-nightjar", digest];
        assert!(hidden[..3].iter().all(|word| trace.contains(word)), "{trace}");
        for word in hidden {
            assert!(!redacted.stdout.contains(word), "{word} is in\n{}", redacted.stdout);
        }
        folder.write("redacted.trace", &redacted.stdout);
        folder.write("known.toml", source(name));
        let replayed = folder.run(&["replay", "redacted.trace", "--scenario", "known.toml"]);
        replayed.ends_with(0);
        assert!(replayed.stdout.contains("violated, as recorded"), "{}", replayed.stdout);
    }
    // A trace of a built-in scenario has no name that is not public.
    let path = folder.trace("write-back", "every-request-ends");
    assert_eq!(folder.run(&["redact", &path]).stdout, folder.read(&path));
    folder.write("cut.trace", "kvweft-trace 1\nscenario s\n");
    folder
        .run(&["redact", "cut.trace"])
        .is_refused("cut.trace:2: error: expected a line `violates  PROPERTY`, found the end\n");
}
