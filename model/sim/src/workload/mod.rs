//! What is asked of the engines: sessions of requests, which blocks their prompts have, and what each waits for.

mod agentic;
mod builder;
mod mooncake;
mod number;
mod prefix;
mod sessions;
mod synthetic;

use std::ops::Range;

use kvweft_core::BlockHash;

pub use builder::Asked;
pub use synthetic::Synthetic;

pub(crate) use builder::Builder;

/// The form of a request log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Mooncake: a request a line, global prefix hashes of blocks of 512 tokens.
    Mooncake,
    /// Packed agent sessions: a session a line, block ids of the session's own.
    Sessions,
    /// AgenticMooncake v2: a request a line, with what it depends on.
    AgenticMooncake,
}

/// Why a log is no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct BadLine {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Consecutive block ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) count: u32,
}

/// When a request that waits for another one may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Who waits: a number within its session.
    pub(crate) to: u32,
    /// Whether the other one has only to be sent.
    pub(crate) on_dispatch: bool,
    /// So long after that.
    pub(crate) delay_ns: u64,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    /// Requests of one chain follow each other, and each begins with blocks of the one before.
    pub(crate) chain: u32,
    /// So many blocks of the request before it in its chain come first.
    pub(crate) keep: u32,
    /// Then these.
    pub(crate) runs: Range<u32>,
    /// Blocks of the log's size that the answer completes, where the log says so.
    pub(crate) answer: Option<Run>,
    /// Requests that it waits for.
    pub(crate) needs: u32,
    /// Those that wait for it.
    pub(crate) edges: Range<u32>,
    /// Not before this, from the start of the session.
    pub(crate) not_before_ns: u64,
}

/// Requests that belong together: they count as ok, corrupt and so on as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) arrival_ns: u64,
    /// Sessions of one scope share block ids.
    pub(crate) scope: u64,
    pub(crate) requests: Range<u32>,
    pub(crate) chains: u32,
}

/// A workload: sessions in the order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of a block of the log.
    pub block_tokens: u32,
    pub(crate) sessions: Vec<Session>,
    pub(crate) requests: Vec<Request>,
    pub(crate) runs: Vec<Run>,
    pub(crate) edges: Vec<Edge>,
}

impl Workload {
    /// Reads a log.
    ///
    /// # Errors
    /// The first line that is not of this form, or whose ids do not stand for prefixes.
    pub fn parse(form: Form, text: &str) -> Result<Workload, BadLine> {
        match form {
            Form::Mooncake => mooncake::parse(text),
            Form::Sessions => sessions::parse(text),
            Form::AgenticMooncake => agentic::parse(text),
        }
    }

    /// The form of a log, as its first line shows it.
    pub fn form_of(text: &str) -> Option<Form> {
        let line = lines(text).next()?.1;
        let first: serde_json::Value = serde_json::from_str(line).ok()?;
        let has = |field: &str| first.get(field).is_some();
        if has("requests") && has("block_size") {
            Some(Form::Sessions)
        } else if has("request_id") && has("hash_ids") {
            Some(Form::AgenticMooncake)
        } else if has("timestamp") && has("hash_ids") {
            Some(Form::Mooncake)
        } else {
            None
        }
    }

    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The number of requests.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The first sessions only.
    pub fn truncate(&mut self, sessions: usize) {
        if sessions < self.sessions.len() {
            self.sessions.truncate(sessions);
            let end = self.sessions.last().map_or(0, |session| session.requests.end);
            self.requests.truncate(end as usize);
        }
    }

    /// The longest prompt with its answer, in tokens.
    pub fn longest_tokens(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.input_tokens) + u64::from(r.output_tokens)).max().unwrap_or(0)
    }
}

/// The hash of a page that ends `within` tokens behind the begin of a block. The two halves are mixed by themselves; different names never share both.
pub(crate) fn block_hash(scope: u64, id: u64, within: u64) -> BlockHash {
    let name = mix(id ^ scope.rotate_left(40)) ^ within;
    BlockHash(u128::from(mix(name ^ 0x5851_f42d_4c95_7f2d)) << 64 | u128::from(mix(name)))
}

/// A bijection of 64-bit numbers (the finaliser of splitmix64, Steele et al., OOPSLA 2014).
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The lines of a log that are not empty, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).filter(|(_, line)| !line.is_empty())
}

/// Tokens of one request at most, so that no sum of its tokens overflows.
const TOKENS_MAX: u64 = 1 << 30;

/// Whether a request is of a size that can be played.
fn tokens_fit(input: u32, output: u32) -> Result<(), String> {
    match u64::from(input) + u64::from(output) {
        0..=TOKENS_MAX => Ok(()),
        tokens => Err(format!("expected a prompt and an answer of at most {TOKENS_MAX} tokens together, got {tokens}")),
    }
}

fn bad(line: usize, what: impl Into<String>) -> BadLine {
    BadLine { line, what: what.into() }
}

/// The line as JSON.
fn json<'l, T: serde::Deserialize<'l>>(number: usize, line: &'l str) -> Result<T, BadLine> {
    serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        let reason = message.split(" at line ").next().unwrap_or(&message);
        bad(number, format!("column {}: the line is not a row of this log: {reason}", error.column()))
    })
}
