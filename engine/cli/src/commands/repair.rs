//! `kvweft repair`.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use kvweft_check::repair::{Kept, Repair, Repaired, repair};
use kvweft_check::scenario::Scenario;
use kvweft_check::verdict::{Cause, Settings};

use crate::args::{self, Format};
use crate::commands::check::write_cause;
use crate::failure::Failure;
use crate::progress::Shown;
use crate::{input, json, output, table};

/// Runs the command.
pub(crate) fn run(args: &args::Repair) -> Result<ExitCode, Failure> {
    let settings = input::settings(&args.search)?;
    let scenario = input::one_scenario(&args.scenario)?;
    let shown = Shown::new(1, 1, &scenario.name, args.search.max_memory);
    let found = repair(&scenario, &settings, &|progress| shown.show(progress));
    shown.clear();
    let found = found.map_err(|why| Failure::Repair { scenario: scenario.name.clone(), why })?;
    if let Some(folder) = &args.out {
        write_traces(folder, &scenario, &found, &settings)?;
    }
    match args.format {
        Format::Text => output::result(&text(&scenario, &found))?,
        Format::Json => output::result(&json::repair(&scenario, &found, &settings))?,
    }
    Ok(match (found.unknown.is_empty(), found.whole.is_empty()) {
        (false, _) => ExitCode::from(3),
        (true, true) => ExitCode::from(1),
        (true, false) => ExitCode::SUCCESS,
    })
}

fn text(scenario: &Scenario, found: &Repair) -> String {
    let mut out = format!(
        "{}: all {} sets of {} dropped rules searched, {} states\n\n",
        scenario.name,
        found.sets,
        found.drops.len(),
        found.states
    );
    let traces: Vec<&Cause> = found.properties.iter().flat_map(|repaired| &repaired.breaking).collect();
    if traces.is_empty() {
        out += "no set breaks anything\n";
    } else {
        let row = |(at, cause): (usize, &&Cause)| {
            vec![
                format!("T{}", at + 1),
                cause.trace.violation.property.to_owned(),
                cause.trace.steps.len().to_string(),
                joined(&cause.drops),
            ]
        };
        let rows: Vec<Vec<String>> = traces.iter().enumerate().map(row).collect();
        out += &table::table(&["trace", "breaks", "steps", "when all of these are dropped"], &rows);
    }
    out += "\n";
    let mut rows = Vec::new();
    let mut first = 1;
    for repaired in &found.properties {
        let removes = (first..first + repaired.breaking.len()).map(|at| format!("T{at}")).collect::<Vec<_>>();
        first += repaired.breaking.len();
        rows.extend(repaired.kept.iter().filter(|kept| !kept.rules.is_empty()).map(|kept| {
            vec![repaired.property.to_owned(), removes.join(" "), joined_or_none(&kept.undone_by), joined(&kept.rules)]
        }));
    }
    rows.extend(found.whole.iter().map(|kept: &Kept| {
        vec!["everything".to_owned(), "all".to_owned(), joined_or_none(&kept.undone_by), joined(&kept.rules)]
    }));
    if !rows.is_empty() {
        out += &table::table(&["makes hold", "removes", "undone by", "when all of these are kept"], &rows);
    }
    out += &conclusion(found);
    out
}

fn conclusion(found: &Repair) -> String {
    let mut out = String::new();
    for Repaired { property, .. } in found.properties.iter().filter(|repaired| !repaired.as_written) {
        let _ = writeln!(out, "\n{property} holds as written, and breaks when some of the rules are kept again");
    }
    match found.groups.as_slice() {
        [] => {}
        [_] => out += "\nall symptoms hang together: their minimal sets share rules\n",
        groups => {
            let _ = writeln!(
                out,
                "\n{} groups of symptoms that share no rule, so their causes are separate:",
                groups.len()
            );
            for group in groups {
                let _ = writeln!(out, "  {}\n    because of {}", group.properties.join(" "), group.rules.join(" "));
            }
        }
    }
    if found.whole.is_empty() && found.unknown.is_empty() {
        out += "\nno set of the dropped rules makes everything hold: look for a cause beside them\n";
    }
    for set in &found.unknown {
        let _ = writeln!(out, "\ncut off with {} dropped: what rests on that search is unknown", joined(set));
    }
    out
}

fn joined(rules: &[String]) -> String {
    if rules.is_empty() { "(none)".to_owned() } else { rules.join(" ") }
}

fn joined_or_none(rules: &[String]) -> String {
    if rules.is_empty() { "-".to_owned() } else { rules.join(" ") }
}

/// One trace and one drawing per property and minimal breaking set.
fn write_traces(folder: &Path, scenario: &Scenario, found: &Repair, settings: &Settings) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the folder", &error))?;
    for cause in found.properties.iter().flat_map(|repaired| &repaired.breaking) {
        let name = format!("{}.{}.{}", scenario.name, cause.trace.violation.property, cause.drops.join("+"));
        write_cause(folder, &name, scenario, cause, settings.grain)?;
    }
    Ok(())
}
