//! A scenario as plain values.

use super::choices::{Dtype, Grain, LogFormat, Roles, Side, Verdict, WritePolicy};
use super::import::Folding;
use super::model::{Layout, ModelFile};

/// The greatest number of requests of a scenario.
pub const REQUESTS_MAX: usize = 8;

/// One scenario file, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The file's name without folder and `.toml`.
    pub name: String,
    /// One line about it.
    pub title: String,
    /// The public report it stands for.
    pub source: String,
    /// A few lines about it; may be empty.
    pub story: String,
    /// Words to choose scenarios by.
    pub tags: Vec<String>,
    /// Which layers of which model.
    pub model: Model,
    /// Sizes and policies.
    pub world: World,
    /// What clients ask for, at least one request.
    pub requests: Vec<Request>,
    /// How the requests were made of a log, if they were.
    pub import: Option<Import>,
    /// What may go wrong, and how often.
    pub faults: Faults,
    /// The rules that the manager leaves out.
    pub drop: Vec<DroppedRule>,
    /// The properties that are checked, sorted; all when empty.
    pub properties: Vec<String>,
    /// The explorer gives up after so many states.
    pub states_max: u64,
    /// It is always searched reduced: the whole is too large.
    pub reduce: bool,
    /// What the suite asserts.
    pub expect: Option<Expect>,
}

/// The layers of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The model file as the scenario names it.
    pub file: String,
    /// All of the model.
    pub geometry: ModelFile,
    /// The layers taken, in the model's order.
    pub layers: Vec<Layer>,
}

/// One layer of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its number in the model.
    pub index: u32,
    /// Its kind.
    pub kind: String,
    /// How it stores KV.
    pub kv: Layout,
    /// How it stores index-K; `None` when it has no indexer.
    pub index_k: Option<Layout>,
    /// How the decode engine stores index-K: as `index_k` unless the scenario says otherwise.
    pub decode_index_k: Option<Layout>,
}

impl Model {
    /// How the prefill engine, or the only one, stores index-K; `None` when no layer has an indexer.
    pub fn index_k(&self) -> Option<Dtype> {
        self.layers.iter().find_map(|layer| layer.index_k.as_ref()).map(|layout| layout.dtype)
    }
}

/// Sizes and policies of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Which engines there are.
    pub roles: Roles,
    /// Pages of the device pool of the prefill engine, or of the only one.
    pub device_pages: u32,
    /// Pages of its host pool; 0 without a host tier.
    pub host_pages: u32,
    /// Pages of the device pool of the decode engine; 0 when there is none.
    pub decode_pages: u32,
    /// Metadata slots of the decode engine; 0 when there is none.
    pub metadata_slots: u32,
    /// Event slots that rotate.
    pub event_slots: u32,
    /// When a page is copied to the host tier.
    pub write_policy: WritePolicy,
    /// Whether later requests reuse cached blocks.
    pub prefix_cache: bool,
    /// Tokens of a page in this world.
    pub page_tokens: u32,
    /// Pages that a prefill step computes at most; 0 for the whole prompt.
    pub chunk_pages: u32,
    /// Requests of a step at most.
    pub batch_max: u32,
    /// How finely copies and sends are cut into steps.
    pub grain: Grain,
    /// Whether timers are armed.
    pub deadlines: bool,
}

/// One request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name, unique in the scenario.
    pub name: String,
    /// The prompt's blocks; equal names after equal prefixes are the same block.
    pub prompt: Vec<String>,
    /// The blocks that decoding makes, one a step.
    pub output: Vec<String>,
    /// The requests that must have ended before this one is submitted.
    pub after: Vec<String>,
    /// How often the client may submit it again after an abort.
    pub retries: u32,
    /// Requests of a higher priority are considered first.
    pub priority: u32,
}

/// Where imported requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The log as the scenario names it.
    pub file: String,
    /// Its format.
    pub format: LogFormat,
    /// What was folded.
    pub folding: Folding,
}

/// What may go wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Client aborts, one each.
    pub abort: Vec<Abort>,
    /// Requests that may be preempted, once an entry.
    pub preempt: Vec<String>,
    /// Operator resets.
    pub flush: Flush,
    /// Messages that may be lost.
    pub lose: u32,
    /// Messages that may come twice.
    pub duplicate: u32,
    /// Messages that may overtake others.
    pub reorder: u32,
    /// Operations that may be slow: a deadline may pass before they end.
    pub slow: u32,
    /// Parts of transfers that may fail.
    pub fail_part: u32,
}

/// One abort.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Abort {
    /// The request.
    pub request: String,
    /// The engine that hears of it first; `None` when there is one engine.
    pub at: Option<Side>,
}

/// Resets by the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// How many.
    pub times: u32,
    /// The engine that is reset; `None` when there is one engine or no reset.
    pub at: Option<Side>,
}

/// A rule that is left out, at one site or everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppedRule {
    /// The rule.
    pub rule: String,
    /// The site; every one when `None`.
    pub site: Option<String>,
}

impl std::fmt::Display for DroppedRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.site {
            Some(site) => write!(f, "{}@{site}", self.rule),
            None => f.write_str(&self.rule),
        }
    }
}

/// What the suite asserts of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The verdict as written, with the dropped rules.
    pub verdict: Verdict,
    /// The properties violated, exactly these, sorted.
    pub violates: Vec<String>,
    /// States as written.
    pub states: Option<u64>,
    /// States with all rules on.
    pub states_all_rules: Option<u64>,
}
