//! `kvweft check --grow`.

use std::process::ExitCode;

use kvweft_check::explore::{Outcome, Verdict};
use kvweft_check::grow::{Neighbours, grow};
use kvweft_check::scenario::Scenario;
use kvweft_check::verdict::Settings;
use kvweft_world::Action;

use crate::args::{self, Format};
use crate::commands::check::verdict;
use crate::failure::Failure;
use crate::progress::Shown;
use crate::{json, output, table};

/// Runs the command.
pub(crate) fn run(args: &args::Check, scenarios: &[Scenario], settings: &Settings) -> Result<ExitCode, Failure> {
    let mut all = Vec::new();
    for (at, scenario) in scenarios.iter().enumerate() {
        let shown = Shown::new(at + 1, scenarios.len(), &scenario.name, args.search.max_memory);
        all.push(grow(scenario, settings, &|progress| shown.show(progress)));
        shown.clear();
    }
    match args.format {
        Format::Text => {
            for (at, (scenario, neighbours)) in scenarios.iter().zip(&all).enumerate() {
                let gap = if at == 0 { "" } else { "\n" };
                output::result(&format!("{gap}{}", text(scenario, neighbours)))?;
            }
        }
        Format::Json => output::result(&json::grow(scenarios, &all, settings))?,
    }
    let outcomes = || all.iter().flat_map(|n| n.grown.iter().map(move |grown| (&n.as_written, &grown.outcome)));
    let worse = outcomes().any(|(before, after)| !new_violations(before, after).is_empty());
    let cut = outcomes().any(|(before, after)| !before.exhausted || !after.exhausted);
    Ok(if worse { ExitCode::from(1) } else { ExitCode::from(if cut { 3 } else { 0 }) })
}

/// What the larger world violates and the scenario's own does not.
fn new_violations(before: &Outcome<Action>, after: &Outcome<Action>) -> Vec<&'static str> {
    let properties = after.traces.iter().map(|trace| trace.violation.property);
    properties.filter(|property| before.trace(property).is_none()).collect()
}

fn text(scenario: &Scenario, neighbours: &Neighbours) -> String {
    let before = &neighbours.as_written;
    let row = |what: &str, of: String, outcome: &Outcome<Action>| {
        let (now, then) = (outcome.counts.states, before.counts.states.max(1));
        let more = if matches!(outcome.verdict, Verdict::Inconclusive { .. }) { "> " } else { "" };
        let times = format!("{more}{}.{}", now / then, now % then * 10 / then);
        vec![what.to_owned(), of, verdict(outcome), now.to_string(), times, new_violations(before, outcome).join(" ")]
    };
    let mut rows = vec![row("(as written)", String::new(), before)];
    for grown in &neighbours.grown {
        let of = format!("{} -> {}", grown.from, grown.from + 1);
        rows.push(row(grown.dimension.names().1, of, &grown.outcome));
    }
    table::table(&[&scenario.name, "from", "verdict", "states", "times", "violates too"], &rows)
}
