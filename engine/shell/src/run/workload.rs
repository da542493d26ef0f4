//! What a run plays: sessions of agents, the engine that serves them, and what it leaves out.

use kvweft_core::{AllocationOrder, Component, Config, Geometry, Role, RuleSet, WritePolicy};
use serde::{Deserialize, Serialize};

use crate::recall::Shape;

/// Bytes of the longest answer of a transcript, with some room.
const ANSWER_BYTES_MAX: usize = 112;

/// Everything that is fixed about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Sessions that run at once.
    pub sessions: u32,
    /// Questions that each session asks, one after the other.
    pub rounds: u32,
    /// Tokens of the system prompt that all sessions share.
    pub system_tokens: u32,
    /// Tokens of the first text of a session.
    pub first_tokens: u32,
    /// Tokens of every later text.
    pub round_tokens: u32,
    /// Decides all texts.
    pub seed: u64,
    /// Heads of the indexer.
    pub heads: u32,
    /// What a page holds.
    pub geometry: Geometry,
    /// Whether a prefill and a decode engine share the work.
    pub split: bool,
    /// Whether finished blocks are kept, on the device and in host memory.
    pub cache: bool,
    /// Pages of the device pool of the engine that computes prompts.
    pub device_pages: u32,
    /// Pages of its host pool.
    pub host_pages: u32,
    /// Pages of the decode engine.
    pub decode_pages: u32,
    /// Pages of a prompt that one step computes at most; 0 for all.
    pub chunk_pages: u32,
    /// Answers that one step continues at most.
    pub batch_max: u32,
    /// The rules that are kept; written as the list of those that are not.
    #[serde(rename = "dropped")]
    pub rules: RuleSet,
    /// Microseconds that each prompt token takes in all layers together, beside what is really computed: feed-forward
    /// layers and the like, of which this engine has none.
    #[serde(default)]
    pub prompt_token_us: u64,
    /// A client goes away after so long, in milliseconds.
    pub timeout_ms: u64,
    /// The engine gives a wait for its peer up after so long, in milliseconds.
    pub deadline_ms: u64,
}

impl Workload {
    /// Sessions on one engine with room for everything.
    pub fn new(sessions: u32, rounds: u32, geometry: Geometry) -> Workload {
        let mut workload = Workload {
            sessions,
            rounds,
            system_tokens: 320,
            first_tokens: 320,
            round_tokens: 64,
            seed: 1,
            heads: 4,
            geometry,
            split: false,
            cache: true,
            device_pages: 0,
            host_pages: 0,
            decode_pages: 0,
            chunk_pages: 0,
            batch_max: 256,
            rules: RuleSet::ALL,
            prompt_token_us: 0,
            timeout_ms: 120_000,
            deadline_ms: 20_000,
        };
        workload.fit();
        workload
    }

    /// Gives every pool room for all sessions at their longest.
    pub fn fit(&mut self) {
        let pages = self.pages_peak();
        (self.device_pages, self.host_pages, self.decode_pages) = (pages, pages, pages);
    }

    /// Pages of one session at its longest.
    pub fn session_pages(&self) -> u32 {
        let rounds = self.rounds.max(1) as usize;
        let later = (rounds - 1) * self.round_tokens as usize + rounds * ANSWER_BYTES_MAX;
        let tokens = self.system_tokens as usize + self.first_tokens as usize + later + rounds * (self.align() - 1);
        tokens.div_ceil(usize::from(self.geometry.page_tokens.max(1))) as u32
    }

    /// Every prompt is made longer to a multiple of this: see [`RecallModel::align`](crate::recall::RecallModel::align).
    fn align(&self) -> usize {
        let kv = (0..self.geometry.layers).filter_map(|layer| self.geometry.layout(layer, Component::Kv));
        kv.map(|layout| usize::from(layout.tokens_per_entry)).min().unwrap_or(1).max(1)
    }

    /// Pages of all sessions at their longest.
    pub fn pages_peak(&self) -> u32 {
        (self.sessions.max(1)).saturating_mul(self.session_pages())
    }

    /// The texts of a session.
    pub fn shape(&self) -> Shape {
        Shape {
            system_tokens: self.system_tokens as usize,
            first_tokens: self.first_tokens as usize,
            round_tokens: self.round_tokens as usize,
        }
    }

    /// The configuration of every engine.
    pub fn configs(&self) -> Vec<Config> {
        let role = if self.split { Role::Prefill } else { Role::Together };
        let first = Config {
            prefix_cache: self.cache,
            write_policy: if self.cache { WritePolicy::Through } else { WritePolicy::Off },
            chunk_pages: self.chunk_pages,
            max_batch: self.batch_max,
            metadata_slots: 0,
            order: AllocationOrder::Ascending,
            concluded_kept: self.sessions.saturating_mul(2).max(64),
            rules: self.rules,
            ..Config::new(role, self.geometry.clone(), self.device_pages, if self.cache { self.host_pages } else { 0 })
        };
        if !self.split {
            return vec![first];
        }
        let second = first.decode(self.decode_pages, self.sessions.max(2));
        vec![first, second]
    }
}
