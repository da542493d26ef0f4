//! The same work on `aisimulate-core` 0.13.0: one aggregated vLLM worker, polynomial timing, native host offload.

use aisimulate_core::engine::{Backend, EngineConfig, NativeHostOffloadConfig};
use aisimulate_core::replay::loadgen::{MooncakeRow, Trace};
use aisimulate_core::replay::{
    CURRENT_REPLAY_SPEC_VERSION, ReplayEngineConfig, ReplayEngineFactory, ReplayRuntimeInput, ReplaySpec,
    ReplayTopology, Replayer,
};

use crate::{PAGE_TOKENS, TOKEN_BYTES, Work};

/// Plays the work; returns the share of prompt tokens that were reused.
pub(crate) fn run(work: &Work) -> String {
    let mut seen = std::collections::HashSet::new();
    let rows = work.requests.iter().map(|asked| {
        let first = seen.insert(asked.session.as_str());
        MooncakeRow {
            session_id: Some(asked.session.clone()),
            input_length: Some(asked.input_tokens),
            output_length: Some(asked.output_tokens),
            hash_ids: Some(asked.blocks.clone()),
            timestamp: first.then_some(0.0),
            delay: (!first).then_some(0.0),
            ..Default::default()
        }
    });
    let trace = Trace::from_mooncake_rows(rows.collect(), PAGE_TOKENS).expect("the rows are a trace");
    let driver = trace.into_concurrency_driver_with_block_size(PAGE_TOKENS, work.concurrency).expect("it can be played");
    let engine = ReplayEngineConfig {
        rank: EngineConfig {
            block_size: PAGE_TOKENS,
            num_gpu_blocks: work.device_blocks,
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            kv_cache_bytes_per_token: Some(TOKEN_BYTES),
            native_host_offload: Some(NativeHostOffloadConfig::new(work.host_blocks)),
            ..EngineConfig::for_backend(Backend::Vllm)
        },
        ..Default::default()
    };
    let spec = ReplaySpec {
        version: CURRENT_REPLAY_SPEC_VERSION,
        topology: ReplayTopology::aggregated(1),
        engine: serde_json::to_value(engine).expect("a configuration is JSON"),
        adapters: Default::default(),
        max_sim_time_ms: None,
        max_in_flight: Some(work.concurrency),
        record_per_request: false,
        sla: Default::default(),
        requests: Vec::new(),
    };
    let report = Replayer::new(spec, ReplayEngineFactory::new())
        .expect("the specification is one")
        .with_runtime_input(ReplayRuntimeInput::Workload(driver))
        .run()
        .expect("it can be played");
    assert_eq!(report.request_counts.completed_requests, work.requests.len());
    format!("{:.2} %", report.prefix_cache_reused_ratio * 100.0)
}
