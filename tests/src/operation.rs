//! What a test does to a manager, and under which configuration.

use std::fmt;

use kvweft_core::{AllocationOrder, Config, Dtype, Geometry, Role, RuleSet, WritePolicy};
use proptest::collection::vec;
use proptest::prelude::*;

/// Layers of every test model.
pub const LAYERS: u8 = 2;

/// Request ids that tests use.
pub const REQUESTS: u8 = 4;

/// One thing that the test does. Numbers pick among what there is, modulo how much there is.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    /// A client hands a request over. `late`: the prefill engine hears of it only by a later `SubmitLate`.
    Submit {
        request: u8,
        prompt: Vec<u8>,
        tail: u8,
        output: u8,
        priority: u8,
        late: bool,
    },
    /// The prefill engine hears of a request that the decode engine has had for a while.
    SubmitLate(u8),
    Abort {
        engine: u8,
        request: u8,
    },
    Preempt {
        request: u8,
    },
    /// The engine ends an answer, and names `drop` blocks fewer than it has computed.
    Finish {
        request: u8,
        drop: u8,
    },
    Flush {
        engine: u8,
    },
    /// Devices, reports and messages go on, each number picking one of what can go on.
    Go(Vec<u8>),
    /// Devices, reports and messages go on until nothing is left to do.
    Settle,
    /// As `Settle`, and answers that are complete are ended.
    Round,
    /// As `Round`, but one kind of thing does not go on: a stream, a queue of reports, sends or messages.
    RoundWithout(u8),
    /// A copy or a part of a send stops and leaves nobody knows what.
    Fail {
        engine: u8,
        at: u8,
    },
    /// The device refuses a copy or a send before anything of it has run.
    Refuse {
        engine: u8,
        at: u8,
    },
    /// A report that was handed in before is handed in again.
    Repeat {
        engine: u8,
        at: u8,
    },
    Lose {
        link: u8,
    },
    Duplicate {
        link: u8,
    },
    Swap {
        link: u8,
    },
    /// An armed timer runs out.
    Fire {
        engine: u8,
        at: u8,
    },
}

/// The numbers of a configuration.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "as in kvweft_core::Config")]
pub struct Setup {
    pub split: bool,
    pub page_tokens: u16,
    pub device_pages: [u32; 2],
    pub host_pages: u32,
    pub index_keys: bool,
    pub write_policy: WritePolicy,
    pub event_slots: u8,
    pub chunk_pages: u32,
    pub max_batch: u32,
    pub pipeline_depth: u8,
    pub prefix_cache: bool,
    pub deadlines: bool,
    pub concluded_kept: u32,
    pub rules: RuleSet,
    pub order: AllocationOrder,
}

impl Setup {
    /// One engine of small numbers; meant to be changed by field.
    pub fn small() -> Setup {
        Setup {
            split: false,
            page_tokens: 1,
            device_pages: [4, 1],
            host_pages: 3,
            index_keys: false,
            write_policy: WritePolicy::Through,
            event_slots: 2,
            chunk_pages: 0,
            max_batch: 2,
            pipeline_depth: 1,
            prefix_cache: true,
            deadlines: true,
            concluded_kept: 64,
            rules: RuleSet::ALL,
            order: AllocationOrder::Ascending,
        }
    }

    /// The configuration of an engine: 0 computes prompts, 1 receives them.
    pub fn config(&self, engine: usize) -> Config {
        let role = match (self.split, engine) {
            (false, _) => Role::Together,
            (true, 0) => Role::Prefill,
            (true, _) => Role::Decode,
        };
        let geometry = Geometry::uniform(LAYERS, self.page_tokens, self.index_keys.then_some(Dtype::Bf16));
        let host_pages = if role == Role::Decode { 0 } else { self.host_pages };
        let mut config = Config::new(role, geometry, self.device_pages[engine], host_pages);
        config.write_policy = self.write_policy;
        config.event_slots = self.event_slots;
        config.chunk_pages = self.chunk_pages;
        config.max_batch = self.max_batch;
        config.pipeline_depth = self.pipeline_depth;
        config.prefix_cache = self.prefix_cache && role != Role::Decode;
        config.deadlines = self.deadlines;
        config.concluded_kept = self.concluded_kept;
        config.rules = self.rules;
        config.order = self.order;
        config
    }
}

/// A configuration and what is done to it. Its `Debug` is a list that a person can read.
#[derive(Clone)]
pub struct Case {
    /// The configuration.
    pub setup: Setup,
    /// What is done, in order.
    pub operations: Vec<Operation>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:?}", Setup { rules: RuleSet::ALL, ..self.setup.clone() })?;
        for (at, operation) in self.operations.iter().enumerate() {
            writeln!(f, "{at:4}  {operation:?}")?;
        }
        Ok(())
    }
}

/// Any configuration of the role.
pub fn any_setup(split: bool, pipeline_depth: u8) -> impl Strategy<Value = Setup> {
    let policy = prop_oneof![Just(WritePolicy::Off), Just(WritePolicy::Through), Just(WritePolicy::Back)];
    let tokens = prop_oneof![3 => Just(1u16), 3 => Just(4), 1 => Just(64)];
    let pages = prop_oneof![1 => 1..3u32, 8 => 3..9u32, 2 => 9..25u32];
    let host = prop_oneof![1 => Just(0u32), 3 => 1..6u32, 1 => 6..25u32];
    (
        (tokens, pages.clone(), pages, host, any::<bool>(), policy),
        (1..4u8, 0..4u32, 1..4u32, prop::bool::weighted(0.9), prop::bool::weighted(0.8)),
    )
        .prop_map(move |(pool, pace)| {
            let (page_tokens, device, peer, host_pages, index_keys, write_policy) = pool;
            let (event_slots, chunk_pages, max_batch, prefix_cache, deadlines) = pace;
            Setup {
                split,
                page_tokens,
                device_pages: [device, peer],
                host_pages,
                index_keys,
                write_policy,
                event_slots,
                chunk_pages,
                max_batch,
                pipeline_depth,
                prefix_cache,
                deadlines,
                concluded_kept: 64,
                rules: RuleSet::ALL,
                order: AllocationOrder::Ascending,
            }
        })
}

fn submit() -> impl Strategy<Value = Operation> {
    let prompt = prop_oneof![8 => vec(0..2u8, 1..5), 1 => vec(0..2u8, 0..2), 1 => vec(0..3u8, 4..8)];
    let tail = prop_oneof![2 => Just(0u8), 1 => 0..64u8];
    let output = prop_oneof![3 => 0..3u8, 1 => 3..7u8];
    (0..REQUESTS, prompt, tail, output, prop_oneof![4 => Just(0u8), 1 => 1..3u8], prop::bool::weighted(0.1)).prop_map(
        |(request, prompt, tail, output, priority, late)| Operation::Submit {
            request,
            prompt,
            tail,
            output,
            priority,
            late,
        },
    )
}

/// Any operation.
pub fn any_operation() -> impl Strategy<Value = Operation> {
    let request = 0..REQUESTS;
    prop_oneof![
        40 => submit(),
        50 => vec(any::<u8>(), 1..24).prop_map(Operation::Go),
        6 => Just(Operation::Settle),
        16 => Just(Operation::Round),
        24 => (0..crate::drive::KINDS).prop_map(Operation::RoundWithout),
        8 => (0..2u8, 0..REQUESTS + 1).prop_map(|(engine, request)| Operation::Abort { engine, request }),
        5 => request.clone().prop_map(|request| Operation::Preempt { request }),
        12 => (request, prop_oneof![3 => Just(0u8), 1 => 0..3u8])
            .prop_map(|(request, drop)| Operation::Finish { request, drop }),
        1 => (0..2u8).prop_map(|engine| Operation::Flush { engine }),
        3 => (0..2u8, any::<u8>()).prop_map(|(engine, at)| Operation::Fail { engine, at }),
        3 => (0..2u8, any::<u8>()).prop_map(|(engine, at)| Operation::Refuse { engine, at }),
        6 => (0..2u8, any::<u8>()).prop_map(|(engine, at)| Operation::Repeat { engine, at }),
        4 => (0..2u8).prop_map(|link| Operation::Lose { link }),
        4 => (0..2u8).prop_map(|link| Operation::Duplicate { link }),
        4 => (0..2u8).prop_map(|link| Operation::Swap { link }),
        4 => (0..2u8, any::<u8>()).prop_map(|(engine, at)| Operation::Fire { engine, at }),
        3 => any::<u8>().prop_map(Operation::SubmitLate),
    ]
}

/// Any case of the role, of up to `length` operations.
pub fn any_case(split: bool, pipeline_depth: u8, length: usize) -> impl Strategy<Value = Case> {
    (any_setup(split, pipeline_depth), vec(any_operation(), 1..length))
        .prop_map(|(setup, operations)| Case { setup, operations })
}
