//! Puts a workload together, session by session.

use super::{Edge, Request, Run, Session, Workload};

/// A request as it is added.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// Tokens of the answer; 0 is allowed.
    pub output_tokens: u32,
    /// So many blocks of the request before it in its chain come first.
    pub keep: u32,
    /// Then these: first id and number.
    pub runs: Vec<(u64, u32)>,
    /// Ids of the blocks that the answer completes, where they are known.
    pub answer: Option<(u64, u32)>,
    /// Not before this, from the start of its session.
    pub not_before_ns: u64,
}

/// Collects sessions.
pub(crate) struct Builder {
    workload: Workload,
    /// Edges of the session in hand: from, edge.
    edges: Vec<(u32, Edge)>,
    first: u32,
}

impl Builder {
    pub(crate) fn new(block_tokens: u32) -> Builder {
        let workload =
            Workload { block_tokens, sessions: Vec::new(), requests: Vec::new(), runs: Vec::new(), edges: Vec::new() };
        Builder { workload, edges: Vec::new(), first: 0 }
    }

    /// Adds a request to the session in hand; returns its number there.
    pub(crate) fn request(&mut self, chain: u32, asked: &Asked) -> u32 {
        let start = self.workload.runs.len() as u32;
        for &(first, count) in &asked.runs {
            match self.workload.runs[start as usize..].last_mut() {
                Some(run) if run.first + u64::from(run.count) == first => run.count += count,
                _ => self.workload.runs.push(Run { first, count }),
            }
        }
        self.workload.requests.push(Request {
            input_tokens: asked.input_tokens,
            output_tokens: asked.output_tokens,
            chain,
            keep: asked.keep,
            runs: start..self.workload.runs.len() as u32,
            answer: asked.answer.map(|(first, count)| Run { first, count }),
            needs: 0,
            edges: 0..0,
            not_before_ns: asked.not_before_ns,
        });
        self.workload.requests.len() as u32 - 1 - self.first
    }

    /// `to` waits for `from`, both of the session in hand.
    pub(crate) fn wait(&mut self, to: u32, from: u32, on_dispatch: bool, delay_ns: u64) {
        self.edges.push((from, Edge { to, on_dispatch, delay_ns }));
        self.workload.requests[(self.first + to) as usize].needs += 1;
    }

    /// Ends the session in hand.
    pub(crate) fn session(&mut self, scope: u64, arrival_ns: u64) {
        let end = self.workload.requests.len() as u32;
        self.edges.sort_by_key(|(from, edge)| (*from, edge.to));
        let mut at = 0;
        for request in self.first..end {
            let start = self.workload.edges.len() as u32;
            while let Some((_, edge)) = self.edges.get(at).filter(|(from, _)| self.first + from == request) {
                self.workload.edges.push(*edge);
                at += 1;
            }
            self.workload.requests[request as usize].edges = start..self.workload.edges.len() as u32;
        }
        self.edges.clear();
        let chains = self.workload.requests[self.first as usize..].iter().map(|r| r.chain + 1).max().unwrap_or(0);
        self.workload.sessions.push(Session { arrival_ns, scope, requests: self.first..end, chains });
        self.first = end;
    }

    pub(crate) fn finish(self) -> Workload {
        self.workload
    }
}
