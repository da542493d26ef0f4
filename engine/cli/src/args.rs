//! The arguments, as clap reads them.

mod compare;
mod exposure;
mod gpu;
mod hits;
mod import;
mod run;
mod simulate;
mod sweep;

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use compare::Compare;
pub(crate) use exposure::Exposure;
pub(crate) use gpu::{CopyBy, Peer};
pub(crate) use hits::Hits;
pub(crate) use import::{Import, LogForm, Redact};
pub(crate) use run::{Conform, Device, IndexK, Played, Run, Switch};
pub(crate) use simulate::{Engine as SimulatedEngine, Simulate};
pub(crate) use sweep::{Merge, Sweep};

/// Model checker for the cache and transfer concurrency of LLM servers.
#[derive(Debug, Parser)]
#[command(name = "kvweft", version, about, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 as expected, 1 not as expected, 2 bad input, 3 inconclusive, 130 interrupted.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explore scenarios exhaustively: the built-in suite if none is named.
    #[command(
        after_help = "Exit codes: 0 if all is as the scenarios expect, under --drop and --all-rules if all holds; 1 if not; 2 bad input; 3 if a search was cut off, or was only a part and found nothing."
    )]
    Check(Check),
    /// Find the minimal sets of dropped rules that break a scenario, and those that make it hold when they are kept.
    #[command(
        after_help = "Exit codes: 0 if some set of rules makes it hold, 1 if none does, 2 bad input, 3 if a search was cut off."
    )]
    Repair(Repair),
    /// Check many scenarios with many choices of rules and seeds, or one numbered part of that.
    #[command(after_help = sweep::EXIT_CODES)]
    Sweep(Sweep),
    /// Put the results of the parts of a sweep, or of simulated seeds, together.
    #[command(after_help = sweep::EXIT_CODES)]
    Merge(Merge),
    /// Step through a trace and show what each step changes.
    #[command(
        after_help = "Exit codes: 0 if the property is violated as recorded, 1 if it is not or a step is not possible, 2 bad input."
    )]
    Replay(Replay),
    /// Make a trace shorter while it still violates its property.
    #[command(
        after_help = "Exit codes: 0 if the trace violates its property, 1 if it does not or a step is not possible, 2 bad input."
    )]
    Shrink(Shrink),
    /// Walk a world by hand, and ask why an action is not possible.
    #[command(after_help = "Exit codes: 0 at the end, 2 bad input.")]
    Step(Step),
    /// Draw a trace.
    #[command(after_help = "Exit codes: 0 if it is drawn, 2 bad input.")]
    Render(Render),
    /// Play sessions of agents on the real engine, and see whose answers come out right.
    #[command(after_help = run::EXIT_CODES)]
    Run(Box<Run>),
    /// Play sessions in virtual time: what a machine would take, and what goes wrong on it.
    #[command(after_help = simulate::EXIT_CODES)]
    Simulate(Box<Simulate>),
    /// Put configurations side by side: what is proved, simulated, measured and reported of each.
    #[command(after_help = compare::EXIT_CODES)]
    Compare(Compare),
    /// Show how often a missing rule is seen, by dtype, sessions at once and speed of the link.
    #[command(after_help = exposure::EXIT_CODES)]
    Exposure(Exposure),
    /// Show what caches of several sizes could reuse of a log, whatever the machine.
    #[command(after_help = hits::EXIT_CODES)]
    Hits(Hits),
    /// Turn a log of your own into a workload without any of its text.
    #[command(after_help = "Exit codes: 0 if every line fits, 2 bad input.")]
    Import(Import),
    /// Take what was computed from texts out of the event log of a run, and names of yours out of a trace.
    #[command(after_help = "Exit codes: 0 if nothing was left in, 2 bad input.")]
    Redact(Redact),
    /// Check that the event log of a run can have happened, line by line.
    #[command(after_help = run::CONFORM_EXIT_CODES)]
    Conform(Conform),
    /// Check every kernel on a GPU against the references on the host, and measure it.
    #[command(after_help = "Exit codes: 0 if every check passed, 1 if not, 2 bad input or no GPU.")]
    Selftest(Selftest),
    /// Measure every kernel on a GPU, beside its roofline and beside PyTorch.
    #[command(after_help = "Exit codes: 0 if everything was measured, 1 if not, 2 bad input or no GPU.")]
    Bench(Bench),
    /// Say what there is, one line each.
    #[command(after_help = "Exit codes: 0 if there is such a list, 2 bad input.")]
    List(List),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    Man,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Built-in scenarios by name, scenario files, or folders of them.
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    #[command(flatten)]
    pub(crate) search: Search,
    /// Only scenarios with this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Search nothing: estimate how many states and how much memory each search would take.
    #[arg(long, group = "mode", conflicts_with = "reduce")]
    pub(crate) plan: bool,
    /// Search each world, and the worlds next to it: one more request, page, layer, fault, one at a time.
    #[arg(long, group = "mode")]
    pub(crate) grow: bool,
    /// Search only what differs from one fixed order in at most so many places.
    #[arg(long, value_name = "N", group = "mode", conflicts_with = "reduce", value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) delays: Option<u32>,
    /// Search only what interrupts actors that could go on at most so many times.
    #[arg(long, value_name = "N", group = "mode", conflicts_with = "reduce", value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) preemptions: Option<u32>,
    /// Walk at random in place of a search.
    #[arg(long, value_name = "STRATEGY", group = "mode", conflicts_with_all = ["reduce", "exact", "max_states"])]
    pub(crate) walk: Option<Walk>,
    #[command(flatten)]
    pub(crate) walks: Walks,
    /// Write every counterexample to this folder, as a trace and drawn as lanes.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "grow"])]
    pub(crate) out: Option<PathBuf>,
    /// Keep checkpoints in this folder, one file a search, and go on from those that are there.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["mode", "reduce"])]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Seconds between two checkpoints of a search, at least.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "checkpoint")]
    pub(crate) checkpoint_every: u32,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

/// How to walk.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Walks {
    /// With --walk: which walks; every number gives others, the same on each run.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "walk")]
    pub(crate) seed: u64,
    /// With --walk: how many.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "walk", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) walks: u64,
    /// With --walk: steps of each at most.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "walk", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) depth: u64,
    /// With --walk pct: how many events must come in the right order.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "walk", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) pct_depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Walk {
    /// Every action alike.
    Random,
    /// Every actor by the steps that it has left, so that interleavings become nearly as likely.
    Urw,
    /// Actors with priorities that change at a few random steps.
    Pct,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Repair {
    /// A built-in scenario by name, or a scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) search: Search,
    /// Write the shortest trace of every minimal breaking set to this folder, also drawn as lanes.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

/// How worlds are searched.
#[derive(Debug, clap::Args)]
pub(crate) struct Search {
    /// Drop this rule, everywhere or at one site, in place of what the scenarios drop. May be given several times.
    #[arg(long, value_name = "RULE[@SITE]")]
    pub(crate) drop: Vec<String>,
    /// Keep every rule, in place of what the scenarios drop.
    #[arg(long, conflicts_with = "drop")]
    pub(crate) all_rules: bool,
    /// Check this property only. May be given several times.
    #[arg(long, value_name = "PROPERTY")]
    pub(crate) only: Vec<String>,
    /// How finely operations are cut into steps, in place of what the scenarios say.
    #[arg(long)]
    pub(crate) grain: Option<Grain>,
    /// Give up after so many states of one world.
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_states: u64,
    /// Give up when the tables of one world grow beyond this, for instance 512M or 4G.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size)]
    pub(crate) max_memory: u64,
    /// Worker threads, for scenarios side by side, and within a world for as many as are left over. Changes nothing but the
    /// speed. The default is one a core, and one within a world.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Keep whole encodings in place of 128-bit fingerprints: slower, and exact.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Search fewer states with the same verdicts. Counts and coverage are then not compared, and traces may be longer.
    #[arg(long)]
    pub(crate) reduce: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// The trace file.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Where to replay it.
    #[arg(long, default_value = "model")]
    pub(crate) on: On,
    /// Which GPU, with `--on cuda`.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
    /// Who makes reloads and offloads, with `--on cuda`.
    #[arg(long, default_value = "auto")]
    pub(crate) copy_by: CopyBy,
    /// Replay so often on threads, and count what came of it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) times: u32,
    /// The scenario file, where the trace is not of a built-in scenario.
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Replay with every rule on, to see what stands in the way.
    #[arg(long)]
    pub(crate) all_rules: bool,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Shrink {
    /// The trace file.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// The scenario file, where the trace is not of a built-in scenario.
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Write the shorter trace here in place of standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Step {
    /// A built-in scenario by name, or a scenario file.
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: String,
    /// Drop this rule, everywhere or at one site, in place of what the scenario drops. May be given several times.
    #[arg(long, value_name = "RULE[@SITE]")]
    pub(crate) drop: Vec<String>,
    /// Keep every rule, in place of what the scenario drops.
    #[arg(long, conflicts_with = "drop")]
    pub(crate) all_rules: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Render {
    /// The trace file.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// As lanes in text, or as a graph for Graphviz.
    #[arg(long = "as", default_value = "text")]
    pub(crate) as_: As,
    /// The scenario file, where the trace is not of a built-in scenario.
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 if nothing failed, 1 if a check did, 2 if there is no GPU or the report could not be written."
)]
pub(crate) struct Selftest {
    /// Where.
    #[arg(long, default_value = "cuda")]
    pub(crate) on: SelftestOn,
    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
    /// Take no more of its memory than this, for instance 512M or 6G.
    #[arg(long, value_name = "SIZE", default_value = "6G", value_parser = size)]
    pub(crate) max_device_memory: u64,
    /// Measure nothing.
    #[arg(long)]
    pub(crate) checks_only: bool,
    /// Measure nothing, and check small shapes, for a run under compute-sanitizer.
    #[arg(long)]
    pub(crate) small: bool,
    /// Run only what has this text in its name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Write the report to this folder, as selftest.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 if everything was measured, 1 if something failed, 2 if there is no GPU or the report \
                        could not be written. Without PyTorch, the report says so."
)]
pub(crate) struct Bench {
    /// Where.
    #[arg(long, default_value = "cuda")]
    pub(crate) on: SelftestOn,
    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
    /// Time the same work in another library, in a process of its own after the kernels.
    #[arg(long)]
    pub(crate) beside: Option<Beside>,
    /// Take no more of the GPU's memory than this, for instance 2G or 6G.
    #[arg(long, value_name = "SIZE", default_value = "6G", value_parser = size)]
    pub(crate) max_device_memory: u64,
    /// Write the report to this folder, as bench.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// PyTorch, if python3 has it.
    Torch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SelftestOn {
    /// On a GPU, through the CUDA driver.
    Cuda,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// What to list.
    pub(crate) what: What,
    /// How results are written.
    #[arg(long, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: versioned JSON.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grain {
    /// Each write has a begin and an end per layer and component.
    Default,
    /// Page by page, every small operation by itself.
    Finest,
    /// One step a copy; hides torn reads.
    Atomic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    /// The symbolic world.
    Model,
    /// The world, and real threads on real memory that follow it step by step.
    Host,
    /// The same with pages in the memory of a GPU.
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum As {
    /// Lanes, one column an actor.
    Text,
    /// A graph for Graphviz.
    Dot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// The built-in scenarios.
    Scenarios,
    /// The rules, their sites and what they oblige to.
    Rules,
    /// The properties.
    Properties,
    /// The model geometries.
    Models,
    /// The cells of the manager's tables that can never be reached, and why.
    Cells,
}

/// A number of worker threads.
fn threads(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse::<NonZeroU16>().ok().filter(|number| number.get() <= 256);
    number.ok_or_else(|| "expected a number from 1 to 256".to_owned())
}

/// A number of bytes with an optional K, M or G behind it.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 =
        digits.parse().map_err(|_| "expected a number with an optional K, M or G, as in 512M".to_owned())?;
    match number.checked_mul(unit) {
        Some(0) => Err("expected at least one byte".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("the number is too large".to_owned()),
    }
}
