//! The results for programs.

use kvweft_sim::Arrival;
use serde_json::{Value, json};

use super::text::reused;
use super::{Chosen, Run};
use crate::args::Simulate;
use crate::json::print;

pub(super) fn document(chosen: &Chosen, runs: &[Run]) -> String {
    let runs: Vec<Value> = runs.iter().map(one).collect();
    print(&json!({
        "format": "kvweft-simulate",
        "version": kvweft_sim::report::VERSION,
        "workload": workload(chosen),
        "engine": engine(chosen),
        "faults": chosen.settings.faults,
        "profile": chosen.settings.profile,
        "runs": runs,
    }))
}

/// What is simulated: equal for all parts of one work, and for no other.
pub(super) fn header(chosen: &Chosen, args: &Simulate) -> Value {
    json!({
        "format": "kvweft-seeds",
        "version": 1,
        "cells": args.seeds,
        "seed": args.seed,
        "workload": workload(chosen),
        "engine": engine(chosen),
        "faults": chosen.settings.faults,
        "profile": chosen.settings.profile,
    })
}

/// The run of a seed, by its number among all.
pub(super) fn line(cell: u64, run: &Run) -> Value {
    let mut line = one(run);
    line["cell"] = json!(cell);
    line["unexpected"] = json!(!run.is_fine());
    line
}

fn one(run: &Run) -> Value {
    json!({ "seed": run.seed, "prefix_cache_reused_ratio": reused(&run.report), "report": run.report })
}

fn workload(chosen: &Chosen) -> Value {
    let settings = &chosen.settings;
    let concurrency = match settings.arrival {
        Arrival::Open => 0,
        Arrival::Closed(count) => count,
    };
    json!({
        "name": chosen.name,
        "digest": format!("{:016x}", chosen.digest),
        "sessions": chosen.workload.sessions(),
        "requests": chosen.workload.requests(),
        "concurrency": concurrency,
        "think": settings.think,
        "timeout_ns": settings.timeout_ns,
    })
}

fn engine(chosen: &Chosen) -> Value {
    let settings = &chosen.settings;
    json!({
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
    })
}
