//! The arguments of `kvweft exposure`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use super::Format;

pub(super) const EXIT_CODES: &str = "Exit codes: 0 when everything was simulated, 2 for bad input.";

#[derive(Debug, clap::Args)]
pub(crate) struct Exposure {
    /// A matrix with a table `exposure`, or the name of a built-in one; docs/exposure.md describes it.
    #[arg(value_name = "MATRIX", default_value = "case")]
    pub(crate) matrix: String,
    /// Simulated runs of each point, in place of what the matrix says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) seeds: Option<u32>,
    /// Draw the shares over the speed of the link to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Worker threads. Changes nothing but the speed. The default is one a core.
    #[arg(long, value_name = "N", value_parser = super::threads)]
    pub(crate) threads: Option<NonZeroU16>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}
