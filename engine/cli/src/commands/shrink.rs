//! `kvweft shrink`.

use std::process::ExitCode;

use kvweft_check::record::{Origin, record, replay};
use kvweft_check::shrink::shrink;
use kvweft_check::trace::Trace;

use crate::args;
use crate::failure::Failure;
use crate::{input, output};

/// Runs the command.
pub(crate) fn run(args: &args::Shrink) -> Result<ExitCode, Failure> {
    let traced = input::trace(&args.trace, args.scenario.as_ref())?;
    let system = traced.world(traced.drops);
    let replayed = match replay(&system, &traced.file) {
        Ok(replayed) => replayed,
        Err(impossible) => {
            output::note(&format!("error: the trace cannot be replayed, so it cannot be shrunk\n{impossible}"));
            return Ok(ExitCode::from(1));
        }
    };
    if replayed.violation.is_none() {
        output::note(&format!(
            "error: the trace does not violate {}, so there is nothing to shrink",
            traced.file.violates
        ));
        return Ok(ExitCode::from(1));
    }
    let shrunk = shrink(&system, &replayed.actions, &traced.file.violates);
    let Some(violation) = shrunk.violation else {
        output::note(&format!(
            "note: {} is broken by what never happens, not by a step: the trace stays as it is",
            traced.file.violates
        ));
        write(args, &traced.file.to_string())?;
        return Ok(ExitCode::SUCCESS);
    };
    let origin = Origin {
        scenario: traced.scenario.name.clone(),
        digest: traced.scenario.digest(),
        drops: traced.file.drops.clone(),
    };
    output::note(&format!(
        "{} steps shrunk to {} in {} replays",
        replayed.actions.len(),
        shrunk.actions.len(),
        shrunk.replays
    ));
    let trace = Trace { initial: 0, steps: shrunk.actions, violation, dooming_step: None, loop_from: None };
    write(args, &record(&system, &trace, &origin).to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn write(args: &args::Shrink, text: &str) -> Result<(), Failure> {
    match &args.out {
        Some(path) => output::to_file(path, "the trace", text),
        None => output::result(text),
    }
}
