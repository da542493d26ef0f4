//! AgenticMooncake v2: one request a line, with the requests that it depends on.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::prefix::Prefixes;
use super::{Asked, BadLine, Builder, Workload, bad, json, lines, number, tokens_fit};

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
    tokens_fit(row.input_length, row.output_length)?;
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
        .map(|members| {
            // Who waits for another one often has no time of its own, and does not begin anything.
            let first = members.iter().map(|at| &rows[*at]).filter(|row| row.waits.is_empty());
            (first.map(|row| row.asked.not_before_ns).min().unwrap_or(0), members)
        })
        .collect();
    arriving.sort_by_key(|(arrival, members)| (*arrival, members[0]));
    let mut builder = Builder::new(block_tokens);
    for (arrival, members) in arriving {
        let mut place: HashMap<usize, u32> = HashMap::new();
        for (chain, at) in members.into_iter().enumerate() {
            let mut asked = rows[at].asked.clone();
            asked.not_before_ns = asked.not_before_ns.saturating_sub(arrival);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Edge, Form, Request};

    /// As a server writes them: fields that are not read, ids that are texts, and requests of three plays between each other.
    const LOG: &str = r#"
{"request_id":"a0","play_id":"p","session_id":"s1","model":"m","input_length":1000,"output_length":7,"output_token_ids":[1,2],"hash_ids":[10,11],"not_before_ms":250.5,"priority":0,"policy_class":"x","dependencies":[]}
{"request_id":7,"input_length":512,"output_length":3,"hash_ids":[10],"not_before_ms":0}

{"request_id":"a1","input_length":1537,"output_length":0,"hash_ids":[10,11,12,13],"dependencies":[{"request_id":"a0","trigger":"completion","delay_ms":1500,"relation":"sequence"}]}
{"request_id":"a2","input_length":1,"output_length":1,"hash_ids":[99],"not_before_ms":900,"dependencies":[{"request_id":"a0","trigger":"dispatch","relation":"spawn"},{"request_id":"a1","trigger":"completion","delay_ms":0.25,"relation":"join"}]}
"#;

    #[test]
    fn requests_that_wait_for_each_other_are_one_session_that_begins_with_its_first() {
        assert_eq!(Workload::form_of(LOG), Some(Form::AgenticMooncake));
        let workload = parse(LOG).expect("a log");
        assert_eq!((workload.block_tokens, workload.sessions(), workload.requests()), (512, 2, 4));
        let [alone, three] = &workload.sessions[..] else { panic!("{:?}", workload.sessions) };
        assert_eq!((alone.arrival_ns, alone.requests.clone(), alone.chains), (0, 0..1, 1));
        assert_eq!((three.arrival_ns, three.requests.clone(), three.chains), (250_500_000, 1..4, 3));
        let requests = &workload.requests;
        let of = |what: fn(&Request) -> u64| requests.iter().map(what).collect::<Vec<_>>();
        assert_eq!(of(|request| u64::from(request.input_tokens)), [512, 1000, 1537, 1]);
        assert_eq!(of(|request| u64::from(request.output_tokens)), [3, 7, 0, 1]);
        assert_eq!(of(|request| u64::from(request.needs)), [0, 0, 1, 2]);
        // From the begin of the session, which the one without a time does not move.
        assert_eq!(of(|request| request.not_before_ns), [0, 0, 0, 649_500_000]);
        let edges = |request: usize| {
            let Request { edges, .. } = &requests[request];
            &workload.edges[edges.start as usize..edges.end as usize]
        };
        let edge = |to, on_dispatch, delay_ns| Edge { to, on_dispatch, delay_ns };
        assert_eq!(edges(1), [edge(1, false, 1_500_000_000), edge(2, true, 0)]);
        assert_eq!(edges(2), [edge(2, false, 250_000)]);
    }

    #[test]
    fn the_first_line_that_does_not_fit_is_named() {
        let table = [
            ("[10,11,12,13]", "[10,11,12]", 5, "expected 4 hash_ids for 1537 tokens, got 3"),
            ("[10,11,12,13]", "[11,10,12,13]", 5, "block 11 does not stand for one prefix"),
            (
                "\"request_id\":\"a0\",\"trigger\":\"completion\"",
                "\"request_id\":\"a9\",\"trigger\":\"completion\"",
                5,
                "it waits for \"a9\", which is on no line above",
            ),
            ("\"completion\",\"delay_ms\":1500", "\"start\",\"delay_ms\":1500", 5, "unknown variant `start`"),
            ("\"delay_ms\":1500", "\"delay_ms\":-1", 5, "expected a number that is not negative"),
            ("\"request_id\":7", "\"request_id\":\"a0\"", 3, "the request_id \"a0\" is there twice"),
            (
                "\"request_id\":7,",
                "\"request_id\":7,\"block_size\":64,",
                3,
                "expected the block_size 512 of the first row, got 64",
            ),
            (
                "\"input_length\":512,\"output_length\":3",
                "\"input_length\":0,\"output_length\":3",
                3,
                "expected 1 hash_ids for 0 tokens, got 1",
            ),
            ("\"output_length\":3,", "", 3, "missing field `output_length`"),
            ("\"hash_ids\":[99],", "\"hash_ids\":[99", 6, "the line is not a row of this log"),
        ];
        for (from, to, line, expected) in table {
            assert_eq!(LOG.matches(from).count(), 1, "{from}");
            let bad = parse(&LOG.replace(from, to)).expect_err(expected);
            assert!(bad.line == line && bad.what.contains(expected), "no `{expected}` at {line} in {bad:?}");
        }
    }
}
