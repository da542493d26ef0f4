//! Agents that do not exist: sessions of rounds that grow, all behind one system prompt.

use super::{Asked, Builder, Workload};
use crate::random::Random;

/// What the agents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// Sessions.
    pub sessions: u32,
    /// Requests of each, one after the other.
    pub rounds: u32,
    /// Tokens of the system prompt that all share.
    pub system_tokens: u32,
    /// Tokens of the first text of a session.
    pub first_tokens: u32,
    /// Tokens of each later text, behind the answer before.
    pub round_tokens: u32,
    /// Tokens of each answer.
    pub answer_tokens: u32,
    /// Time between an answer and the next request, in milliseconds: half to one and a half of it, by chance.
    pub think_ms: u64,
    /// Time between the arrivals of two sessions, in milliseconds.
    pub arrival_ms: u64,
    /// Decides by what chance, and whose texts these are: agents of different seeds share none.
    pub seed: u64,
    /// Tokens of a block.
    pub block_tokens: u32,
}

impl Synthetic {
    /// The sessions as a workload. The answers become part of the next prompt, and their blocks are known.
    pub fn workload(&self) -> Workload {
        let mut builder = Builder::new(self.block_tokens);
        let mut random = Random::new(self.seed);
        let block = u64::from(self.block_tokens);
        let shared = u64::from(self.system_tokens) / block;
        for session in 0..u64::from(self.sessions) {
            // The blocks behind the shared ones are the session's own; so long contexts do not exist.
            let own = |at: u64| if at < shared { at } else { (session + 1) << 32 | at };
            let mut tokens = u64::from(self.system_tokens) + u64::from(self.first_tokens);
            let mut known = 0;
            for round in 0..self.rounds {
                let full = tokens / block;
                let end = (tokens + u64::from(self.answer_tokens)) / block;
                let ids: Vec<(u64, u32)> = (known..full).map(|at| (own(at), 1)).collect();
                let asked = Asked {
                    input_tokens: tokens.max(1) as u32,
                    output_tokens: self.answer_tokens,
                    keep: known as u32,
                    runs: ids,
                    answer: Some((own(full), (end - full) as u32)),
                    not_before_ns: 0,
                };
                let request = builder.request(0, &asked);
                if round > 0 {
                    let think = self.think_ms * 1_000_000;
                    builder.wait(request, request - 1, false, think / 2 + random.below(think + 1));
                }
                known = full;
                tokens += u64::from(self.answer_tokens) + u64::from(self.round_tokens);
            }
            builder.session(self.seed, session * self.arrival_ms * 1_000_000);
        }
        builder.finish()
    }
}
