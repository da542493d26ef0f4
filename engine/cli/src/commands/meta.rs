//! Completions and the man page.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::Args;
use crate::failure::Failure;
use crate::output;

/// Prints completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kvweft", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page.
pub(crate) fn man() -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::Output(error.to_string());
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page).map_err(failed)?;
    output::result(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}
