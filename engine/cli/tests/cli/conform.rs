//! Whether the log of a run can have happened.

use serde_json::Value;

use crate::json::fits;
use crate::kvweft::{Folder, Numbers};

/// A folder with the log of a small run.
fn with_log(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    folder.run(&["run", "--sessions", "3", "--rounds", "2", "--out", "out"]).ends_with(0);
    let log = folder.read("out/events.jsonl");
    (folder, log)
}

#[test]
fn a_log_that_conforms_says_what_was_compared() {
    let (folder, log) = with_log("conform-whole");
    let report: Value = serde_json::from_str(&folder.read("out/run.json")).expect("JSON");
    let value = fits("conform.schema.json", &folder.run(&["conform", "out/events.jsonl", "--format", "json"]).stdout);
    assert_eq!((&value["conforms"], &value["cut_off"]), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!((&value["run"], value["lines"].as_u64()), (&report["run"], Some(log.lines().count() as u64)));
    let expected = format!(
        "conforms: run {}, {} lines, {} inputs, {} operations, {} cells compared\n",
        report["run"].as_str().expect("a text"),
        value["lines"],
        value["inputs"],
        value["operations"],
        value["cells"],
    );
    let ran = folder.run(&["conform", "out/events.jsonl"]);
    ran.ends_with(0);
    assert_eq!((ran.stdout, ran.stderr), (expected, String::new()));
}

#[test]
fn a_line_that_is_not_allowed_is_named() {
    let (folder, log) = with_log("conform-wrong");
    let lines: Vec<&str> = log.lines().collect();
    let read =
        lines.iter().position(|line| line.contains("\"event\":\"read\"") && line.contains("\"sums\"")).expect("a read");
    // The last digit of the first sum.
    let at = lines[read].find("\"sums\":[\"").expect("as above") + "\"sums\":[\"".len() + 15;
    let digit = if &lines[read][at..=at] == "0" { "1" } else { "0" };
    let changed = format!("{}{digit}{}", &lines[read][..at], &lines[read][at + 1..]);
    let mut wrong = lines.clone();
    wrong[read] = &changed;
    folder.write("sum.jsonl", wrong.join("\n") + "\n");
    let ran = folder.run(&["conform", "sum.jsonl"]);
    ran.ends_with(1);
    assert!(ran.stdout.starts_with(&format!("sum.jsonl:{}: not allowed: ", read + 1)), "{}", ran.stdout);
    let value = fits("conform.schema.json", &folder.run(&["conform", "sum.jsonl", "--format", "json"]).stdout);
    assert_eq!((&value["conforms"], &value["lines"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(value["not_allowed"]["line"].as_u64(), Some(read as u64 + 1));
    // A line that is gone.
    let mut fewer = lines.clone();
    fewer.remove(read);
    folder.write("gone.jsonl", fewer.join("\n") + "\n");
    let ran = folder.run(&["conform", "gone.jsonl"]);
    ran.ends_with(1);
    let expected = format!(
        "gone.jsonl:{}: not allowed: expected line number {read}, got {}: lines are missing or moved\n",
        read + 1,
        read + 1
    );
    assert!(ran.stdout.starts_with(&expected), "{}", ran.stdout);
    let shown = ran.stdout.lines().nth(1).expect("the line itself");
    assert!(shown.starts_with("  {\"seq\":") && shown.len() < 200, "{shown}");
}

#[test]
fn a_log_that_is_cut_off_is_inconclusive_wherever_it_ends() {
    let (folder, log) = with_log("conform-cut");
    let first = log.find('\n').expect("a line") + 1;
    for cut in [first, log.len() / 3, log.len() / 2, log.len() - 2] {
        folder.write("cut.jsonl", &log[..cut]);
        let ran = folder.run(&["conform", "cut.jsonl"]);
        ran.ends_with(3);
        assert!(ran.stdout.starts_with("cut off, and conforms as far as it goes: run "), "{}", ran.stdout);
    }
}

#[test]
fn what_is_no_log_is_refused() {
    let folder = Folder::new("conform-refused");
    let header = r#"{"seq":0,"at_us":0,"event":"run","schema":2,"tool":"t","run":"r","device":"host","engines":[]}"#;
    folder.write("empty", "").write("text", "hello\n").write("later", header).write("bytes", b"\xff\xfe");
    folder.write("end", "{\"seq\":0,\"at_us\":0,\"event\":\"end\",\"lines\":0,\"settled\":true}\n");
    let cases = [
        ("none", "error: none: cannot read the event log: there is no such file or folder\n".to_owned()),
        (
            ".",
            "error: .: a folder stands where an event log was expected\nhelp: name the events.jsonl in it\n".to_owned(),
        ),
        ("bytes", "error: bytes: cannot read the event log: it is not UTF-8 text\n".to_owned()),
        (
            "empty",
            "empty:1: error: no event log: the log is empty: expected a line with `\"event\":\"run\"`\n".to_owned(),
        ),
        (
            "text",
            "text:1: error: no event log: it cannot be read: expected value at line 1 column 1\nfound: hello\n"
                .to_owned(),
        ),
        (
            "later",
            format!(
                "later:1: error: no event log: expected schema 1, got 2: another version of kvweft wrote it\n\
                 found: {header}\n"
            ),
        ),
        (
            "end",
            "end:1: error: no event log: expected the line that begins a run: `\"event\":\"run\"`\n\
             found: {\"seq\":0,\"at_us\":0,\"event\":\"end\",\"lines\":0,\"settled\":true}\n"
                .to_owned(),
        ),
    ];
    for (file, expected) in cases {
        folder.run(&["conform", file]).is_refused(&expected);
    }
    // A file with a hole: large, and nowhere on the disk.
    let large = std::fs::File::create(folder.path("large")).expect("the folder is the test's own");
    if large.set_len((4 << 30) + 1).is_ok() {
        folder.run(&["conform", "large"]).is_refused(
            "error: large: cannot read the event log: it is larger than 4 GiB\nhelp: let the run be shorter\n",
        );
    }
    std::fs::remove_file(folder.path("large")).expect("as above");
}

/// Whatever stands in a log, it is judged.
#[test]
fn damaged_logs_are_judged_and_never_end_the_program() {
    let (folder, log) = with_log("conform-damaged");
    let lines: Vec<&str> = log.lines().take(200).collect();
    let text = lines.join("\n") + "\n";
    let mut numbers = Numbers(3);
    for _ in 0..60 {
        let mut bytes = text.clone().into_bytes();
        let at = numbers.below(bytes.len());
        match bytes[at] {
            b'0'..=b'9' => bytes[at] = b'0' + numbers.below(10) as u8,
            b'a'..=b'z' => bytes[at] = b'a' + numbers.below(26) as u8,
            _ => drop(bytes.remove(at)),
        }
        folder.write("damaged.jsonl", bytes);
        let ran = folder.run(&["conform", "damaged.jsonl"]);
        assert!(matches!(ran.code, Some(1..=3)), "at byte {at}: {ran:?}");
    }
}
