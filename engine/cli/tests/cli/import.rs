//! `kvweft import` and `kvweft redact`: what comes out can be used, and holds nothing of what went in.

use serde_json::{Value, json};

use crate::kvweft::Folder;

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

/// Imports the lines, looks for everything that must not come out, and simulates what does.
fn imported(name: &str, form: &str, lines: &[Value]) -> Vec<Value> {
    let folder = Folder::new(name);
    folder.write("log.jsonl", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    let ran = folder.run(&["import", "log.jsonl", "--format", form]);
    ran.ends_with(0);
    let mut hidden = Vec::new();
    lines.iter().for_each(|line| secrets(line, &mut hidden));
    assert!(hidden.len() > 5, "{hidden:?}");
    // Words of the form that comes out.
    hidden.retain(|text| !["request_id", "completion", "dispatch", "sequence"].contains(&text.as_str()));
    for text in hidden.iter().filter(|text| !text.is_empty()) {
        assert!(!ran.stdout.contains(text.as_str()), "`{text}` is in\n{}", ran.stdout);
    }
    folder.write("mine.jsonl", &ran.stdout);
    let played = folder.run(&["simulate", "mine.jsonl", "--model", "deepseek-v3.2", "--device-pages", "2000"]);
    played.ends_with(0);
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn messages_become_numbers_and_share_what_they_share() {
    let system = json!({ "role": "system", "content": "You are Zebulon, a careful agent. ".repeat(40) });
    let ask = |text: &str| json!({ "role": "user", "content": text.repeat(30) });
    let lines = [
        json!({ "timestamp": 1_764_500_000.5, "session_id": "alice@example.org", "duration_ms": 1500, "model": "gpt-secret",
            "messages": [system, ask("Where is the harbour? ")], "usage": { "completion_tokens": 77 } }),
        json!({ "timestamp": 1_764_500_010.5, "session_id": "alice@example.org",
            "messages": [system, ask("Where is the harbour? "), ask("And the lighthouse? ")], "usage": { "completion_tokens": 5 } }),
        json!({ "custom_id": "batch-of-bob", "body": { "user": "bob", "messages": [system, ask("Quite another thing. ")] },
            "created": 1_764_500_002,
            "response": { "body": { "choices": [{ "message": { "role": "assistant", "content": "Verily. ".repeat(8) } }] } } }),
    ];
    let rows = imported("import-openai", "openai-jsonl", &lines);
    let ids = |at: usize| rows[at]["hash_ids"].as_array().expect("a list").clone();
    let shared = |a: usize, b: usize| ids(a).iter().zip(ids(b)).take_while(|(a, b)| *a == b).count();
    assert_eq!(rows.iter().map(|row| &row["session_id"]).collect::<Vec<_>>(), [0, 1, 0]);
    assert!(shared(0, 2) > shared(0, 1) && shared(0, 1) >= 4, "{rows:?}");
    assert_eq!(rows[0]["output_length"], 77);
    assert!(rows[1]["output_length"].as_u64() > Some(10));
    assert_eq!(
        rows[2]["dependencies"],
        json!([{ "request_id": 0, "trigger": "completion", "delay_ms": 8500, "relation": "sequence" }])
    );
    assert_eq!(rows[1]["not_before_ms"], 1500);
}

#[test]
fn a_request_trace_keeps_its_blocks_and_its_sessions() {
    let end = |id: &str, session: &str, at: u64, input: u64, hashes: &[u64]| {
        json!({ "schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": at + 900,
            "agent_context": { "session_id": session },
            "request": { "request_id": id, "model": "secret-model", "output_tokens": 33, "request_received_ms": at,
                "total_time_ms": 900,
                "replay": { "trace_block_size": 128, "input_length": input, "input_sequence_hashes": hashes } } })
    };
    let lines = [
        end("req-first", "session-of-carol", 1_764_500_000_000, 300, &[918_273_645_546, 817_263_545_443]),
        json!({ "event_type": "tool", "tool": { "tool_class": "secret-tool" } }),
        end(
            "req-second",
            "session-of-carol",
            1_764_500_002_000,
            384,
            &[918_273_645_546, 817_263_545_443, 716_253_443_342],
        ),
    ];
    let rows = imported("import-dynamo", "dynamo-request-trace", &lines);
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["hash_ids"], &rows[1]["hash_ids"]), (&json!([0, 1, 2]), &json!([0, 1, 3])));
    assert_eq!(rows[1]["dependencies"][0]["delay_ms"], 1100);
    assert_eq!(rows[1]["block_size"], 128);
}

#[test]
fn stored_blocks_become_one_request_for_each_end() {
    let lines = [
        json!([1_764_500_000.25, [{ "type": "BlockStored", "block_hashes": ["aa11bb22cc", "bb22cc33dd"], "parent_block_hash": null,
            "token_ids": [123_456, 234_567], "block_size": 64, "medium": "GPU" }], 0]),
        json!([
            1_764_500_001.25,
            [
                ["BlockStored", [987_654_321], "bb22cc33dd", [345_678], 64, null],
                ["BlockRemoved", [987_654_321]],
                ["AllBlocksCleared"]
            ],
            0
        ]),
        json!({ "ts": 1_764_500_002.25, "events": [["BlockStored", [876_543_210], "aa11bb22cc", [456_789], 64, null]] }),
    ];
    let rows = imported("import-vllm", "vllm-events", &lines);
    let found: Vec<_> =
        rows.iter().map(|row| (&row["hash_ids"], &row["input_length"], &row["not_before_ms"])).collect();
    let expected = [(json!([0, 1, 2]), json!(192), json!(0)), (json!([0, 3]), json!(128), json!(1000))];
    assert_eq!(found, expected.iter().map(|(ids, tokens, at)| (ids, tokens, at)).collect::<Vec<_>>());
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
    for (form, text, expected) in table {
        let ran = folder.write("log", text).run(&["import", "log", "--format", form]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{form}: {text}");
        assert!(ran.stderr.contains(expected), "no `{expected}` in {}", ran.stderr);
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
}
