//! The arguments of `sweep` and `merge`.

use std::path::PathBuf;

use kvweft_check::sweep::Shard;

use super::{Grain, Walk, Walks, size};

/// What is explained below the options.
pub(super) const EXIT_CODES: &str = "Exit codes: 0 as expected, 1 a check broke what it should not, 2 bad input, \
                                     3 a check was inconclusive, or cells are missing.";

#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    /// Built-in scenarios by name, scenario files, or folders of them; all built-in ones if none is named.
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    /// Only scenarios with this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Check with no rule dropped, and with each rule at each of its sites dropped alone.
    #[arg(long)]
    pub(crate) each_rule: bool,
    /// Check with this rule alone dropped. May be given several times.
    #[arg(long, value_name = "RULE[@SITE]", conflicts_with = "each_rule")]
    pub(crate) drop: Vec<String>,
    /// Walk at random in place of a search.
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) walk: Option<Walk>,
    #[command(flatten)]
    pub(crate) walks: Walks,
    /// With --walk: so many seeds, from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "walk", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// How finely operations are cut into steps, in place of what the scenarios say.
    #[arg(long)]
    pub(crate) grain: Option<Grain>,
    /// Give up after so many states of one world.
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_states: u64,
    /// Give up when the tables of one world grow beyond this, for instance 512M or 4G.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size)]
    pub(crate) max_memory: u64,
    /// Worker threads. Changes nothing but the speed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// Check only the K-th of N parts, counted from 1.
    #[arg(long, value_name = "K/N", default_value = "1/1", value_parser = shard)]
    pub(crate) shard: Shard,
    /// Write the results to this file in place of standard output. It appears when all of them are there.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Merge {
    /// Results of shards of one sweep, or of the seeds of one simulation, in any order; merged results too.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the results to this file in place of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

pub(super) fn shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse::<u64>().ok()?, n.parse::<u64>().ok()?)));
    match numbers {
        Some((k, n)) if (1..=n).contains(&k) && n <= 1_000_000 => Ok(Shard { index: k - 1, count: n }),
        _ => Err("expected K/N with 1 <= K <= N <= 1000000, as in 3/16".to_owned()),
    }
}
