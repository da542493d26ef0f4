//! `kvweft simulate`.

mod choose;
mod document;
mod text;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kvweft_sim::{Report, Settings, Workload, simulate};

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output;

/// What a run plays, and what people call it.
struct Chosen {
    workload: Workload,
    /// The log, or `agents`.
    name: String,
    settings: Settings,
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
    let runs = sweep(&chosen, args);
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

/// Every seed, on as many threads as there are; in the order of the seeds, whichever is done first.
fn sweep(chosen: &Chosen, args: &args::Simulate) -> Vec<Run> {
    let seeds: Vec<u64> = (0..u64::from(args.seeds)).map(|more| args.seed.wrapping_add(more)).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from).min(seeds.len());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Run)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let at = seeds.iter().position(|known| *known == seed).expect("it is one of them");
                    let settings = Settings { seed, ..chosen.settings.clone() };
                    let report = simulate(&chosen.workload, &settings).expect("checked before");
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, Run { seed, report }));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, run)| run).collect()
}
