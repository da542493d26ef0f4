//! The arguments of `kvweft run` and `kvweft conform`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{CopyBy, Format, Peer};
use crate::workload::keys;
use crate::workload::{Layers, Pool};

pub(super) const EXIT_CODES: &str = "Exit codes: 0 if every session is ok, 1 if some are not, 2 for bad input, or where \
    run.json or events.jsonl could not be written, 130 if it was interrupted.";
pub(super) const CONFORM_EXIT_CODES: &str = "Exit codes: 0 if it conforms, 1 if a line is not allowed, 2 if it is no \
    event log or cannot be read, 3 if it is cut off and conforms as far as it goes.";

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Where the engine runs.
    #[arg(long, default_value = "host")]
    pub(crate) on: Device,
    /// Which GPU, with `--on cuda`; with --split two, as in 0,1: for prefill and for decode.
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "0")]
    pub(crate) device: Vec<usize>,
    /// How bytes go from one GPU to the other one. Through the host, both may be the same.
    #[arg(long, default_value = "auto")]
    pub(crate) peer: Peer,
    /// Who makes reloads and offloads, with `--on cuda`.
    #[arg(long, default_value = "auto")]
    pub(crate) copy_by: CopyBy,
    /// Take what is not said here from this file, or from a built-in workload; docs/workloads.md describes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) workload: Option<String>,
    #[command(flatten)]
    pub(crate) played: Played,
    /// Write run.json and events.jsonl to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print how this run stands to another one: its run.json, or the folder that holds it.
    #[arg(long, value_name = "RUN")]
    pub(crate) beside: Option<PathBuf>,
    /// Write no events.jsonl.
    #[arg(long, requires = "out")]
    pub(crate) no_log: bool,
    /// Write over the complete run that the folder holds.
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

/// Everything that a workload file may say too.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is played")]
pub(crate) struct Played {
    /// Sessions that run at once. The default is 80.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::SESSIONS))]
    pub(crate) sessions: Option<u64>,
    /// Questions that each session asks, one after the other. The default is 6.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::ROUNDS))]
    pub(crate) rounds: Option<u64>,
    /// A built-in model geometry, or a model file. The default is deepseek-v3.2.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The first N layers of the model, or one layer of each kind of a list such as `window,c4`. The default is 2.
    #[arg(long, value_name = "N|KINDS", value_parser = keys::layers)]
    pub(crate) layers: Option<Layers>,
    /// How index keys are stored. The default is what the model file says.
    #[arg(long, value_name = "DTYPE")]
    pub(crate) index_k: Option<IndexK>,
    /// Whether finished blocks are kept, on the device and in host memory. The default is on.
    #[arg(long, value_name = "ON|OFF")]
    pub(crate) cache: Option<Switch>,
    /// A prefill and a decode engine in place of one that does both.
    #[arg(long)]
    pub(crate) split: bool,
    /// Drop this rule, everywhere or at one site. May be given several times.
    #[arg(long, value_name = "RULE[@SITE]")]
    pub(crate) drop: Vec<String>,
    /// Pages of the device pool, or a share of all sessions' pages at their longest. The default is 100%.
    #[arg(long, value_name = "N|P%", value_parser = keys::pool)]
    pub(crate) device_pages: Option<Pool>,
    /// Pages of the host pool, likewise.
    #[arg(long, value_name = "N|P%", value_parser = keys::pool)]
    pub(crate) host_pages: Option<Pool>,
    /// Pages of the decode engine, likewise; with --split only.
    #[arg(long, value_name = "N|P%", value_parser = keys::pool)]
    pub(crate) decode_pages: Option<Pool>,
    /// Pages of a prompt that one step computes at most; 0, the default, for all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::CHUNK_PAGES))]
    pub(crate) chunk_pages: Option<u64>,
    /// Decides all texts. The default is 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::SEED))]
    pub(crate) seed: Option<u64>,
    /// Heads of the indexer. The default is 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::HEADS))]
    pub(crate) heads: Option<u64>,
    /// Tokens of the system prompt that all sessions share. The default is 320.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::SYSTEM_TOKENS))]
    pub(crate) system_tokens: Option<u64>,
    /// Tokens of the first text of a session. The default is 320.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::FIRST_TOKENS))]
    pub(crate) first_tokens: Option<u64>,
    /// Tokens of every later text. The default is 64.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::ROUND_TOKENS))]
    pub(crate) round_tokens: Option<u64>,
    /// Microseconds that each prompt token takes beside what is computed, for the parts of a model that are not here. The
    /// default is 50.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::PROMPT_TOKEN_US))]
    pub(crate) prompt_token_us: Option<u64>,
    /// A client goes away after so long. The default is 120000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::TIMEOUT_MS))]
    pub(crate) timeout_ms: Option<u64>,
    /// The engine gives a wait for its peer up after so long. The default is 20000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(keys::DEADLINE_MS))]
    pub(crate) deadline_ms: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Conform {
    /// The event log of a run: an events.jsonl.
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// On threads, with pages in host memory.
    Host,
    /// On threads, with pages in the memory of a GPU and in pinned host memory.
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexK {
    /// 8-bit floats with scales behind all keys of a page.
    Fp8,
    /// 16-bit floats without scales.
    Bf16,
    /// 4-bit floats with scales behind all keys of a page.
    Fp4,
}
