//! `kvweft hits`: what can be counted by hand, and what is known of public logs.

use std::path::{Path, PathBuf};

use crate::json::fits;
use crate::kvweft::Folder;

/// Rows of a Mooncake log: tokens and ids.
fn log(rows: &[(u32, &[u64])]) -> String {
    let row = |(at, (tokens, ids)): (usize, &(u32, &[u64]))| {
        format!("{{\"timestamp\":{at},\"input_length\":{tokens},\"output_length\":1,\"hash_ids\":{ids:?}}}\n")
    };
    rows.iter().enumerate().map(row).collect()
}

#[test]
fn blocks_that_are_found_again_are_counted_by_size_of_the_cache() {
    let folder = Folder::new("hits");
    // Two prompts in turn; the last block of the second one is half full.
    let [a, b]: [(u32, &[u64]); 2] = [(1024, &[1, 2]), (1280, &[1, 3, 4])];
    folder.write("log.jsonl", log(&[a, b, a, b]));
    let args = ["hits", "log.jsonl", "--tokens", "1024", "--tokens", "1600", "--tokens", "1024"];
    let text = folder.run(&args);
    text.ends_with(0);
    // Two blocks keep 1 and lose the others in turn; three keep 3 for the second time that 1, 3, 4 comes.
    let expected = "log.jsonl: 4 requests, 10 blocks of 512 tokens, 4608 tokens\n\n\
        tokens in the cache  blocks found  tokens found  second half: blocks  tokens\n\
        1024  30.00 %       33.33 %       40.00 %              44.44 %\n\
        1600  40.00 %       44.44 %       60.00 %              66.67 %\n\
        no limit             60.00 %       61.11 %       100.00 %             100.00 %\n";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&text.stdout), words(expected), "{}", text.stdout);
    for threads in ["1", "4"] {
        let json = folder.run(&[&args[..], &["--format", "json", "--threads", threads]].concat());
        json.ends_with(0);
        let document = fits("hits.schema.json", &json.stdout);
        let caches = document["caches"].as_array().expect("a list");
        assert_eq!(caches.len(), 3);
        assert!(caches[2]["capacity_tokens"].is_null());
        assert_eq!(
            (&caches[2]["all"]["blocks_hit"], &caches[2]["all"]["tokens_hit"], &caches[2]["second_half"]["tokens_hit"]),
            (&6.into(), &2816.into(), &2304.into())
        );
    }
    folder.run(&["hits", "lag.jsonl"]).ends_with(2);
}

/// A whole public log, if it is here: `KVWEFT_DATA` names the folder, or it stands in `../shared/data` beside the tree.
fn whole(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("KVWEFT_DATA").map_or_else(beside, PathBuf::from).join(name);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here; KVWEFT_DATA names the folder of the whole logs", path.display());
    None
}

#[test]
fn what_is_known_of_the_public_logs_is_printed() {
    let folder = Folder::new("hits-public");
    let table = [
        ("mooncake_conversation_trace.jsonl", "no limit 36.64 % 37.36 % ", [4.3, 5.4, 13.9, 29.1, 36.6]),
        ("mooncake_synthetic_trace.jsonl", "no limit 63.96 % 65.12 % ", [1.7, 14.5, 31.5, 57.7, 65.1]),
    ];
    for (name, unlimited, limited) in table {
        let Some(path) = whole(name) else { continue };
        let ran = folder.run(&["hits", &path.display().to_string()]);
        ran.ends_with(0);
        let lines: Vec<String> =
            ran.stdout.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(lines[6].starts_with(unlimited), "{}", ran.stdout);
        // Sizes of 100,000, 1, 3, 10 and 30 million tokens.
        for (line, percent) in [0, 2, 3, 4, 5].into_iter().zip(limited) {
            let found: f64 = lines[line].split(' ').nth(3).and_then(|word| word.parse().ok()).expect("a share");
            assert!((found - percent).abs() < 0.1, "{name}: {percent} and\n{}", ran.stdout);
        }
    }
}
