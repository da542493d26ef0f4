//! `kvweft check --plan`.

use std::process::ExitCode;

use kvweft_check::extent::Extent;
use kvweft_check::grow::plan;
use kvweft_check::plan::Estimate;
use kvweft_check::scenario::Scenario;
use kvweft_check::verdict::Settings;

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::{json, output, table};

/// Runs the command.
pub(crate) fn run(args: &args::Check, scenarios: &[Scenario], settings: &Settings) -> Result<ExitCode, Failure> {
    let estimates: Vec<Estimate> = scenarios.iter().map(|scenario| plan(scenario, settings)).collect();
    match args.format {
        Format::Text => {
            let row = |(scenario, estimate): (&Scenario, &Estimate)| {
                vec![scenario.name.clone(), states(estimate), bytes(estimate.table_bytes), Extent(scenario).to_string()]
            };
            let rows: Vec<Vec<String>> = scenarios.iter().zip(&estimates).map(row).collect();
            output::result(&table::table(&["scenario", "states", "tables", "of"], &rows))?;
        }
        Format::Json => output::result(&json::plan(scenarios, &estimates))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A number of states, to two digits where it is a guess.
pub(crate) fn states(estimate: &Estimate) -> String {
    if estimate.exact {
        return format!("{} states", estimate.states);
    }
    let mut unit = 1;
    while estimate.states / unit >= 100 {
        unit *= 10;
    }
    format!("about {} states", estimate.states / unit * unit)
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{}K", bytes.div_ceil(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{}M", bytes.div_ceil(1 << 20)),
        _ => format!("{}G", bytes.div_ceil(1 << 30)),
    }
}
