//! Completions and the man page.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::Args;
use crate::failure::Failure;

/// Prints completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Args::command(), "kvweft", &mut std::io::stdout());
}

/// Prints the man page.
pub(crate) fn man() -> Result<ExitCode, Failure> {
    let mut page = Vec::new();
    let failed = |error: std::io::Error| Failure::io(Path::new("<standard output>"), "write the man page", &error);
    clap_mangen::Man::new(Args::command()).render(&mut page).map_err(failed)?;
    std::io::stdout().write_all(&page).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
