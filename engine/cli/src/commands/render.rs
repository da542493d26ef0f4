//! `kvweft render`.

use std::process::ExitCode;

use kvweft_check::record::replay;
use kvweft_check::{graph, lanes};

use crate::args::{self, As};
use crate::failure::Failure;
use crate::{input, output};

/// Runs the command.
pub(crate) fn run(args: &args::Render) -> Result<ExitCode, Failure> {
    let traced = input::trace(&args.trace, args.scenario.as_ref())?;
    match args.as_ {
        As::Dot => output::result(&graph::trace_dot(&traced.file))?,
        As::Text => {
            let memory = match replay(&traced.world(traced.drops), &traced.file) {
                Ok(replayed) => replayed.steps,
                Err(impossible) => {
                    output::note(&format!("warning: drawn without memory, the trace cannot be replayed: {impossible}"));
                    Vec::new()
                }
            };
            let memory: Vec<_> = memory.into_iter().map(|step| step.memory).collect();
            output::result(&lanes::draw(&traced.file, &memory))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
