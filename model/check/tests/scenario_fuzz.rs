//! The loader never panics, whatever the bytes.
#![cfg(feature = "scenario-files")]

mod scenario_common;

use kvweft_check::scenario::{ModelFile, Pick, import, render_plain};
use scenario_common::{GOOD, parsed};

/// Feeds the bytes to every parser and renders what they say. A fuzzer may call it for as long as it likes.
pub fn fuzz_one(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match parsed(&text) {
        Ok(scenario) => assert_eq!(scenario.digest().len(), 16),
        Err(errors) => errors.iter().for_each(|error| assert!(render_plain(error).contains("error: "))),
    }
    if let Err(errors) = ModelFile::parse("model.toml", &text) {
        errors.iter().for_each(|error| assert!(!render_plain(error).is_empty()));
    }
    let rows = Pick::Mooncake { rows: vec![0, 1], blocks_max: Some(2) };
    let turns = Pick::Sessions { skip: 0, sessions: 1, turns: 2, blocks_max: None };
    for pick in [rows, turns] {
        if let Err(errors) = import("log.jsonl", &text, &pick) {
            errors.iter().for_each(|error| assert!(!render_plain(error).is_empty()));
        }
    }
}

/// A small generator with a fixed seed: the same cases on every machine.
struct Steps(u64);

impl Steps {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

/// One change of a few bytes: overwrite, insert, remove, copy a piece, or put a telling word in.
fn mutate(bytes: &mut Vec<u8>, steps: &mut Steps) {
    const WORDS: &[&str] = &[
        "\"",
        "'''",
        "[",
        "]]",
        "{",
        "=",
        "\n",
        ",",
        "-1",
        "99999999999999999999",
        "0x",
        "1e9",
        "nan",
        "true",
        "[[request]]",
        "[requests]\n",
        "after = [\"r1\"]\n",
        "\u{e4}",
        "\u{feff}",
        "\r\n",
        "\0",
        "1979-05-27",
        "a.b.c",
        "layers = [0]\n",
    ];
    let at = steps.below(bytes.len() + 1);
    let end = (at + steps.below(20)).min(bytes.len());
    match steps.below(5) {
        0 if at < bytes.len() => bytes[at] = steps.below(256) as u8,
        1 => drop(bytes.drain(at..end)),
        2 => {
            let piece = bytes[at..end].to_vec();
            let to = steps.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        _ => {
            let word = WORDS[steps.below(WORDS.len())].bytes();
            bytes.splice(at..at, word);
        }
    }
}

#[test]
fn mutated_files_are_parsed_or_refused_and_never_panic() {
    let model = kvweft_scenarios::model("deepseek-v4-flash").expect("built in");
    let log = kvweft_scenarios::data("agentic-sessions-head.jsonl").expect("built in").lines().next().expect("a line");
    let rows = "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[0,1]}\n".repeat(2);
    let from = "format = 1\ntitle = 't'\nsource = 's'\nmodel = { file = 'dense', layers = [1] }\nworld.device_pages = 9\n\
                requests.from = { file = 'agentic-sessions-head.jsonl', format = 'sessions', turns = 3, max_blocks = 2 }\n";
    // A long run asks for more cases; the first ones are always the same.
    let cases = std::env::var("KVWEFT_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1500);
    let mut steps = Steps(1);
    for seed in [GOOD, model, log, &rows, from] {
        fuzz_one(seed.as_bytes());
        for _ in 0..cases {
            let mut bytes = seed.as_bytes().to_vec();
            for _ in 0..=steps.below(4) {
                mutate(&mut bytes, &mut steps);
            }
            fuzz_one(&bytes);
        }
    }
}
