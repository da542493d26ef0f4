//! The arguments of `kvweft hits`.

use std::num::NonZeroU16;

use super::Format;

pub(super) const EXIT_CODES: &str = "Exit codes: 0 when everything was counted, 2 for bad input.";

#[derive(Debug, clap::Args)]
pub(crate) struct Hits {
    /// A request log (Mooncake, packed agent sessions, AgenticMooncake v2), or the name of a built-in head of one.
    #[arg(value_name = "LOG")]
    pub(crate) log: String,
    /// The size of a cache, in tokens. May be given several times.
    #[arg(long, value_name = "N", default_values_t = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000], value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tokens: Vec<u64>,
    /// The first N sessions of the log.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) sessions: Option<u32>,
    /// Worker threads. Changes nothing but the speed. The default is one a core.
    #[arg(long, value_name = "N", value_parser = super::threads)]
    pub(crate) threads: Option<NonZeroU16>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}
