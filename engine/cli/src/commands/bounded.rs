//! `kvweft check --walk`, `--delays` and `--preemptions`: less than a search of everything, and no claim beyond what was seen.

use std::path::Path;
use std::process::ExitCode;

use kvweft_check::bounded::{Bound, Bounded, bounded};
use kvweft_check::deviations::Deviation;
use kvweft_check::scenario::Scenario;
use kvweft_check::verdict::Settings;
use kvweft_check::walk::{Strategy, Walks};

use crate::args::{self, Format};
use crate::commands::check::write_cause;
use crate::failure::Failure;
use crate::progress::Shown;
use crate::{json, output, table};

/// How far to go, if not all the way.
pub(crate) fn bound(args: &args::Check) -> Option<Bound> {
    let delays = args.delays.map(|most| Bound::Deviations(Deviation::Delay, most));
    let preemptions = args.preemptions.map(|most| Bound::Deviations(Deviation::Preemption, most));
    delays.or(preemptions).or(args.walk.map(|walk| Bound::Walks(walks(walk, args.walks))))
}

/// What to walk.
pub(crate) fn walks(walk: args::Walk, how: args::Walks) -> Walks {
    let strategy = match walk {
        args::Walk::Random => Strategy::Random,
        args::Walk::Urw => Strategy::Urw,
        args::Walk::Pct => Strategy::Pct { depth: how.pct_depth },
    };
    Walks { strategy, seed: how.seed, walks: how.walks, steps_max: how.depth }
}

/// Runs the command.
pub(crate) fn run(
    args: &args::Check,
    scenarios: &[Scenario],
    settings: &Settings,
    bound: Bound,
) -> Result<ExitCode, Failure> {
    let mut all = Vec::new();
    for (at, scenario) in scenarios.iter().enumerate() {
        let shown = Shown::new(at + 1, scenarios.len(), &scenario.name, args.search.max_memory);
        let found = bounded(scenario, settings, bound, &|progress| shown.show(progress));
        shown.clear();
        if let Some(folder) = &args.out {
            write(folder, scenario, &found, settings)?;
        }
        all.push(found);
    }
    match args.format {
        Format::Text => output::result(&text(scenarios, &all))?,
        Format::Json => output::result(&json::bounded(scenarios, &all, settings))?,
    }
    let expected = |(scenario, found): (&Scenario, &Bounded)| {
        let expect = scenario.expect.as_ref().filter(|_| settings.drop.is_none());
        let known = |property: &String| expect.is_some_and(|expect| expect.violates.contains(property));
        found.causes.iter().all(|cause| known(&cause.file.violates))
    };
    Ok(if !scenarios.iter().zip(&all).all(expected) {
        ExitCode::from(1)
    } else if all.iter().any(|found| found.causes.is_empty()) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    })
}

fn write(folder: &Path, scenario: &Scenario, found: &Bounded, settings: &Settings) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the folder", &error))?;
    for cause in &found.causes {
        let name = format!("{}.{}", scenario.name, cause.file.violates);
        write_cause(folder, &name, scenario, cause, settings.grain)?;
    }
    Ok(())
}

fn text(scenarios: &[Scenario], all: &[Bounded]) -> String {
    let mut rows = Vec::new();
    for (scenario, found) in scenarios.iter().zip(all) {
        for cause in &found.causes {
            let steps = cause.trace.steps.len().to_string();
            rows.push(vec![scenario.name.clone(), cause.file.violates.clone(), steps, found.drops.join(" ")]);
        }
        if found.causes.is_empty() {
            rows.push(vec![scenario.name.clone(), "(nothing found)".to_owned(), String::new(), found.drops.join(" ")]);
        }
    }
    let mut out = table::table(&["scenario", "violates", "steps", "dropped"], &rows) + "\n";
    for (scenario, found) in scenarios.iter().zip(all) {
        out += &format!("{}: {}\n", scenario.name, found.covered);
    }
    out
}
