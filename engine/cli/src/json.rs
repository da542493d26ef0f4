//! Results for programs. Every document names its format and version; `docs/json.md` describes them.

use kvweft_check::explore::{Outcome, Verdict};
use kvweft_check::record::{Impossible, Replayed};
use kvweft_check::scenario::Scenario;
use kvweft_check::verdict::Report;
use kvweft_trace::TraceFile;
use kvweft_world::Action;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Serialize)]
struct Search {
    verdict: &'static str,
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
        states: outcome.counts.states,
        transitions: outcome.counts.transitions,
        depth: outcome.counts.depth,
        miss_probability: outcome.miss.to_string(),
        violates: outcome.traces.iter().map(|trace| trace.violation.property).collect(),
    }
}

/// The document of `kvweft check`.
pub(crate) fn reports(scenarios: &[Scenario], reports: &[Report]) -> String {
    let scenarios: Vec<Value> = scenarios
        .iter()
        .zip(reports)
        .map(|(scenario, report)| {
            let causes: Vec<Value> = report
                .causes
                .iter()
                .map(|cause| {
                    json!({
                        "property": cause.trace.violation.property,
                        "drops": cause.drops,
                        "steps": cause.trace.steps.len(),
                        "dooming_step": cause.trace.dooming_step,
                        "detail": cause.trace.violation.detail,
                        "trace": cause.file.to_string(),
                    })
                })
                .collect();
            json!({
                "name": scenario.name,
                "title": scenario.title,
                "source": scenario.source,
                "digest": scenario.digest(),
                "drops": report.drops,
                "as_written": search(&report.as_written),
                "all_rules": report.all_rules.as_ref().map(search),
                "causes": causes,
                "unexpected": report.unexpected,
            })
        })
        .collect();
    print(&json!({ "format": "kvweft-check", "version": 1, "scenarios": scenarios }))
}

/// The document of `kvweft replay`.
pub(crate) fn replay(file: &TraceFile, result: &Result<Replayed, Box<Impossible>>) -> String {
    let value = match result {
        Ok(replayed) => json!({
            "format": "kvweft-replay", "version": 1,
            "scenario": file.scenario, "violates": file.violates,
            "ended": "at the end of the trace",
            "violated": replayed.violation.is_some(),
            "detail": replayed.violation.as_ref().map(|violation| violation.detail.clone()),
            "steps": replayed.steps.len(),
        }),
        Err(impossible) => json!({
            "format": "kvweft-replay", "version": 1,
            "scenario": file.scenario, "violates": file.violates,
            "ended": "at a step that cannot happen",
            "violated": false,
            "step": impossible.step,
            "wanted": impossible.wanted,
            "waits_for": impossible.blocked.as_ref().map(|blocked| blocked.waits_for.clone()),
            "owed_to": impossible.blocked.as_ref().map(|blocked| blocked.owed_to.to_string()),
            "possible": impossible.possible,
        }),
    };
    print(&value)
}

/// The document of `kvweft list`.
pub(crate) fn list(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let entries = header.iter().zip(row).map(|(key, cell)| (key.replace(' ', "_"), Value::from(cell.as_str())));
            Value::Object(entries.collect())
        })
        .collect();
    print(&json!({ "format": "kvweft-list", "version": 1, "rows": rows }))
}

fn print(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("plain values can be written")
}
