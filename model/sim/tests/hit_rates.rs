//! Known hit rates of public logs, and those of another program.
//!
//! The whole logs are not in the tree. They are read from the folder that `KVWEFT_DATA` names, or `../shared/data` beside
//! the tree; without them the tests say so and look at the heads that are in the tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use kvweft_sim::hits::{least_recently_used, unlimited};
use kvweft_sim::workload::{Form, Workload};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A whole log, if it is here.
fn whole(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("KVWEFT_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let path = folder.join(name);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here; KVWEFT_DATA names the folder of the whole logs", path.display());
    None
}

fn read(path: &Path) -> Workload {
    let text = std::fs::read_to_string(path).expect("it can be read");
    Workload::parse(Form::Mooncake, &text).expect("it is a log")
}

#[test]
fn a_cache_without_a_limit_reuses_what_is_known_of_the_public_logs() {
    for (name, blocks, tokens) in
        [("mooncake_conversation_trace.jsonl", 3664, 3736), ("mooncake_synthetic_trace.jsonl", 6396, 6512)]
    {
        let Some(path) = whole(name) else { continue };
        let hits = unlimited(&read(&path), 0);
        assert_eq!((hits.blocks_per_10k(), hits.tokens_per_10k()), (blocks, tokens), "{name}: {hits:?}");
    }
}

/// Prints hit tokens, tokens and mode for each capacity in blocks.
const SCRIPT: &str = r"
import sys
from kvcache_sim.trace import parse_trace_file
from kvcache_sim.plan import build_execution_plan
from kvcache_sim.policies import simulate_policy
plan = build_execution_plan(parse_trace_file(sys.argv[1], block_size=512), warmup_fraction=0.5)
for capacity in sys.argv[2:]:
    result = simulate_policy(plan, 'lru', int(capacity))
    print(result.hitTokens, result.totalTokens, result.measurementMode)
";

#[test]
fn a_cache_that_drops_the_least_recently_used_reuses_what_kvcache_simulator_says() {
    let python = std::env::var("KVWEFT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let version = "import importlib.metadata as m; print(m.version('kvcache-simulator'))";
    let found = Command::new(&python).args(["-c", version]).output();
    let found = found.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if found != "0.1.3" {
        eprintln!("skipped: {python} has no kvcache-simulator 0.1.3; KVWEFT_PYTHON names another interpreter");
        return;
    }
    let heads =
        ["conversation", "synthetic"].map(|name| root().join(format!("scenarios/data/mooncake-{name}-head.jsonl")));
    let wholes = ["conversation", "synthetic"].map(|name| whole(&format!("mooncake_{name}_trace.jsonl")));
    let mut compared = 0;
    for path in heads.into_iter().chain(wholes.into_iter().flatten()) {
        let workload = read(&path);
        let tokens: [u64; 7] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000, 30_000_000];
        let blocks: Vec<String> = tokens.iter().map(|tokens| (tokens / 512).to_string()).collect();
        let output =
            Command::new(&python).args(["-c", SCRIPT]).arg(&path).args(&blocks).output().expect("it ran above");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("it prints ASCII");
        assert_eq!(said.lines().count(), blocks.len());
        for (blocks, line) in blocks.iter().zip(said.lines()) {
            // It says nothing about caches that are not full before the second half.
            if !line.ends_with("fixed_window") {
                continue;
            }
            let hits = least_recently_used(&workload, blocks.parse().expect("a number"), workload.requests() / 2);
            assert_eq!(
                format!("{} {} fixed_window", hits.tokens_hit, hits.tokens),
                line,
                "{} of {blocks}",
                path.display()
            );
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} capacities were compared");
}

#[test]
fn the_block_that_was_used_longest_ago_goes_first() {
    let log: String = ["1, 2", "3", "1", "4", "5", "1"]
        .iter()
        .enumerate()
        .map(|(at, ids)| {
            let tokens = 512 * ids.split(',').count();
            format!(
                "{{\"timestamp\": {at}, \"input_length\": {tokens}, \"output_length\": 1, \"hash_ids\": [{ids}]}}\n"
            )
        })
        .collect();
    let workload = Workload::parse(Form::Mooncake, &log).expect("it is a log");
    // In three blocks: 4 takes the place of 2, then 5 that of 3, since 1 was asked for after 3; so 1 is there twice.
    assert_eq!(least_recently_used(&workload, 3, 0).blocks_hit, 2);
    // In two: 3 takes the place of 2, 4 that of 3, and 5 that of 1.
    assert_eq!(least_recently_used(&workload, 2, 0).blocks_hit, 1);
    assert_eq!(unlimited(&workload, 0).blocks_hit, 2);
}
