//! Makes requests of a scenario out of a public request log.
//!
//! A log's requests have hundreds of blocks; a world has a handful. What matters to a cache is which requests share which
//! blocks, so runs of blocks that always occur together are folded into one.

mod fold;
mod mooncake;
mod sessions;

use super::error::{Code, Error, Errors, SourceFile};
use super::types::Request;

/// Faulty lines are listed up to this number.
const LISTED_MAX: usize = 10;

/// Which requests of a log are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Rows of a Mooncake log.
    Mooncake {
        /// Row numbers, from 0, growing.
        rows: Vec<usize>,
        /// Folded prompts are cut to so many blocks.
        blocks_max: Option<usize>,
    },
    /// Whole sessions, up to a turn.
    Sessions {
        /// So many sessions at the start of the log are left out.
        skip: usize,
        /// So many are taken.
        sessions: usize,
        /// Requests taken of each session at most.
        turns: usize,
        /// Folded prompts are cut to so many blocks.
        blocks_max: Option<usize>,
    },
}

/// What became of the log's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folding {
    /// Requests taken.
    pub requests: usize,
    /// Different blocks of their prompts in the log.
    pub blocks_real: usize,
    /// Tokens of their prompts in the log, each request's counted.
    pub tokens_real: u64,
    /// Different blocks of their prompts after folding and cutting.
    pub blocks_folded: usize,
    /// One line for the output: what was folded, cut and left out.
    pub note: String,
}

/// Requests made of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The requests, in the log's order.
    pub requests: Vec<Request>,
    /// What became of the log's blocks.
    pub folding: Folding,
}

/// Takes requests out of a log; `name` is what diagnostics call it.
///
/// # Errors
/// Lines that are not what the log's format says, and rows or sessions that are not there.
pub fn import(name: &str, text: &str, pick: &Pick) -> Result<Imported, Errors> {
    let source = SourceFile::new(name, text);
    let taken = match pick {
        Pick::Mooncake { rows, .. } => mooncake::take(&source, rows)?,
        Pick::Sessions { skip, sessions, turns, .. } => sessions::take(&source, *skip, *sessions, *turns)?,
    };
    let (Pick::Mooncake { blocks_max, .. } | Pick::Sessions { blocks_max, .. }) = pick;
    Ok(fold::folded(&taken, *blocks_max))
}

/// One request of a log. Equal block ids are the same block, with the same blocks before it.
#[derive(Clone, Debug)]
struct Logged {
    name: String,
    blocks: Vec<BlockId>,
    tokens: u64,
    output_tokens: u64,
    after: Option<String>,
}

/// The session, or 0 where ids are global, and the id in the log.
type BlockId = (usize, u64);

/// The requests taken of a log.
#[derive(Clone, Debug)]
struct Taken {
    requests: Vec<Logged>,
    block_tokens: Vec<u64>,
    /// Sub-agents that stood between the requests taken and were left out.
    sub_agents: usize,
}

/// The lines of a log that are not empty: number from 0, byte offset, text.
fn lines(source: &SourceFile) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut at = 0;
    let lines = source.text().split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line.trim_end_matches(['\n', '\r']))
    });
    lines.filter(|(_, line)| !line.trim().is_empty()).enumerate().map(|(row, (start, line))| (row, start, line))
}

/// An error about a line.
fn bad_row(source: &SourceFile, start: usize, line: &str, reason: impl Into<String>) -> Error {
    Error::at(source, start..start + line.len(), Code::BadRow, reason)
        .help("take the log unchanged from its source, or leave this line out")
}

/// The line as JSON.
fn json<'l, T: serde::Deserialize<'l>>(source: &SourceFile, start: usize, line: &'l str) -> Result<T, Box<Error>> {
    serde_json::from_str(line).map_err(|error| {
        let at = start + error.column().saturating_sub(1).min(line.len());
        let message = error.to_string();
        let reason = message.split(" at line ").next().unwrap_or(&message);
        let error = Error::at(source, at..at, Code::BadRow, format!("the line is not a row of this log: {reason}"));
        Box::new(error.help("take the log unchanged from its source, or leave this line out"))
    })
}
