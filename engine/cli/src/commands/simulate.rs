//! `kvweft simulate`.

pub(crate) mod choose;
mod document;
mod text;

use std::process::ExitCode;
use std::time::Instant;

use kvweft_sim::{Report, Settings, Workload, simulate};

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output;
use crate::parallel::in_parallel;

/// What a run plays, and what people call it.
pub(crate) struct Chosen {
    pub(crate) workload: Workload,
    /// The log, or `agents`.
    name: String,
    pub(crate) settings: Settings,
    model: String,
    dropped: Vec<String>,
}

/// One run.
struct Run {
    seed: u64,
    report: Report,
}

/// Runs the command.
pub(crate) fn run(args: &args::Simulate) -> Result<ExitCode, Failure> {
    let chosen = choose::choose(args)?;
    chosen.settings.check(&chosen.workload).map_err(|why| Failure::Run(why.to_string()))?;
    let began = Instant::now();
    let runs = every_seed(&chosen, args);
    let took = began.elapsed().as_secs_f64().max(1e-9);
    let requests: u64 = runs.iter().map(|run| run.report.requests.submitted).sum();
    output::note(&format!("{requests} requests in {took:.2} s, {:.0} a second", requests as f64 / took));
    output::result(&match args.format {
        Format::Text => text::text(&chosen, &runs),
        Format::Json => document::document(&chosen, &runs),
    })?;
    let fine = runs.iter().all(|run| {
        let report = &run.report;
        report.sessions.ok == report.sessions.total && report.conservation.holds()
    });
    Ok(ExitCode::from(u8::from(!fine)))
}

/// Every seed, in the order of the seeds.
fn every_seed(chosen: &Chosen, args: &args::Simulate) -> Vec<Run> {
    let seeds: Vec<u64> = (0..u64::from(args.seeds)).map(|more| args.seed.wrapping_add(more)).collect();
    in_parallel(&seeds, args.threads, |&seed| {
        let settings = Settings { seed, ..chosen.settings.clone() };
        Run { seed, report: simulate(&chosen.workload, &settings).expect("checked before") }
    })
}
