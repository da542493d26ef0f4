//! kvweft's simulator and `aisimulate-core` in turn on the same work; ratios of one run.
//!
//! `cargo run --release -- FOLDER [ROUNDS]`, where the folder holds `mooncake_conversation_trace.jsonl` and
//! `weka_agentic_sessions.jsonl`; `scenarios/data/README.md` says where they come from. Blocks have 64 tokens on both sides:
//! those of the conversation log are cut into eight. Agents do not think, sub-agents are left out, and a session has at most
//! 50 requests, so that the other one ends in minutes.

mod peer;

use std::time::Instant;

use kvweft_core::{Dtype, Geometry};
use kvweft_sim::workload::Form;
use kvweft_sim::{Arrival, Profile, Settings, Workload, simulate};
use serde_json::Value;

/// Tokens of a page, of both simulators.
pub(crate) const PAGE_TOKENS: usize = 64;
/// Bytes of a token: 61 layers of 656 bytes of KV and 132 of index keys.
pub(crate) const TOKEN_BYTES: usize = 61 * (656 + 132);
const SESSION_REQUESTS_MAX: usize = 50;
const SESSIONS: usize = 160;

/// A request as both get it: ids of blocks of 64 tokens.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) session: String,
    pub(crate) input_tokens: usize,
    pub(crate) output_tokens: usize,
    pub(crate) blocks: Vec<u64>,
}

/// What is compared.
pub(crate) struct Work {
    name: &'static str,
    pub(crate) requests: Vec<Asked>,
    log: Workload,
    pub(crate) concurrency: usize,
    pub(crate) device_blocks: usize,
    pub(crate) host_blocks: usize,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("expected the folder of the logs: cargo run --release -- FOLDER [ROUNDS]");
    let rounds: usize = args.next().map_or(1, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let read = |name: &str| {
        let path = format!("{folder}/{name}");
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let works = [
        conversation(&read("mooncake_conversation_trace.jsonl")),
        agentic(&read("weka_agentic_sessions.jsonl")),
    ];
    println!("| work | requests | kvweft req/s | reused | aisimulate req/s | reused | ratio | kvweft peak MB |");
    println!("|---|---|---|---|---|---|---|---|");
    for work in works {
        let (mut best, mut other) = (0.0_f64, 0.0_f64);
        let (mut reused, mut other_reused, mut peak) = (String::new(), String::new(), 0);
        let count = work.requests.len() as f64;
        for round in 0..rounds {
            let began = Instant::now();
            reused = kvweft(&work);
            best = best.max(count / began.elapsed().as_secs_f64());
            if round == 0 {
                peak = peak_mb();
            }
            let began = Instant::now();
            other_reused = peer::run(&work);
            other = other.max(count / began.elapsed().as_secs_f64());
        }
        let (name, ratio) = (work.name, best / other);
        println!("| {name} | {count} | {best:.0} | {reused} | {other:.0} | {other_reused} | {ratio:.1} | {peak} |");
    }
}

fn kvweft(work: &Work) -> String {
    let profile = include_str!("../../../scenarios/profiles/h200x8.toml");
    let profile: Profile = toml::from_str(profile).expect("a built-in profile is one");
    let geometry = Geometry::uniform(61, PAGE_TOKENS as u16, Some(Dtype::Fp8));
    let mut settings = Settings::new(profile, geometry, work.device_blocks as u32, work.host_blocks as u32);
    settings.arrival = Arrival::Closed(work.concurrency as u32);
    settings.think = false;
    settings.chunk_pages = 128;
    let report = simulate(&work.log, &settings).expect("it can begin");
    assert_eq!(report.sessions.ok, report.sessions.total, "{report:?}");
    assert!(report.conservation.holds(), "{:?}", report.conservation);
    assert_eq!(report.requests.finished as usize, work.requests.len());
    let share = report.tokens.prefix_cache_reused_per_10k();
    format!("{}.{:02} %", share / 100, share % 100)
}

/// The conversation log: requests without sessions.
fn conversation(text: &str) -> Work {
    let requests = text.lines().enumerate().map(|(at, line)| {
        let row: Value = serde_json::from_str(line).expect("a row");
        let number = |field: &str| row[field].as_u64().expect("a number") as usize;
        let ids = row["hash_ids"].as_array().expect("a list").iter().map(|id| id.as_u64().expect("a number"));
        let mut blocks: Vec<u64> = ids.flat_map(|id| id * 8..id * 8 + 8).collect();
        blocks.truncate(number("input_length").div_ceil(PAGE_TOKENS));
        Asked {
            session: format!("r{at}"),
            input_tokens: number("input_length"),
            output_tokens: number("output_length"),
            blocks,
        }
    });
    Work {
        name: "conversation, C=50",
        requests: requests.collect(),
        log: Workload::parse(Form::Mooncake, text).expect("a log"),
        concurrency: 50,
        device_blocks: 32_768,
        host_blocks: 524_288,
    }
}

/// The agent sessions, one list of requests each.
fn agentic(text: &str) -> Work {
    let (mut requests, mut log) = (Vec::new(), String::new());
    for (at, line) in text.lines().take(SESSIONS).enumerate() {
        let mut session: Value = serde_json::from_str(line).expect("a session");
        let list = session["requests"].as_array_mut().expect("a list");
        list.retain(|request| request.get("subagent").is_none());
        list.truncate(SESSION_REQUESTS_MAX);
        let mut blocks: Vec<u64> = Vec::new();
        for request in list.iter_mut() {
            // The other one does not take requests without an answer.
            let output = request["out"].as_u64().expect("a number").max(1);
            request["out"] = output.into();
            blocks.truncate(request["keep"].as_u64().expect("a number") as usize);
            for run in request["runs"].as_array().expect("a list") {
                let (first, count) = (run[0].as_u64().expect("a number"), run[1].as_u64().expect("a number"));
                blocks.extend(first..first + count);
            }
            let input_tokens = request["in"].as_u64().expect("a number") as usize;
            // Its blocks may be partial, so the tail has one too.
            let mut own: Vec<u64> = blocks.iter().map(|id| (at as u64) << 32 | id).collect();
            if own.len() < input_tokens.div_ceil(PAGE_TOKENS) {
                own.push((at as u64) << 32 | 1 << 31 | requests.len() as u64);
            }
            requests.push(Asked {
                session: format!("s{at}"),
                input_tokens,
                output_tokens: output as usize,
                blocks: own,
            });
        }
        log += &session.to_string();
        log.push('\n');
    }
    Work {
        name: "agent sessions, C=80",
        requests,
        log: Workload::parse(Form::Sessions, &log).expect("a log"),
        concurrency: 80,
        device_blocks: 15_625,
        host_blocks: 187_500,
    }
}

/// The peak of this process's memory, where the system says it.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kb| kb / 1024)
}
