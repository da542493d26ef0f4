//! `kvweft import`: somebody's own log as a workload without any of its text.
//!
//! A block becomes a hash under a salt, or a number in the order in which blocks are first seen; so do requests and sessions.
//! Nothing else of the log is written but times and numbers of tokens.

mod dynamo;
mod names;
mod openai;
mod vllm;

use std::collections::HashMap;
use std::process::ExitCode;

use serde_json::{Value, json};

use self::names::{Blocks, SALT_BYTES_MIN, Salt};
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

/// Runs the command.
pub(crate) fn run(args: &args::Import) -> Result<ExitCode, Failure> {
    let path = &args.log;
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the log", &error))?;
    let read = match args.format {
        LogForm::DynamoRequestTrace => dynamo::read,
        LogForm::OpenaiJsonl => openai::read,
        LogForm::VllmEvents => vllm::read,
    };
    let salt = args.salt.as_deref().map(salt).transpose()?;
    let read = read(&text, Blocks::new(salt));
    let mut log = read.map_err(|(line, message)| Failure::Trace { path: path.clone(), line, message })?;
    if log.requests.is_empty() {
        let why = "it holds no request of this form\nhelp: docs/import.md says what is read".to_owned();
        return Err(Failure::File { path: path.clone(), why });
    }
    log.requests.sort_by_key(|request| request.at_ms);
    log.notes.iter().for_each(|note| output::note(&format!("note: {note}")));
    output::result(&rows(&log, salt))?;
    Ok(ExitCode::SUCCESS)
}

fn salt(text: &str) -> Result<Salt, Failure> {
    if text.len() < SALT_BYTES_MIN {
        let why = format!(
            "expected at least {SALT_BYTES_MIN} bytes, got {}\nhelp: take them from chance, for instance `openssl rand -hex 16`, \
             and keep them to yourself",
            text.len()
        );
        return Err(Failure::Option { option: "salt".to_owned(), why });
    }
    Ok(Salt::new(text))
}

/// The requests as AgenticMooncake v2, times from the first one on.
fn rows(log: &Log, salt: Option<Salt>) -> String {
    let start = log.requests.first().map_or(0, |request| request.at_ms);
    let names = names::named(&log.requests, salt);
    // The last request of each session so far.
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut out = String::new();
    for (at, (request, name)) in log.requests.iter().zip(&names).enumerate() {
        let before = last.insert(name.session, at);
        let dependencies: Vec<Value> =
            before.map(|other| dependency(&log.requests[other], names[other].request, request)).into_iter().collect();
        let row = json!({
            "request_id": name.request,
            "session_id": name.session,
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
fn dependency(before: &Asked, name: u64, request: &Asked) -> Value {
    let (trigger, since) = match before.end_ms.filter(|end| *end <= request.at_ms) {
        Some(end) => ("completion", end),
        None => ("dispatch", before.at_ms),
    };
    json!({ "request_id": name, "trigger": trigger, "delay_ms": request.at_ms - since, "relation": "sequence" })
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
