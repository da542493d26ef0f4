//! Results for programs. Every document names its format and version; `docs/json.md` describes them.

use std::path::Path;

use kvweft_check::bounded::Bounded;
use kvweft_check::explore::{Limit, Outcome, Verdict};
use kvweft_check::extent::Extent;
use kvweft_check::grow::Neighbours;
use kvweft_check::plan::Estimate;
use kvweft_check::record::{Impossible, Replayed};
use kvweft_check::reduce::Reduction;
use kvweft_check::repair::{Kept, Repair};
use kvweft_check::scenario::{Grain, Scenario};
use kvweft_check::trace::Failure;
use kvweft_check::verdict::{Cause, Report, Settings};
use kvweft_shell::conform::{Checked, NotConforming};
use kvweft_trace::TraceFile;
use kvweft_world::Action;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::What;
use crate::commands::replay::OnThreads;
use crate::coverage::Coverage;
use crate::share::Share;

#[derive(Serialize)]
struct Search {
    verdict: &'static str,
    ran_out_of: Option<&'static str>,
    reduced: bool,
    states: u64,
    transitions: u64,
    depth: u64,
    miss_probability: String,
    violates: Vec<&'static str>,
}

fn search(outcome: &Outcome<Action>) -> Search {
    Search {
        verdict: match outcome.verdict {
            Verdict::Holds => "holds",
            Verdict::Violated => "violated",
            Verdict::Inconclusive { .. } => "inconclusive",
        },
        ran_out_of: match outcome.verdict {
            Verdict::Inconclusive { ran_out_of: Limit::States } => Some("states"),
            Verdict::Inconclusive { ran_out_of: Limit::Memory } => Some("memory"),
            Verdict::Holds | Verdict::Violated => None,
        },
        reduced: matches!(outcome.reduction, Some(Reduction::Applied { .. })),
        states: outcome.counts.states,
        transitions: outcome.counts.transitions,
        depth: outcome.counts.depth,
        miss_probability: outcome.miss.to_string(),
        violates: outcome.traces.iter().map(|trace| trace.violation.property).collect(),
    }
}

/// The document of `kvweft check`.
pub(crate) fn reports(
    scenarios: &[Scenario],
    reports: &[Report],
    coverage: Option<&Coverage>,
    settings: &Settings,
) -> String {
    let scenarios: Vec<Value> = scenarios
        .iter()
        .zip(reports)
        .map(|(scenario, report)| {
            let causes: Vec<Value> = report.causes.iter().map(cause).collect();
            json!({
                "name": scenario.name,
                "title": scenario.title,
                "source": scenario.source,
                "digest": scenario.digest(),
                "grain": grain(settings.grain.unwrap_or(scenario.world.grain)),
                "extent": extent(scenario),
                "drops": report.drops,
                "as_written": search(&report.as_written),
                "all_rules": report.all_rules.as_ref().map(search),
                "causes": causes,
                "unexpected": report.unexpected,
            })
        })
        .collect();
    let coverage = coverage.map(|coverage| {
        json!({
            "cells_reached": coverage.reached,
            "cells_unreachable": coverage.unreachable.len(),
            "cells_missed": coverage.missed,
            "rules_held": coverage.held,
            "rules_idle": coverage.idle,
        })
    });
    print(&json!({ "format": "kvweft-check", "version": 1, "scenarios": scenarios, "coverage": coverage }))
}

fn cause(cause: &Cause) -> Value {
    json!({
        "property": cause.trace.violation.property,
        "drops": cause.drops,
        "steps": cause.trace.steps.len(),
        "failure": cause.trace.failure().name(),
        "dooming_step": cause.trace.dooming_step,
        "loop_from": cause.trace.loop_from,
        "detail": cause.trace.violation.detail,
        "trace": cause.file.to_string(),
    })
}

/// The document of `kvweft repair`.
pub(crate) fn repair(scenario: &Scenario, repair: &Repair, settings: &Settings) -> String {
    let kept = |sets: &[Kept]| -> Vec<Value> {
        sets.iter().map(|kept| json!({ "rules": kept.rules, "undone_by": kept.undone_by })).collect()
    };
    let properties = repair.properties.iter().map(|repaired| {
        json!({
            "property": repaired.property,
            "as_written": repaired.as_written,
            "broken_by": repaired.breaking.iter().map(cause).collect::<Vec<_>>(),
            "holds_with": kept(&repaired.kept),
        })
    });
    print(&json!({
        "format": "kvweft-repair",
        "version": 1,
        "name": scenario.name,
        "digest": scenario.digest(),
        "grain": grain(settings.grain.unwrap_or(scenario.world.grain)),
        "drops": repair.drops,
        "sets": repair.sets,
        "states": repair.states,
        "properties": properties.collect::<Vec<_>>(),
        "holds_with": kept(&repair.whole),
        "groups": repair.groups.iter().map(|group| json!({
            "properties": group.properties,
            "rules": group.rules,
        })).collect::<Vec<_>>(),
        "unknown": repair.unknown,
    }))
}

/// The document of `kvweft check --plan`.
pub(crate) fn plan(scenarios: &[Scenario], estimates: &[Estimate]) -> String {
    let entries = scenarios.iter().zip(estimates).map(|(scenario, estimate)| {
        json!({
            "name": scenario.name,
            "extent": extent(scenario),
            "states": estimate.states,
            "exact": estimate.exact,
            "table_bytes": estimate.table_bytes,
        })
    });
    print(&json!({ "format": "kvweft-plan", "version": 1, "scenarios": entries.collect::<Vec<_>>() }))
}

/// The document of `kvweft check --grow`.
pub(crate) fn grow(scenarios: &[Scenario], all: &[Neighbours], settings: &Settings) -> String {
    let entries = scenarios.iter().zip(all).map(|(scenario, neighbours)| {
        let grown = neighbours.grown.iter().map(|grown| {
            json!({ "dimension": grown.dimension.names().1, "from": grown.from, "search": search(&grown.outcome) })
        });
        json!({
            "name": scenario.name,
            "digest": scenario.digest(),
            "grain": grain(settings.grain.unwrap_or(scenario.world.grain)),
            "as_written": search(&neighbours.as_written),
            "grown": grown.collect::<Vec<_>>(),
        })
    });
    print(&json!({ "format": "kvweft-grow", "version": 1, "scenarios": entries.collect::<Vec<_>>() }))
}

/// The document of `kvweft check --walk`, `--delays` and `--preemptions`.
pub(crate) fn bounded(scenarios: &[Scenario], all: &[Bounded], settings: &Settings) -> String {
    let entries = scenarios.iter().zip(all).map(|(scenario, found)| {
        json!({
            "name": scenario.name,
            "digest": scenario.digest(),
            "grain": grain(settings.grain.unwrap_or(scenario.world.grain)),
            "drops": found.drops,
            "states": found.states,
            "steps": found.steps,
            "covered": found.covered,
            "causes": found.causes.iter().map(cause).collect::<Vec<_>>(),
        })
    });
    print(&json!({ "format": "kvweft-bounded", "version": 1, "scenarios": entries.collect::<Vec<_>>() }))
}

fn extent(scenario: &Scenario) -> Value {
    let extent = Extent(scenario);
    Value::Object(
        extent.dimensions().map(|(dimension, count)| (dimension.names().1.replace(' ', "_"), count.into())).collect(),
    )
}

/// A grain by its name.
pub(crate) fn grain(grain: Grain) -> &'static str {
    match grain {
        Grain::Default => "default",
        Grain::Finest => "finest",
        Grain::Atomic => "atomic",
    }
}

/// The document of `kvweft replay`.
pub(crate) fn replay(
    file: &TraceFile,
    result: &Result<Replayed, Box<Impossible>>,
    threads: Option<&OnThreads>,
) -> String {
    let replayed = result.as_ref().ok();
    let impossible = result.as_ref().err();
    let steps = replayed.map(|replayed| &replayed.steps).or(impossible.map(|impossible| &impossible.before));
    let violation = replayed.and_then(|replayed| replayed.violation.as_ref());
    print(&json!({
        "format": "kvweft-replay",
        "version": 1,
        "scenario": file.scenario,
        "violates": file.violates,
        "violated": violation.is_some(),
        "failure": replayed.and_then(|replayed| replayed.failure).map(Failure::name),
        "detail": violation.map(|violation| &violation.detail),
        "steps": steps.map_or(0, Vec::len),
        "impossible": impossible.map(|impossible| json!({
            "step": impossible.step,
            "wanted": impossible.wanted,
            "waits_for": impossible.blocked.as_ref().map(|blocked| &blocked.waits_for),
            "owed_to": impossible.blocked.as_ref().map(|blocked| blocked.owed_to.to_string()),
            "possible": impossible.possible,
        })),
        "threads": threads.map(|threads| json!({
            "held_by": threads.held.map(|owed_to| owed_to.to_string()),
            "times": threads.times,
            "garbled_times": threads.garbled_times,
            "held_times": threads.held_times,
            "requests": threads.requests.iter().map(|(name, outcome)| json!({
                "request": name,
                "ended": outcome.ending.is_some(),
                "expected": String::from_utf8_lossy(&outcome.expected),
                "answer": outcome.answer.as_ref().map(|answer| String::from_utf8_lossy(answer)),
                "garbled": outcome.is_garbled(),
            })).collect::<Vec<_>>(),
        })),
    }))
}

/// The document of `kvweft conform`.
pub(crate) fn conform(path: &Path, found: &Result<Checked, NotConforming>) -> String {
    let (checked, wrong) = (found.as_ref().ok(), found.as_ref().err());
    print(&json!({
        "format": "kvweft-conform",
        "version": 1,
        "log": path.display().to_string(),
        "conforms": checked.is_some(),
        "cut_off": checked.map(|checked| checked.cut_off),
        "run": checked.map(|checked| &checked.run),
        "lines": checked.map(|checked| checked.lines),
        "inputs": checked.map(|checked| checked.inputs),
        "operations": checked.map(|checked| checked.operations),
        "cells": checked.map(|checked| checked.cells),
        "not_allowed": wrong.map(|wrong| json!({ "line": wrong.line, "what": wrong.what, "why": wrong.why })),
    }))
}

/// The document of `kvweft list`.
pub(crate) fn list(what: What, header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let entries = header.iter().zip(row).map(|(key, cell)| (key.replace(' ', "_"), Value::from(cell.as_str())));
            Value::Object(entries.collect())
        })
        .collect();
    let of = match what {
        What::Scenarios => "scenarios",
        What::Rules => "rules",
        What::Properties => "properties",
        What::Models => "models",
        What::Cells => "cells",
    };
    print(&json!({ "format": "kvweft-list", "version": 1, "of": of, "rows": rows }))
}

pub(crate) fn print(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("plain values can be written") + "\n"
}

/// A count, and the bounds of its share.
pub(crate) fn share(share: Share) -> Value {
    let millionths = |share: f64| (share * 1e6).round() as u64;
    let (low, high) = share.interval();
    json!({
        "count": share.count,
        "of": share.of,
        "low_per_million": millionths(low),
        "high_per_million": millionths(high),
    })
}
