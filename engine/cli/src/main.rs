//! The command line of kvweft.
//!
//! Results go to standard output, progress, rates and warnings to standard error. Exit codes: 0 as expected, 1 not as
//! expected, 2 bad input or a result that cannot be written, 3 inconclusive, 130 interrupted. A reader that closes the
//! pipe ends the program with 0: it has seen enough.

mod args;
mod commands;
mod coverage;
mod failure;
mod input;
mod json;
mod out;
mod output;
mod parallel;
mod plot;
mod progress;
mod results;
mod share;
mod table;
mod typed;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&failure.to_string());
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return Err(Failure::Usage(error.render().to_string())),
        Err(help_or_version) => {
            output::result(&help_or_version.render().to_string())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    match &args.command {
        Command::Check(check) => commands::check::run(check),
        Command::Repair(repair) => commands::repair::run(repair),
        Command::Sweep(sweep) => commands::sweep::run(sweep),
        Command::Merge(merge) => commands::sweep::merge(merge),
        Command::Replay(replay) => commands::replay::run(replay),
        Command::Shrink(shrink) => commands::shrink::run(shrink),
        Command::Step(step) => commands::step::run(step),
        Command::Render(render) => commands::render::run(render),
        Command::Run(run) => commands::run::run(run),
        Command::Simulate(simulate) => commands::simulate::run(simulate),
        Command::Compare(compare) => commands::compare::run(compare),
        Command::Exposure(exposure) => commands::exposure::run(exposure),
        Command::Hits(hits) => commands::hits::run(hits),
        Command::Import(import) => commands::import::run(import),
        Command::Redact(redact) => commands::redact::run(redact),
        Command::Conform(conform) => commands::conform::run(conform),
        Command::Selftest(selftest) => commands::selftest::run(selftest),
        Command::Bench(bench) => commands::bench::run(bench),
        Command::List(list) => commands::list::run(list),
        Command::Completions { shell } => commands::meta::completions(*shell),
        Command::Man => commands::meta::man(),
    }
}
