//! The arguments of `kvweft compare`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use super::Format;

pub(super) const EXIT_CODES: &str = "Exit codes: 0 if the instruments agree, 1 if a configuration that holds went wrong \
    in a run, or a run does not add up, 2 for bad input, 3 if a search was cut off.";

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// A matrix of configurations, or the name of a built-in one; docs/compare.md describes them.
    #[arg(value_name = "MATRIX", default_value = "case")]
    pub(crate) matrix: String,
    /// Simulated runs of each configuration, in place of what the matrix says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) seeds: Option<u32>,
    /// A real run of a configuration: its run.json, or the folder that holds it. May be given several times.
    #[arg(long, value_name = "ROW=RUN", value_parser = measured)]
    pub(crate) run: Vec<(String, PathBuf)>,
    /// Worker threads. Changes nothing but the speed. The default is one a core.
    #[arg(long, value_name = "N", value_parser = super::threads)]
    pub(crate) threads: Option<NonZeroU16>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

fn measured(text: &str) -> Result<(String, PathBuf), String> {
    let (row, run) = text.split_once('=').ok_or("expected the name of a row, `=`, and a run.json or its folder")?;
    Ok((row.to_owned(), run.into()))
}
