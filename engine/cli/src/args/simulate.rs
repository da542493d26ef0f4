//! The arguments of `kvweft simulate`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use kvweft_check::sweep::Shard;

use super::{Format, IndexK, Switch};

pub(super) const EXIT_CODES: &str = "Exit codes: 0 if every session is ok, everything adds up and nothing is stuck or leaked, 1 if not, 2 for bad input.";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Simulate {
    /// A request log (Mooncake, packed agent sessions, AgenticMooncake v2), the name of a built-in head of one, or `agents`
    /// for agents that do not exist.
    #[arg(value_name = "WORKLOAD", default_value = "agents")]
    pub(crate) workload: String,
    /// What things cost: a built-in profile, or a profile file.
    #[arg(long, value_name = "PROFILE", default_value = "h200x8")]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) clients: Clients,
    #[command(flatten)]
    pub(crate) faults: Faults,
    #[command(flatten)]
    pub(crate) agents: Agents,
    /// Decides what is left to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// So many runs, with seeds from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: u32,
    /// Draw first tokens and pools over virtual time to this file, as SVG; with several seeds, those of the first.
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub(crate) plot: Option<PathBuf>,
    /// Write each seed as a line of JSON to this file, which `kvweft merge` takes, in place of standard output. It appears when
    /// all of them are there.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Simulate only the K-th of N parts of the seeds, counted from 1.
    #[arg(long, value_name = "K/N", requires = "out", value_parser = super::sweep::shard)]
    pub(crate) shard: Option<Shard>,
    /// Worker threads for several seeds. Changes nothing but the speed. The default is one a core.
    #[arg(long, value_name = "N", value_parser = super::threads)]
    pub(crate) threads: Option<NonZeroU16>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

/// The engines.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engines")]
pub(crate) struct Engine {
    /// A built-in model geometry, or a model file.
    #[arg(long, value_name = "NAME", default_value = "deepseek-v3.2")]
    pub(crate) model: String,
    /// How index keys are stored. The default is what the model file says.
    #[arg(long, value_name = "DTYPE")]
    pub(crate) index_k: Option<IndexK>,
    /// Pages of the device pool.
    #[arg(long, value_name = "N", default_value_t = 15_625, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) device_pages: u32,
    /// Pages of the host pool; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 187_500, value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub(crate) host_pages: u32,
    /// A prefill and a decode engine in place of one that does both.
    #[arg(long)]
    pub(crate) split: bool,
    /// Pages of the decode engine, with --split. The default is that of the device pool.
    #[arg(long, value_name = "N", requires = "split", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) decode_pages: Option<u32>,
    /// Whether finished blocks are kept, on the device and in host memory.
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    pub(crate) cache: Switch,
    /// Drop this rule, everywhere or at one site. May be given several times.
    #[arg(long, value_name = "RULE[@SITE]")]
    pub(crate) drop: Vec<String>,
    /// Pages of a prompt that one step computes at most; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub(crate) chunk_pages: u32,
    /// Answers that one step continues at most.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) batch_max: u32,
    /// Requests that wait for pages inside the manager at most; the others wait before it.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) queue_max: u32,
    /// The engine gives a wait for its peer up after so long.
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub(crate) deadline_ms: u64,
}

/// The clients.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Clients")]
pub(crate) struct Clients {
    /// Sessions that run at once; 0 starts each at its time in the workload. The default is 80 for agents and agent
    /// sessions, 0 for the other logs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) concurrency: Option<u32>,
    /// The first N sessions of the log, or so many agents. The default is the whole log, and 80 agents.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) sessions: Option<u32>,
    /// Whether agents think between two requests, as the workload says.
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    pub(crate) think: Switch,
    /// A client goes away after so long; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub(crate) timeout_ms: u64,
}

/// What is made to go wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Faults, by chance as the seed decides")]
pub(crate) struct Faults {
    /// Of a thousand messages between the engines, so many are lost, with --split.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) lose_permille: u32,
    /// Of a thousand parts of transfers between the engines, so many fail when they should be done, with --split.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) fail_permille: u32,
    /// The clients of so many of a thousand requests go away of their own accord.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) leave_permille: u32,
    /// They do so at any time up to this, from when they asked.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub(crate) leave_ms: u64,
}

/// Agents that do not exist.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Agents, where no log is named")]
pub(crate) struct Agents {
    /// Requests of each session.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Tokens of the system prompt that all share.
    #[arg(long, value_name = "N", default_value_t = 8_192, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) system_tokens: u32,
    /// Tokens of the first text of a session.
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) first_tokens: u32,
    /// Tokens of every later text.
    #[arg(long, value_name = "N", default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) round_tokens: u32,
    /// Tokens of every answer.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) answer_tokens: u32,
    /// Time between an answer and the next request: half to one and a half of it.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub(crate) think_ms: u64,
    /// Time between the arrivals of two sessions, with --concurrency 0.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub(crate) arrival_ms: u64,
}
