//! `kvweft import`: somebody's own log as a workload without any of its text.
//!
//! A block becomes a number, in the order in which blocks are first seen; so do requests and sessions. Nothing else of the log
//! is written but times and numbers of tokens.

mod dynamo;
mod openai;
mod vllm;

use std::collections::HashMap;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::args::{self, LogForm};
use crate::failure::Failure;
use crate::output;

/// A request of a log.
struct Asked {
    /// Requests of one session follow each other; `None` for one by itself.
    session: Option<String>,
    at_ms: u64,
    /// When it ended, where the log says so.
    end_ms: Option<u64>,
    input_tokens: u64,
    output_tokens: u64,
    /// Its blocks, each with everything before it.
    blocks: Vec<u64>,
}

/// A whole log.
struct Log {
    block_tokens: u64,
    requests: Vec<Asked>,
    /// What was passed over, or guessed.
    notes: Vec<String>,
}

/// Numbers for blocks: one for each content behind the same blocks.
#[derive(Default)]
struct Numbers {
    known: HashMap<(Option<u64>, Vec<u8>), u64>,
}

impl Numbers {
    /// The numbers of blocks that follow each other from the start of a prompt.
    fn of<'a>(&mut self, blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut numbers: Vec<u64> = Vec::new();
        for block in blocks {
            let fresh = self.known.len() as u64;
            numbers.push(*self.known.entry((numbers.last().copied(), block.to_vec())).or_insert(fresh));
        }
        numbers
    }
}

/// Runs the command.
pub(crate) fn run(args: &args::Import) -> Result<ExitCode, Failure> {
    let path = &args.log;
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the log", &error))?;
    let read = match args.format {
        LogForm::DynamoRequestTrace => dynamo::read,
        LogForm::OpenaiJsonl => openai::read,
        LogForm::VllmEvents => vllm::read,
    };
    let mut log = read(&text).map_err(|(line, message)| Failure::Trace { path: path.clone(), line, message })?;
    if log.requests.is_empty() {
        let why = "it holds no request of this form\nhelp: docs/import.md says what is read".to_owned();
        return Err(Failure::File { path: path.clone(), why });
    }
    log.requests.sort_by_key(|request| request.at_ms);
    log.notes.iter().for_each(|note| output::note(&format!("note: {note}")));
    output::result(&rows(&log))?;
    Ok(ExitCode::SUCCESS)
}

/// The requests as AgenticMooncake v2, times from the first one on.
fn rows(log: &Log) -> String {
    let start = log.requests.first().map_or(0, |request| request.at_ms);
    let mut sessions: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut count = 0;
    let mut out = String::new();
    for (at, request) in log.requests.iter().enumerate() {
        let before = request.session.as_deref().and_then(|name| sessions.get(name)).copied();
        let session = before.map_or(count, |(session, _)| session);
        count += usize::from(before.is_none());
        if let Some(name) = request.session.as_deref() {
            sessions.insert(name, (session, at));
        }
        let dependencies: Vec<Value> =
            before.map(|(_, other)| dependency(&log.requests[other], other, request)).into_iter().collect();
        let row = json!({
            "request_id": at,
            "session_id": session,
            "block_size": log.block_tokens,
            "input_length": request.input_tokens,
            "output_length": request.output_tokens,
            "hash_ids": request.blocks,
            "not_before_ms": if before.is_none() { request.at_ms - start } else { 0 },
            "dependencies": dependencies,
        });
        out += &row.to_string();
        out.push('\n');
    }
    out
}

/// It waits for the end of the request before it where that is known, else for its start.
fn dependency(before: &Asked, number: usize, request: &Asked) -> Value {
    let (trigger, since) = match before.end_ms.filter(|end| *end <= request.at_ms) {
        Some(end) => ("completion", end),
        None => ("dispatch", before.at_ms),
    };
    json!({ "request_id": number, "trigger": trigger, "delay_ms": request.at_ms - since, "relation": "sequence" })
}

/// Every line that is not empty as JSON, with its number from 1.
fn values(text: &str) -> impl Iterator<Item = Result<(usize, Value), (usize, String)>> + '_ {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| match serde_json::from_str(line) {
        Ok(value) => Ok((at + 1, value)),
        Err(error) => Err((at + 1, format!("it is no JSON: {error}"))),
    })
}

fn integer(value: &Value, name: &str) -> Result<u64, String> {
    let found = &value[name];
    let number = found.as_u64().or_else(|| found.as_f64().filter(|ms| *ms >= 0.0).map(|ms| ms as u64));
    number.ok_or_else(|| format!("expected `{name}`, a number that is not negative"))
}
