//! The results as tables.

use kvweft_check::explore::{Limit, Verdict};

use super::Compared;
use super::explored::Explored;
use super::matrix::Matrix;
use crate::table::table;

pub(super) fn text(matrix: &Matrix, rows: &[Compared<'_>]) -> String {
    let mut out = format!("{}\n", matrix.title);
    for group in groups(rows) {
        let rows: Vec<&Compared<'_>> = rows.iter().filter(|compared| compared.row.group == group).collect();
        out += &format!("\n{group}\n\n{}\n{}", verdicts(&rows), runs(&rows));
    }
    let mut choices: Vec<&Compared<'_>> = rows.iter().filter(|compared| compared.row.choice.is_some()).collect();
    choices.sort_by_key(|compared| &compared.row.choice);
    if !choices.is_empty() {
        out += &format!("\nThe choices\n\n{}", chosen(&choices));
    }
    for row in rows.iter().filter(|row| row.contradicts()) {
        out += &format!("\n! {}: it holds, and yet went wrong in a run\n", row.row.name);
    }
    if !matrix.notes.is_empty() {
        out.push('\n');
        out += &matrix.notes.join("\n");
        out.push('\n');
    }
    out
}

fn groups<'m>(rows: &[Compared<'m>]) -> Vec<&'m str> {
    let mut groups: Vec<&str> = Vec::new();
    for compared in rows {
        if !groups.contains(&compared.row.group.as_str()) {
            groups.push(&compared.row.group);
        }
    }
    groups
}

fn verdicts(rows: &[&Compared<'_>]) -> String {
    let cells = rows.iter().map(|compared| {
        let Compared { row, explored, played, measured } = compared;
        vec![
            row.name.clone(),
            row.title.clone(),
            verdict(explored),
            played.corrupt().text(),
            format!("{} of {}", played.runs_without(), played.runs()),
            measured.as_ref().map_or("-".to_owned(), |measured| measured.corrupt.text()),
            row.reported.clone().unwrap_or_default(),
        ]
    });
    let header = ["row", "configuration", "explorer", "corrupt, simulated", "runs without", "measured", "reported"];
    table(&header, &cells.collect::<Vec<_>>())
}

/// `holds, 14752 states`, or `VIOLATED in 65 steps, reads-see-own-content`.
fn verdict(explored: &Explored) -> String {
    match (explored.verdict, explored.shown()) {
        (Verdict::Violated, Some((property, steps))) => format!("VIOLATED in {steps} steps, {property}"),
        (Verdict::Violated, None) => "VIOLATED".to_owned(),
        (Verdict::Holds, _) => format!("holds, {} states", explored.states),
        (Verdict::Inconclusive { ran_out_of: Limit::States }, _) => "ran out of states".to_owned(),
        (Verdict::Inconclusive { ran_out_of: Limit::Memory }, _) => "ran out of memory".to_owned(),
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:02}", ns / 1_000_000_000, ns / 10_000_000 % 100)
}

fn tenths(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 1000, thousandths / 100 % 10)
}

fn runs(rows: &[&Compared<'_>]) -> String {
    let cells = rows.iter().map(|compared| {
        let played = &compared.played;
        let mut cells = vec![compared.row.name.clone()];
        let sessions = [played.corrupt().of, played.ok(), played.corrupt().count, played.stuck(), played.timeout()];
        cells.extend(sessions.map(|count| count.to_string()));
        cells.push(played.error().to_string());
        cells.push(played.lost_pages().to_string());
        cells.extend(played.first_token_ns().map(seconds));
        cells.push(seconds(played.end_to_end_ns()));
        cells.push(tenths(played.tokens_per_1000_s()));
        cells.push(format!("{}.{:02}", played.reused_per_10k() / 10_000, played.reused_per_10k() / 100 % 100));
        cells
    });
    let header = [
        "simulated",
        "sessions",
        "ok",
        "corrupt",
        "stuck",
        "timeout",
        "error",
        "lost pages",
        "first token p50 s",
        "p99 s",
        "answer p50 s",
        "tokens/s",
        "reused",
    ];
    table(&header, &cells.collect::<Vec<_>>())
}

fn chosen(choices: &[&Compared<'_>]) -> String {
    let line = |name: &str, of: &dyn Fn(&Compared<'_>) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(choices.iter().map(|compared| of(compared)));
        cells
    };
    let lines = [
        line("row", &|compared| compared.row.name.clone()),
        line("explorer", &|compared| verdict(&compared.explored)),
        line("corrupt, simulated", &|compared| compared.played.corrupt().text()),
        line("timeouts, simulated", &|compared| {
            format!("{} of {}", compared.played.timeout(), compared.played.corrupt().of)
        }),
        line("first token p50, p99 s", &|compared| compared.played.first_token_ns().map(seconds).join(", ")),
        line("answer tokens a second", &|compared| tenths(compared.played.tokens_per_1000_s())),
        line("reported", &|compared| compared.row.reported.clone().unwrap_or_default()),
    ];
    let mut header = vec![""];
    header.extend(choices.iter().filter_map(|compared| compared.row.choice.as_deref()));
    table(&header, &lines)
}
