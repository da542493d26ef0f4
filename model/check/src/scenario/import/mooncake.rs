//! Mooncake's request traces: one request a line, global prefix hashes of blocks of 512 tokens.

use std::collections::BTreeMap;

use super::{LISTED_MAX, Logged, Taken, bad_row, json, lines};
use crate::scenario::error::{Code, Error, Errors, SourceFile};

/// Tokens of a block; the last block of a request may be partial.
const BLOCK_TOKENS: u64 = 512;

#[derive(serde::Deserialize)]
struct Row {
    timestamp: u64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

/// The rows of these numbers. Every line of the log is checked, the prefix property on the rows taken.
pub(super) fn take(source: &SourceFile, rows: &[usize]) -> Result<Taken, Errors> {
    let (mut errors, mut requests, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut count, mut clock) = (0, 0);
    for (number, start, line) in lines(source) {
        count = number + 1;
        match row(source, start, line, clock) {
            Ok(row) => {
                clock = row.timestamp;
                if rows.contains(&number) {
                    starts.push((start, line));
                    requests.push(Logged {
                        name: format!("row{number}"),
                        blocks: row.hash_ids.iter().map(|id| (0, *id)).collect(),
                        tokens: row.input_length,
                        output_tokens: row.output_length,
                        after: None,
                    });
                }
            }
            Err(error) => errors.push(*error),
        }
        if errors.len() >= LISTED_MAX {
            break;
        }
    }
    if let Some(missing) = rows.iter().find(|row| **row >= count).filter(|_| errors.is_empty()) {
        let error = Error::whole(source.name(), Code::OutOfBounds, "the log has no such row");
        let error = error.expected(format!("a row from 0 on, below {count}")).found(format!("row {missing}"));
        errors.push(error.help("choose a row that the log has"));
    }
    if errors.is_empty() {
        errors.extend(prefix_property(source, &requests, &starts));
    }
    match Errors::new(errors) {
        Some(errors) => Err(errors),
        None => Ok(Taken { requests, block_tokens: vec![BLOCK_TOKENS], sub_agents: 0 }),
    }
}

fn row(source: &SourceFile, start: usize, line: &str, clock: u64) -> Result<Row, Box<Error>> {
    let row: Row = json(source, start, line)?;
    let blocks = row.input_length.div_ceil(BLOCK_TOKENS);
    if row.hash_ids.len() as u64 != blocks {
        let error = bad_row(source, start, line, "the number of hash_ids does not fit input_length");
        let expected = format!("{blocks}, one for each {BLOCK_TOKENS} of {} tokens", row.input_length);
        return Err(Box::new(error.expected(expected).found(row.hash_ids.len().to_string())));
    }
    if blocks == 0 {
        let error = bad_row(source, start, line, "the request has no prompt");
        return Err(Box::new(error.expected("at least one token")));
    }
    if row.timestamp < clock {
        let error = bad_row(source, start, line, "the timestamp goes back");
        return Err(Box::new(error.expected(format!("at least {clock}")).found(row.timestamp.to_string())));
    }
    Ok(row)
}

/// An equal id means an equal block behind equal blocks: its predecessor is the same wherever it stands.
fn prefix_property(source: &SourceFile, requests: &[Logged], starts: &[(usize, &str)]) -> Option<Error> {
    let mut before: BTreeMap<u64, (Option<u64>, &str)> = BTreeMap::new();
    for (request, (start, line)) in requests.iter().zip(starts) {
        let mut last = None;
        for (_, id) in &request.blocks {
            let (expected, other) = *before.entry(*id).or_insert((last, &request.name));
            if expected != last {
                let words = |id: Option<u64>| id.map_or("at the start".to_owned(), |id| format!("behind block {id}"));
                let error = bad_row(source, *start, line, format!("block {id} does not stand for one prefix"));
                return Some(error.expected(format!("{}, as in {other}", words(expected))).found(words(last)));
            }
            last = Some(*id);
        }
        let mut ids: Vec<u64> = request.blocks.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("block {} stands twice in one request", pair[0]);
            return Some(bad_row(source, *start, line, what).expected("each prefix hash once"));
        }
    }
    None
}
