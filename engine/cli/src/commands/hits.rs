//! `kvweft hits`: what a cache could reuse of a log.

use std::process::ExitCode;

use kvweft_sim::Workload;
use kvweft_sim::hits::{Hits, least_recently_used, unlimited};
use serde_json::{Value, json};

use super::simulate::choose::read_log;
use crate::args::{self, Format};
use crate::failure::Failure;
use crate::json::print;
use crate::output;
use crate::parallel::in_parallel;
use crate::table::table;

/// A cache, and what it reuses.
struct Cache {
    /// Its size; `None` without a limit.
    tokens: Option<u64>,
    all: Hits,
    /// Of the second half of the requests, before which the first half has filled it.
    second_half: Hits,
}

/// Runs the command.
pub(crate) fn run(args: &args::Hits) -> Result<ExitCode, Failure> {
    let mut workload = read_log(&args.log)?.workload;
    if let Some(sessions) = args.sessions {
        workload.truncate(sessions as usize);
    }
    let mut sizes: Vec<Option<u64>> = args.tokens.iter().copied().map(Some).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.push(None);
    let block_tokens = u64::from(workload.block_tokens);
    let half = workload.requests() / 2;
    let caches = in_parallel(&sizes, args.threads, |&tokens| {
        let play = |from| match tokens {
            Some(tokens) => least_recently_used(&workload, tokens / block_tokens, from),
            None => unlimited(&workload, from),
        };
        Cache { tokens, all: play(0), second_half: play(half) }
    });
    output::result(&match args.format {
        Format::Text => text(&args.log, &workload, &caches),
        Format::Json => document(&args.log, &workload, &caches),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn percent(per_10k: u64) -> String {
    format!("{}.{:02} %", per_10k / 100, per_10k % 100)
}

fn text(log: &str, workload: &Workload, caches: &[Cache]) -> String {
    let rows: Vec<Vec<String>> = caches
        .iter()
        .map(|cache| {
            let size = cache.tokens.map_or("no limit".to_owned(), |tokens| tokens.to_string());
            let found = [&cache.all, &cache.second_half].map(|hits| [hits.blocks_per_10k(), hits.tokens_per_10k()]);
            [size].into_iter().chain(found.into_iter().flatten().map(percent)).collect()
        })
        .collect();
    let header = ["tokens in the cache", "blocks found", "tokens found", "second half: blocks", "tokens"];
    let all = caches.first().map(|cache| cache.all).unwrap_or_default();
    format!(
        "{log}: {} requests, {} blocks of {} tokens, {} tokens\n\n{}",
        workload.requests(),
        all.blocks,
        workload.block_tokens,
        all.tokens,
        table(&header, &rows)
    )
}

fn document(log: &str, workload: &Workload, caches: &[Cache]) -> String {
    let counted = |hits: &Hits| {
        json!({
            "blocks": hits.blocks,
            "blocks_hit": hits.blocks_hit,
            "tokens": hits.tokens,
            "tokens_hit": hits.tokens_hit,
        })
    };
    let caches: Vec<Value> = caches
        .iter()
        .map(|cache| {
            json!({
                "capacity_tokens": cache.tokens,
                "all": counted(&cache.all),
                "second_half": counted(&cache.second_half),
            })
        })
        .collect();
    print(&json!({
        "format": "kvweft-hits",
        "version": 1,
        "log": log,
        "requests": workload.requests(),
        "block_tokens": workload.block_tokens,
        "caches": caches,
    }))
}
