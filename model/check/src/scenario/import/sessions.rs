//! Agent sessions: one session a line, ids of full blocks local to the session.

use super::{BlockId, LISTED_MAX, Logged, Taken, bad_row, json, lines};
use crate::scenario::error::{Code, Error, Errors, SourceFile};

/// A request has at most so many blocks: more are a broken line, not a prompt.
const BLOCKS_MAX: u64 = 1 << 20;

#[derive(serde::Deserialize)]
struct Session {
    id: String,
    block_size: u64,
    requests: Vec<Entry>,
}

/// A request, or a sub-agent when `subagent` is there.
#[derive(serde::Deserialize)]
struct Entry {
    subagent: Option<serde::de::IgnoredAny>,
    #[serde(rename = "in")]
    input: Option<u64>,
    out: Option<u64>,
    keep: Option<usize>,
    runs: Option<Vec<(u64, u64)>>,
}

/// The first `turns` requests of `sessions` sessions behind the first `skip`. A turn waits for the one before it.
pub(super) fn take(source: &SourceFile, skip: usize, sessions: usize, turns: usize) -> Result<Taken, Errors> {
    let mut errors = Vec::new();
    let mut taken = Taken { requests: Vec::new(), block_tokens: Vec::new(), sub_agents: 0 };
    let (mut count, mut longest) = (0, 0);
    for (number, start, line) in lines(source) {
        count = number + 1;
        let wanted = (skip..skip.saturating_add(sessions)).contains(&number);
        match session(source, start, line, number, if wanted { turns } else { 0 }) {
            Ok(session) if wanted => {
                longest = longest.max(session.requests.len());
                taken.requests.extend(session.requests);
                taken.sub_agents += session.sub_agents;
                taken.block_tokens.extend(session.block_tokens);
            }
            Ok(_) => {}
            Err(error) => errors.push(*error),
        }
        if errors.len() >= LISTED_MAX {
            break;
        }
    }
    taken.block_tokens.sort_unstable();
    taken.block_tokens.dedup();
    let last = skip.saturating_add(sessions);
    if errors.is_empty() && last > count {
        let error = Error::whole(source.name(), Code::OutOfBounds, "the log has too few sessions");
        let error = error.expected(format!("skip + sessions at most {count}")).found(last.to_string());
        errors.push(error.help("lower `sessions` or `skip`"));
    } else if errors.is_empty() && longest < turns {
        let error = Error::whole(source.name(), Code::OutOfBounds, "no session taken has so many turns");
        let error = error.expected(format!("at most {longest} turns")).found(turns.to_string());
        errors.push(error.help("lower `turns`, or choose other sessions"));
    }
    Errors::new(errors).map_or(Ok(taken), Err)
}

/// Why an entry is refused: reason, what was expected, what came.
type Complaint = (&'static str, String, String);

/// Checks a whole session and takes its first requests.
fn session(source: &SourceFile, start: usize, line: &str, number: usize, turns: usize) -> Result<Taken, Box<Error>> {
    let session: Session = json(source, start, line)?;
    let bad = |at: &str, (reason, expected, found): Complaint| {
        let what = format!("session {}: {at}{reason}", session.id);
        let error = bad_row(source, start, line, what);
        Box::new(error.expected(expected).found(found))
    };
    if session.block_size == 0 {
        let complaint = ("block_size is 0", "at least 1".to_owned(), String::new());
        return Err(bad("", complaint));
    }
    let block_tokens = vec![session.block_size];
    let mut taken = Taken { requests: Vec::new(), block_tokens, sub_agents: 0 };
    let (mut chain, mut skipped) = (Vec::<BlockId>::new(), 0);
    for (i, entry) in session.requests.iter().enumerate() {
        if entry.subagent.is_some() {
            skipped += 1;
            continue;
        }
        let at = format!("entry {i} ");
        let (tokens, output_tokens) =
            follow(&mut chain, entry, session.block_size, number).map_err(|complaint| bad(&at, complaint))?;
        let turn = taken.requests.len();
        if turn < turns {
            if chain.is_empty() {
                let complaint = ("has no full block", "at least one".to_owned(), String::new());
                return Err(bad(&at, complaint));
            }
            taken.sub_agents = skipped;
            taken.requests.push(Logged {
                name: format!("s{number}t{turn}"),
                blocks: chain.clone(),
                tokens,
                output_tokens,
                after: turn.checked_sub(1).map(|before| format!("s{number}t{before}")),
            });
        }
    }
    Ok(taken)
}

/// Turns the blocks of the request before into those of `entry`; gives its prompt and output tokens.
fn follow(chain: &mut Vec<BlockId>, entry: &Entry, block_size: u64, number: usize) -> Result<(u64, u64), Complaint> {
    let (Some(input), Some(out), Some(keep), Some(runs)) = (entry.input, entry.out, entry.keep, &entry.runs) else {
        return Err(("is incomplete", "`in`, `out`, `keep` and `runs`".to_owned(), String::new()));
    };
    if keep > chain.len() {
        let expected = format!("at most {}", chain.len());
        return Err(("keeps blocks that are not there", expected, keep.to_string()));
    }
    let blocks = runs.iter().fold(keep as u64, |sum, (_, count)| sum.saturating_add(*count));
    if blocks != input / block_size || blocks > BLOCKS_MAX {
        let expected = format!("{} full blocks of {input} tokens", input / block_size);
        return Err(("has blocks that do not fit its tokens", expected, blocks.to_string()));
    }
    chain.truncate(keep);
    for (first, count) in runs {
        let Some(end) = first.checked_add(*count) else {
            return Err(("has a range that overflows", String::new(), format!("[{first},{count}]")));
        };
        chain.extend((*first..end).map(|id| (number, id)));
    }
    Ok((input, out))
}
