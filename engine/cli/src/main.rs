//! The command line of kvweft.
//!
//! Results go to standard output, progress, rates and warnings to standard error. Exit codes: 0 as expected, 1 not as
//! expected, 2 bad input, 3 inconclusive.

mod args;
mod commands;
mod coverage;
mod failure;
mod input;
mod json;
mod table;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::Failure;

fn main() -> ExitCode {
    // A reader that has seen enough closes the pipe: that ends the program, and is no defect of it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if text.contains("failed printing to stdout") {
            std::process::exit(0);
        }
        hook(info);
    }));
    let args = Args::parse();
    let result = match &args.command {
        Command::Check(check) => commands::check::run(check),
        Command::Replay(replay) => commands::replay::run(replay),
        Command::Shrink(shrink) => commands::shrink::run(shrink),
        Command::Step(step) => commands::step::run(step),
        Command::Render(render) => commands::render::run(render),
        Command::List(list) => commands::list::run(list),
        Command::Completions { shell } => {
            commands::meta::completions(*shell);
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => commands::meta::man(),
    };
    result.unwrap_or_else(|failure: Failure| {
        eprintln!("{failure}");
        ExitCode::from(2)
    })
}
