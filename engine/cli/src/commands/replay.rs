//! `kvweft replay`.

use std::process::ExitCode;

use kvweft_check::record::{Impossible, Replayed, ReplayedStep, replay};
use kvweft_core::RuleSet;
use kvweft_trace::TraceFile;

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::{input, json, output};

/// Runs the command.
pub(crate) fn run(args: &args::Replay) -> Result<ExitCode, Failure> {
    let traced = input::trace(&args.trace, args.scenario.as_ref())?;
    let drops = if args.all_rules { RuleSet::EMPTY } else { traced.drops };
    let result = replay(&traced.world(drops), &traced.file);
    let violated = matches!(&result, Ok(replayed) if replayed.violation.is_some());
    match args.format {
        Format::Text => output::result(&text(&traced.file, &result))?,
        Format::Json => output::result(&json::replay(&traced.file, &result))?,
    }
    Ok(ExitCode::from(u8::from(!violated)))
}

fn text(file: &TraceFile, result: &Result<Replayed, Box<Impossible>>) -> String {
    let mut out = String::new();
    match result {
        Ok(replayed) => {
            out += &steps(file, &replayed.steps);
            out += &match &replayed.violation {
                Some(violation) => format!("violated, as recorded: {}: {}\n", violation.property, violation.detail),
                None => format!("not violated: every step could be taken, and {} holds\n", file.violates),
            };
        }
        Err(impossible) => {
            out += &steps(file, &impossible.before);
            out += &format!("{impossible}\n");
        }
    }
    out
}

fn steps(file: &TraceFile, steps: &[ReplayedStep]) -> String {
    let mut out = String::new();
    let mut before: &[(String, String)] = &[];
    for (i, (line, step)) in file.steps.iter().zip(steps).enumerate() {
        out += &format!("{:>3}  {:<10} {}\n", i + 1, line.actor, line.action);
        if !step.result.is_empty() {
            out += &format!("       {}\n", step.result);
        }
        for (page, cells) in step.memory.iter().filter(|page| !before.contains(page)) {
            out += &format!("       {page}: {cells}\n");
        }
        for violation in &step.violations {
            out += &format!("       ! {}: {}\n", violation.property, violation.detail);
        }
        before = &step.memory;
    }
    out
}
