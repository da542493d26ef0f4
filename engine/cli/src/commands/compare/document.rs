//! The results for programs.

use kvweft_check::explore::Verdict;
use serde_json::{Value, json};

use super::Compared;
use super::explored::Explored;
use super::matrix::Matrix;
use super::measured::Measured;
use super::played::Played;
use crate::json::{print, share};

pub(super) fn document(matrix: &Matrix, rows: &[Compared<'_>]) -> String {
    print(&json!({
        "format": "kvweft-compare",
        "version": 1,
        "title": matrix.title,
        "seeds": matrix.seeds,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "notes": matrix.notes,
    }))
}

fn row(compared: &Compared<'_>) -> Value {
    let row = compared.row;
    json!({
        "name": row.name,
        "title": row.title,
        "group": row.group,
        "choice": row.choice,
        "reported": row.reported,
        "dropped": row.simulate.engine.drop,
        "explored": explored(&row.scenario.name, &compared.explored),
        "simulated": simulated(&compared.played),
        "measured": compared.measured.as_ref().map(measured),
        "contradicts": compared.contradicts(),
    })
}

fn explored(scenario: &str, explored: &Explored) -> Value {
    let violates = explored.violates.iter();
    json!({
        "scenario": scenario,
        "verdict": match explored.verdict {
            Verdict::Holds => "holds",
            Verdict::Violated => "violated",
            Verdict::Inconclusive { .. } => "inconclusive",
        },
        "states": explored.states,
        "violates": violates.map(|(property, steps)| json!({ "property": property, "steps": steps })).collect::<Vec<_>>(),
    })
}

fn simulated(played: &Played) -> Value {
    let [first_p50, first_p99] = played.first_token_ns();
    json!({
        "runs": played.runs(),
        "corrupt": share(played.corrupt()),
        "runs_without_corruption": played.runs_without(),
        "ok": played.ok(),
        "stuck": played.stuck(),
        "timeout": played.timeout(),
        "error": played.error(),
        "lost_pages": played.lost_pages(),
        "first_token_p50_ns": first_p50,
        "first_token_p99_ns": first_p99,
        "end_to_end_p50_ns": played.end_to_end_ns(),
        "answer_tokens_per_1000_s": played.tokens_per_1000_s(),
        "prefix_cache_reused_per_10k": played.reused_per_10k(),
        "adds_up": played.adds_up(),
    })
}

fn measured(measured: &Measured) -> Value {
    json!({
        "run": measured.run,
        "device": measured.device,
        "corrupt": share(measured.corrupt),
        "timeout": measured.timeout,
        "error": measured.error,
        "first_token_p50_us": measured.first_token_p50_us,
    })
}
