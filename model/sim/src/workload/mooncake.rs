//! Mooncake's request traces: one request a line, global prefix hashes of blocks of 512 tokens, arrival in milliseconds.

use super::prefix::Prefixes;
use super::{Asked, BadLine, Builder, Workload, bad, json, lines, tokens_fit};

/// Tokens of a block; the last block of a request may be partial.
const BLOCK_TOKENS: u32 = 512;

#[derive(serde::Deserialize)]
struct Row {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

pub(super) fn parse(text: &str) -> Result<Workload, BadLine> {
    let mut builder = Builder::new(BLOCK_TOKENS);
    let mut prefixes = Prefixes::default();
    let mut clock = 0;
    for (number, line) in lines(text) {
        let row: Row = json(number, line)?;
        let blocks = row.input_length.div_ceil(BLOCK_TOKENS) as usize;
        if row.hash_ids.len() != blocks {
            let (input, got) = (row.input_length, row.hash_ids.len());
            return Err(bad(number, format!("expected {blocks} hash_ids for {input} tokens, got {got}")));
        }
        if blocks == 0 {
            return Err(bad(number, "the request has no prompt: expected at least one token"));
        }
        if row.timestamp < clock {
            return Err(bad(number, format!("expected a timestamp of at least {clock}, got {}", row.timestamp)));
        }
        clock = row.timestamp;
        tokens_fit(row.input_length, row.output_length).map_err(|what| bad(number, what))?;
        prefixes.take(None, row.hash_ids.iter().copied()).map_err(|what| bad(number, what))?;
        let asked = Asked {
            input_tokens: row.input_length,
            output_tokens: row.output_length,
            runs: row.hash_ids.iter().map(|id| (*id, 1)).collect(),
            ..Asked::default()
        };
        builder.request(0, &asked);
        let arrival = row.timestamp.checked_mul(1_000_000).ok_or_else(|| bad(number, "the timestamp is too large"))?;
        builder.session(0, arrival);
    }
    Ok(builder.finish())
}
