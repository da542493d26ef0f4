//! Packed agent sessions: one session a line, ids of full blocks of the session's own, sub-agents with chains of theirs.

use serde_json::value::RawValue;

use super::prefix::Prefixes;
use super::{Asked, BadLine, Builder, Workload, bad, json, lines, number, tokens_fit};

/// A request has at most so many blocks: more are a broken line, not a prompt.
const BLOCKS_MAX: u64 = 1 << 20;

#[derive(serde::Deserialize)]
struct Line<'l> {
    block_size: u32,
    #[serde(borrow)]
    requests: Vec<Entry<'l>>,
}

/// A request, or a sub-agent when `subagent` is there.
#[derive(serde::Deserialize)]
struct Entry<'l> {
    subagent: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    requests: Option<Vec<Entry<'l>>>,
    #[serde(borrow)]
    t: Option<&'l RawValue>,
    #[serde(borrow)]
    think: Option<&'l RawValue>,
    #[serde(rename = "in")]
    input: Option<u32>,
    out: Option<u32>,
    #[serde(default)]
    keep: u32,
    #[serde(default)]
    runs: Vec<(u64, u64)>,
}

pub(super) fn parse(text: &str) -> Result<Workload, BadLine> {
    let mut reader: Option<Reader> = None;
    for (line, (number, text)) in lines(text).enumerate() {
        let session: Line = json(number, text)?;
        let reader = reader.get_or_insert_with(|| Reader::new(session.block_size));
        if session.block_size == 0 || session.block_size != reader.block_tokens {
            let expected = reader.block_tokens.max(1);
            let got = session.block_size;
            return Err(bad(number, format!("expected the block_size {expected} of the first session, got {got}")));
        }
        reader.session(line as u64, &session.requests).map_err(|what| bad(number, what))?;
    }
    Ok(reader.map_or_else(|| Builder::new(64).finish(), |reader| reader.builder.finish()))
}

struct Reader {
    builder: Builder,
    prefixes: Prefixes,
    block_tokens: u32,
    chains: u32,
}

/// What the next request of a list waits for.
#[derive(Clone, Default)]
struct Tail {
    waits: Vec<u32>,
}

impl Reader {
    fn new(block_tokens: u32) -> Reader {
        Reader { builder: Builder::new(block_tokens), prefixes: Prefixes::default(), block_tokens, chains: 0 }
    }

    fn session(&mut self, number: u64, entries: &[Entry]) -> Result<(), String> {
        self.prefixes.forget();
        self.chains = 0;
        let first = entries.iter().find_map(|entry| entry.t);
        let arrival = first.map_or(Ok(0), |t| number::scaled(t, 9))?;
        self.list(entries, &Tail::default())?;
        self.builder.session(number + 1, arrival);
        Ok(())
    }

    /// The requests of one list, one after the other. Sub-agents that stand side by side run side by side, and the
    /// request behind them waits for them all. Returns what follows the list.
    fn list(&mut self, entries: &[Entry], before: &Tail) -> Result<Tail, String> {
        let chain = self.chains;
        self.chains += 1;
        let mut blocks: Vec<u64> = Vec::new();
        let mut last = before.clone();
        let mut agents: Vec<u32> = Vec::new();
        for entry in entries {
            if entry.subagent.is_some() {
                let inner = entry.requests.as_deref().unwrap_or_default();
                agents.extend(self.list(inner, &last)?.waits);
                continue;
            }
            agents.sort_unstable();
            agents.dedup();
            let waits = if agents.is_empty() { last.waits } else { std::mem::take(&mut agents) };
            last = Tail { waits: vec![self.request(chain, entry, &mut blocks, &waits)?] };
        }
        Ok(if agents.is_empty() { last } else { Tail { waits: agents } })
    }

    fn request(&mut self, chain: u32, entry: &Entry, blocks: &mut Vec<u64>, waits: &[u32]) -> Result<u32, String> {
        let input = entry.input.ok_or("expected `in`, the tokens of the prompt, or `subagent`")?;
        let output = entry.out.ok_or("expected `out`, the tokens of the answer")?;
        if input == 0 {
            return Err("a request has no prompt: expected at least one token".to_owned());
        }
        tokens_fit(input, output)?;
        if entry.keep as usize > blocks.len() {
            let (keep, had) = (entry.keep, blocks.len());
            return Err(format!("expected `keep` of at most {had}, the blocks of the request before, got {keep}"));
        }
        blocks.truncate(entry.keep as usize);
        for &(first, count) in &entry.runs {
            if blocks.len() as u64 + count > BLOCKS_MAX || first.checked_add(count).is_none() {
                return Err(format!("a request has more than {BLOCKS_MAX} blocks"));
            }
            self.prefixes.take(blocks.last().copied(), first..first + count)?;
            blocks.extend(first..first + count);
        }
        let expected = (input / self.block_tokens) as usize;
        if blocks.len() != expected {
            return Err(format!("expected {expected} blocks for {input} tokens, got {}", blocks.len()));
        }
        let think = entry.think.map_or(Ok(0), |think| number::scaled(think, 9))?;
        let asked = Asked {
            input_tokens: input,
            output_tokens: output,
            keep: entry.keep,
            runs: entry.runs.iter().map(|&(first, count)| (first, count as u32)).collect(),
            ..Asked::default()
        };
        let request = self.builder.request(chain, &asked);
        for &other in waits {
            self.builder.wait(request, other, false, think);
        }
        Ok(request)
    }
}
