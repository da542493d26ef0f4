//! AgenticMooncake v2: one request a line, with the requests that it depends on.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::prefix::Prefixes;
use super::{Asked, BadLine, Builder, Workload, bad, json, lines, number};

/// Tokens of a block where the log does not say; the last block of a request may be partial.
const BLOCK_TOKENS: u32 = 512;

#[derive(serde::Deserialize)]
struct Row<'l> {
    request_id: serde_json::Value,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
    /// Not in every version of the form; the same in every row.
    #[serde(default = "usual")]
    block_size: u32,
    #[serde(borrow)]
    not_before_ms: Option<&'l RawValue>,
    #[serde(borrow, default)]
    dependencies: Vec<Dependency<'l>>,
}

fn usual() -> u32 {
    BLOCK_TOKENS
}

#[derive(serde::Deserialize)]
struct Dependency<'l> {
    request_id: serde_json::Value,
    trigger: Trigger,
    #[serde(borrow)]
    delay_ms: Option<&'l RawValue>,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Trigger {
    Dispatch,
    Completion,
}

/// A request and the numbers of those that it waits for.
struct Read {
    asked: Asked,
    waits: Vec<(usize, Trigger, u64)>,
}

pub(super) fn parse(text: &str) -> Result<Workload, BadLine> {
    let mut prefixes = Prefixes::default();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut rows: Vec<Read> = Vec::new();
    let mut block_tokens = None;
    for (line, text) in lines(text) {
        let row: Row = json(line, text)?;
        let expected = *block_tokens.get_or_insert(row.block_size);
        if row.block_size != expected || expected == 0 {
            let got = row.block_size;
            return Err(bad(line, format!("expected the block_size {} of the first row, got {got}", expected.max(1))));
        }
        let read = read(&row, &known, &mut prefixes).map_err(|what| bad(line, what))?;
        if known.insert(row.request_id.to_string(), rows.len()).is_some() {
            return Err(bad(line, format!("the request_id {} is there twice", row.request_id)));
        }
        rows.push(read);
    }
    Ok(sessions(&rows, block_tokens.unwrap_or(BLOCK_TOKENS)))
}

fn read(row: &Row, known: &HashMap<String, usize>, prefixes: &mut Prefixes) -> Result<Read, String> {
    let ms = |value: Option<&RawValue>| value.map_or(Ok(0), |value| number::scaled(value, 6));
    let blocks = row.input_length.div_ceil(row.block_size) as usize;
    if row.hash_ids.len() != blocks || blocks == 0 {
        let (input, got) = (row.input_length, row.hash_ids.len());
        return Err(format!("expected {} hash_ids for {input} tokens, got {got}", blocks.max(1)));
    }
    prefixes.take(None, row.hash_ids.iter().copied())?;
    let mut waits = Vec::new();
    for dependency in &row.dependencies {
        let other = known.get(&dependency.request_id.to_string());
        let other =
            other.ok_or_else(|| format!("it waits for {}, which is on no line above", dependency.request_id))?;
        waits.push((*other, dependency.trigger, ms(dependency.delay_ms)?));
    }
    let asked = Asked {
        input_tokens: row.input_length,
        output_tokens: row.output_length,
        runs: row.hash_ids.iter().map(|id| (*id, 1)).collect(),
        not_before_ns: ms(row.not_before_ms)?,
        ..Asked::default()
    };
    Ok(Read { asked, waits })
}

/// Requests that wait for each other, however far apart, are one session.
fn sessions(rows: &[Read], block_tokens: u32) -> Workload {
    let mut group: Vec<usize> = (0..rows.len()).collect();
    fn root(group: &mut [usize], mut at: usize) -> usize {
        while group[at] != at {
            group[at] = group[group[at]];
            at = group[at];
        }
        at
    }
    for (at, row) in rows.iter().enumerate() {
        for (other, ..) in &row.waits {
            let (a, b) = (root(&mut group, at), root(&mut group, *other));
            group[a.max(b)] = a.min(b);
        }
    }
    // The least of a group is its root, so groups come in the order of their first rows.
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    for at in 0..rows.len() {
        let root = root(&mut group, at);
        members[root].push(at);
    }
    let mut arriving: Vec<(u64, Vec<usize>)> = members
        .into_iter()
        .filter(|members| !members.is_empty())
        .map(|members| (members.iter().map(|at| rows[*at].asked.not_before_ns).min().unwrap_or(0), members))
        .collect();
    arriving.sort_by_key(|(arrival, members)| (*arrival, members[0]));
    let mut builder = Builder::new(block_tokens);
    for (arrival, members) in arriving {
        let mut place: HashMap<usize, u32> = HashMap::new();
        for (chain, at) in members.into_iter().enumerate() {
            let mut asked = rows[at].asked.clone();
            asked.not_before_ns -= arrival;
            let request = builder.request(chain as u32, &asked);
            place.insert(at, request);
            for &(other, trigger, delay_ns) in &rows[at].waits {
                builder.wait(request, place[&other], trigger == Trigger::Dispatch, delay_ns);
            }
        }
        builder.session(0, arrival);
    }
    builder.finish()
}
