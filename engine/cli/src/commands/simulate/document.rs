//! The results for programs.

use kvweft_sim::Arrival;
use serde_json::{Value, json};

use super::text::reused;
use super::{Chosen, Run};
use crate::json::print;

pub(super) fn document(chosen: &Chosen, runs: &[Run]) -> String {
    let settings = &chosen.settings;
    let concurrency = match settings.arrival {
        Arrival::Open => 0,
        Arrival::Closed(count) => count,
    };
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| json!({ "seed": run.seed, "prefix_cache_reused_ratio": reused(&run.report), "report": run.report }))
        .collect();
    print(&json!({
        "format": "kvweft-simulate",
        "version": kvweft_sim::report::VERSION,
        "workload": {
            "name": chosen.name,
            "sessions": chosen.workload.sessions(),
            "requests": chosen.workload.requests(),
            "concurrency": concurrency,
            "think": settings.think,
            "timeout_ns": settings.timeout_ns,
        },
        "engine": {
            "model": chosen.model,
            "page_tokens": settings.geometry.page_tokens,
            "split": settings.split,
            "cache": settings.prefix_cache,
            "device_pages": settings.device_pages,
            "host_pages": settings.host_pages,
            "decode_pages": if settings.split { settings.decode_pages } else { 0 },
            "chunk_pages": settings.chunk_pages,
            "batch_max": settings.batch_max,
            "queue_max": settings.queue_max,
            "deadline_ns": settings.deadline_ns,
            "dropped": chosen.dropped,
        },
        "profile": settings.profile,
        "runs": runs,
    }))
}
