//! Damaged traces, scenarios and arguments: an answer, never a panic.

use kvweft_check::build::{build, dropped, with_names};
use kvweft_check::record::replay;
use kvweft_check::scenario;
use kvweft_check::shrink::shrink;
use kvweft_trace::TraceFile;

use crate::kvweft::{Folder, Numbers};

const SCENARIOS: [(&str, &str); 3] = [
    ("reload-before-prefill-read", "reads-see-own-content"),
    ("handover", "done-means-arrived"),
    ("hold-and-wait", "every-request-ends"),
];

/// Thousands of traces with steps left out, doubled, swapped, and with words of other steps.
#[test]
fn a_trace_whose_steps_were_shuffled_replays_or_says_which_step_cannot_happen() {
    let folder = Folder::new("shuffled");
    let mut numbers = Numbers(11);
    for (name, property) in SCENARIOS {
        let good = TraceFile::parse(&folder.read(&folder.trace(name, property))).expect("it was just written");
        let loaded = with_names(|names| scenario::load_embedded_one(name, names));
        let scenario = loaded.expect("it is built in").expect("it is valid");
        let system = build(&scenario, dropped(good.drops.iter().map(String::as_str)).expect("known rules"));
        let (mut whole, mut impossible) = (0, 0);
        for _ in 0..3_000 {
            let mut trace = good.clone();
            for _ in 0..=numbers.below(3) {
                let (a, b) = (numbers.below(trace.steps.len()), numbers.below(trace.steps.len()));
                match numbers.below(6) {
                    0 => drop(trace.steps.remove(a)),
                    1 => trace.steps.insert(a, trace.steps[b].clone()),
                    2 => trace.steps.swap(a, b),
                    3 => trace.steps[a].action = trace.steps[b].action.clone(),
                    4 => trace.steps[a].actor = trace.steps[b].actor.clone(),
                    _ => trace.steps.truncate(a.max(1)),
                }
                if trace.steps.is_empty() {
                    break;
                }
            }
            match replay(&system, &trace) {
                Ok(replayed) => {
                    whole += 1;
                    assert_eq!(replayed.steps.len(), trace.steps.len());
                    if replayed.violation.is_some() {
                        let shrunk = shrink(&system, &replayed.actions, &trace.violates);
                        assert!(shrunk.actions.len() <= replayed.actions.len());
                    }
                }
                Err(stopped) => {
                    impossible += 1;
                    assert_eq!(stopped.before.len() + 1, stopped.step);
                    assert!(stopped.to_string().contains(&format!("step {} cannot happen", stopped.step)));
                }
            }
        }
        assert!(whole > 10 && impossible > 10, "{name}: {whole} replayed, {impossible} did not");
    }
}

fn damage(numbers: &mut Numbers, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(4) {
            0 => bytes[at] = numbers.below(256) as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at.max(1)),
            _ => {
                let from = numbers.below(bytes.len());
                let piece = bytes[from..bytes.len().min(from + 12)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

#[test]
fn damaged_files_are_answered_with_a_message_or_a_verdict() {
    let folder = Folder::new("damaged");
    let trace = folder.read(&folder.trace("handover", "done-means-arrived"));
    let mut numbers = Numbers(12);
    for _ in 0..150 {
        folder.write("t.trace", damage(&mut numbers, &trace));
        for command in ["replay", "render", "shrink"] {
            let ran = folder.run(&[command, "t.trace"]);
            assert!(matches!(ran.code, Some(0..=2)), "{command} gave {ran:?} for\n{}", damaged(&folder, "t.trace"));
        }
    }
    for file in kvweft_scenarios::SCENARIOS {
        for _ in 0..4 {
            folder.write("s.toml", damage(&mut numbers, file.text));
            let ran = folder.run(&["check", "s.toml", "--max-states", "200", "--threads", "1"]);
            assert!(matches!(ran.code, Some(0..=3)), "{ran:?} for\n{}", damaged(&folder, "s.toml"));
        }
    }
}

fn damaged(folder: &Folder, name: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(folder.path(name)).expect("the test wrote it")).into_owned()
}

#[test]
fn arguments_thrown_together_are_answered_with_a_message_or_a_verdict() {
    const WORDS: [&str; 36] = [
        "check",
        "replay",
        "shrink",
        "step",
        "render",
        "list",
        "man",
        "completions",
        "help",
        "handover",
        "dense-handover",
        "t.trace",
        "nothing",
        ".",
        "",
        "-",
        "--",
        "--drop",
        "kv-read-waits-layer",
        "index-read-waits-layer@ragged-prefill",
        "--only",
        "owner-only",
        "--tag",
        "real",
        "--exact",
        "--all-rules",
        "--grain",
        "finest",
        "--format",
        "json",
        "--threads",
        "2",
        "--as",
        "dot",
        "--scenario",
        "ümlaut@=",
    ];
    let folder = Folder::new("arguments");
    let trace = folder.read(&folder.trace("handover", "done-means-arrived"));
    folder.write("t.trace", trace);
    let mut numbers = Numbers(13);
    for _ in 0..400 {
        let mut args: Vec<&str> = (0..numbers.below(6)).map(|_| WORDS[numbers.below(WORDS.len())]).collect();
        if args.first() == Some(&"check") {
            args.extend(["--max-states", "100"]);
        }
        let ran = folder.run(&args);
        assert!(matches!(ran.code, Some(0..=3)), "{args:?} gave {ran:?}");
    }
}
