//! `kvweft simulate`.

mod chart;
pub(crate) mod choose;
mod document;
mod text;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use kvweft_sim::report::Stuck;
use kvweft_sim::{Report, Settings, Timeline, Workload, simulate, simulate_with_timeline};

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output;
use crate::parallel::in_parallel;
use crate::results::Results;

/// What a run plays, and what people call it.
pub(crate) struct Chosen {
    pub(crate) workload: Workload,
    /// The log, or `agents`.
    name: String,
    /// Equal for equal logs.
    digest: u64,
    pub(crate) settings: Settings,
    model: String,
    dropped: Vec<String>,
}

/// One run.
struct Run {
    seed: u64,
    report: Report,
    /// What happened when, of the run that is drawn.
    timeline: Option<Timeline>,
}

impl Run {
    /// Whether every session is ok, everything adds up, and nothing is stuck or leaked.
    fn is_fine(&self) -> bool {
        let Report { sessions, conservation, stuck, .. } = &self.report;
        sessions.all_ok() && conservation.holds() && *stuck == Stuck::default()
    }
}

/// Runs the command.
pub(crate) fn run(args: &args::Simulate) -> Result<ExitCode, Failure> {
    let chosen = choose::choose(args)?;
    chosen.settings.check(&chosen.workload).map_err(|why| Failure::Run(why.to_string()))?;
    let began = Instant::now();
    let seeds = seeds(args);
    let runs = every_seed(&chosen, args, &seeds);
    let took = began.elapsed().as_secs_f64().max(1e-9);
    let requests: u64 = runs.iter().map(|run| run.report.requests.submitted).sum();
    output::note(&format!("{requests} requests in {took:.2} s, {:.0} a second", requests as f64 / took));
    if let Some(path) = &args.out {
        let cells = seeds.iter().zip(&runs).map(|((cell, _), run)| (*cell, document::line(*cell, run))).collect();
        let results = Results { header: document::header(&chosen, args), cells };
        results.write(Some(path))?;
        return Ok(results.exit_code(false));
    }
    if let Some(path) = &args.plot {
        draw(path, &chosen, &runs)?;
    }
    output::result(&match args.format {
        Format::Text => text::text(&chosen, &runs),
        Format::Json => document::document(&chosen, &runs),
    })?;
    Ok(ExitCode::from(u8::from(!runs.iter().all(Run::is_fine))))
}

/// The seeds of the shard, each with its number among all.
fn seeds(args: &args::Simulate) -> Vec<(u64, u64)> {
    let all = (0..u64::from(args.seeds)).map(|cell| (cell, args.seed.wrapping_add(cell)));
    all.filter(|(cell, _)| args.shard.is_none_or(|shard| cell % shard.count == shard.index)).collect()
}

/// Every seed, in the order of the seeds.
fn every_seed(chosen: &Chosen, args: &args::Simulate, seeds: &[(u64, u64)]) -> Vec<Run> {
    in_parallel(seeds, args.threads, |&(_, seed)| {
        let settings = Settings { seed, ..chosen.settings.clone() };
        if args.plot.is_some() && seed == args.seed {
            let (report, timeline) = simulate_with_timeline(&chosen.workload, &settings).expect("checked before");
            return Run { seed, report, timeline: Some(timeline) };
        }
        Run { seed, report: simulate(&chosen.workload, &settings).expect("checked before"), timeline: None }
    })
}

/// Draws the first run.
fn draw(path: &Path, chosen: &Chosen, runs: &[Run]) -> Result<(), Failure> {
    let Some((Run { seed, report, .. }, timeline)) = runs.iter().find_map(|run| Some((run, run.timeline.as_ref()?)))
    else {
        return Ok(());
    };
    if runs.len() > 1 {
        output::note(&format!("note: {} shows seed {seed} alone, of {} runs", path.display(), runs.len()));
    }
    let chart = chart::chart(chosen, timeline, report.elapsed_ns, *seed, runs.len());
    std::fs::write(path, chart).map_err(|error| Failure::io(path, "write the chart", &error))
}
