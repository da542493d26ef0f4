//! `kvweft check`.

use std::num::NonZeroU16;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kvweft_check::explore::{Limit, MissProbability, Options, Outcome, Verdict};
use kvweft_check::grow::shrink_first;
use kvweft_check::record::replay;
use kvweft_check::reduce::Reduction;
use kvweft_check::scenario::{self, Scenario};
use kvweft_check::system::Marks;
use kvweft_check::verdict::{Cause, Checkpoints, Report, Settings, check_from};
use kvweft_check::{extent, lanes};
use kvweft_core::RuleSet;
use kvweft_world::Action;

use crate::args::{self, Format};
use crate::commands::{bounded, grow, plan};
use crate::coverage::Coverage;
use crate::failure::Failure;
use crate::parallel::{cores, in_parallel};
use crate::progress::Shown;
use crate::{input, json, output, table};

/// Runs the command.
pub(crate) fn run(args: &args::Check) -> Result<ExitCode, Failure> {
    let settings = input::settings(&args.search)?;
    let scenarios = input::scenarios(&args.scenarios, args.tag.as_deref())?;
    if args.plan {
        return plan::run(args, &scenarios, &settings);
    }
    if args.grow {
        return grow::run(args, &scenarios, &settings);
    }
    if let Some(bound) = bounded::bound(args) {
        return bounded::run(args, &scenarios, &settings, bound);
    }
    if let Some(folder) = &args.out {
        names_differ(&scenarios)?;
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the folder", &error))?;
    }
    let _claim = args.checkpoint.as_deref().map(output::claim_folder).transpose()?;
    let checkpoints = args.checkpoint.as_ref().map(|folder| checkpoints(folder, args, &scenarios)).transpose()?;
    let whole_suite = args.scenarios.is_empty() && args.tag.is_none();
    let started = Instant::now();
    // Worlds side by side use cores better than a world on several: only threads that are left over share one.
    let threads = args.search.threads.map_or_else(cores, usize::from);
    let side_by_side = threads.clamp(1, scenarios.len().max(1));
    let within = args.search.threads.map_or(1, |threads| usize::from(threads) / side_by_side);
    let each = Settings { explore: Options { threads: within, ..settings.explore.clone() }, ..settings.clone() };
    let numbered: Vec<(usize, &Scenario)> = scenarios.iter().enumerate().collect();
    let reports =
        in_parallel(&numbered, u16::try_from(side_by_side).ok().and_then(NonZeroU16::new), |&(at, scenario)| {
            let shown = Shown::new(at + 1, scenarios.len(), &scenario.name, args.search.max_memory);
            let report = check_from(scenario, &each, &|progress| shown.show(progress), checkpoints.as_ref());
            shown.clear();
            let report = report.map_err(Failure::Checkpoint)?;
            if let Some(folder) = &args.out {
                write_causes(folder, scenario, &report, settings.grain)?;
            }
            Ok(report)
        });
    let reports = reports.into_iter().collect::<Result<Vec<Report>, Failure>>()?;
    let mut bench = Bench::default();
    reports.iter().for_each(|report| bench.add(report));
    let coverage = (whole_suite && !args.search.reduce && args.search.drop.is_empty() && args.search.only.is_empty())
        .then(|| coverage(&reports));
    match args.format {
        Format::Text => output::result(&text(&scenarios, &reports, coverage.as_ref(), &settings))?,
        Format::Json => output::result(&json::reports(&scenarios, &reports, coverage.as_ref(), &settings))?,
    }
    output::note(&bench.text(started.elapsed()));
    Ok(exit_code(&reports, coverage.as_ref()))
}

fn checkpoints(folder: &Path, args: &args::Check, scenarios: &[Scenario]) -> Result<Checkpoints, Failure> {
    names_differ(scenarios)?;
    Ok(Checkpoints { folder: folder.to_owned(), every: Duration::from_secs(args.checkpoint_every.into()) })
}

/// Files of counterexamples and checkpoints are named after their scenario: two of one name would overwrite each other's.
fn names_differ(scenarios: &[Scenario]) -> Result<(), Failure> {
    let mut names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::SameName(pair[0].to_owned())),
        None => Ok(()),
    }
}

fn exit_code(reports: &[Report], coverage: Option<&Coverage>) -> ExitCode {
    let unexpected = reports.iter().any(|report| !report.unexpected.is_empty());
    let uncovered = coverage.is_some_and(|coverage| !coverage.complete());
    if unexpected || uncovered {
        ExitCode::from(1)
    } else if reports.iter().any(Report::inconclusive) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    }
}

fn coverage(reports: &[Report]) -> Coverage {
    let mut marks = Marks::default();
    for report in reports {
        match &report.all_rules {
            Some(all_rules) => marks.unite(&all_rules.marks),
            None if report.drops.is_empty() => marks.unite(&report.as_written.marks),
            None => {}
        }
    }
    Coverage::of(&marks)
}

/// A verdict in a word or three.
pub(crate) fn verdict(outcome: &Outcome<Action>) -> String {
    match outcome.verdict {
        Verdict::Holds => "holds".to_owned(),
        Verdict::Violated => "VIOLATED".to_owned(),
        Verdict::Inconclusive { ran_out_of: Limit::States } => "ran out of states".to_owned(),
        Verdict::Inconclusive { ran_out_of: Limit::Memory } => "ran out of memory".to_owned(),
    }
}

fn text(scenarios: &[Scenario], reports: &[Report], coverage: Option<&Coverage>, settings: &Settings) -> String {
    let mut rows = Vec::new();
    for (scenario, report) in scenarios.iter().zip(reports) {
        let all_rules = report.all_rules.as_ref();
        let (all_verdict, all_states) = match all_rules {
            Some(outcome) => (verdict(outcome), outcome.counts.states.to_string()),
            None if report.drops.is_empty() => ("(the same)".to_owned(), String::new()),
            None => ("-".to_owned(), String::new()),
        };
        rows.push(vec![
            scenario.name.clone(),
            verdict(&report.as_written),
            report.as_written.counts.states.to_string(),
            all_verdict,
            all_states,
            if report.unexpected.is_empty() { String::new() } else { "!".to_owned() },
            report.violates().join(" "),
        ]);
    }
    let dropped = if settings.drop.is_some() { "as asked" } else { "as written" };
    let header = ["scenario", dropped, "states", "all rules", "states", "", "violates"];
    let mut out = table::table(&header, &rows);
    out.push('\n');
    for (scenario, report) in scenarios.iter().zip(reports) {
        for difference in &report.unexpected {
            out += &format!("! {}: {difference}\n", scenario.name);
        }
        if let Some(import) = &scenario.import {
            out += &format!("{}: {}\n", scenario.name, import.folding.note);
        }
    }
    out += &causes_text(scenarios, reports);
    out += &covers(scenarios, reports);
    out += &covers_each(scenarios, reports, settings);
    if let Some(coverage) = coverage {
        out += &coverage.text();
    }
    if let Some((scenario, cause)) = showcase(scenarios, reports) {
        out.push('\n');
        out += &drawn(scenario, cause, settings.grain);
    }
    out
}

/// More scenarios than this are not told one by one.
const TOLD_MAX: usize = 4;

/// One line per property and minimal set of dropped rules, for few scenarios; the whole suite has `--out` for that.
fn causes_text(scenarios: &[Scenario], reports: &[Report]) -> String {
    if scenarios.len() > TOLD_MAX {
        return String::new();
    }
    let mut rows = Vec::new();
    for (scenario, report) in scenarios.iter().zip(reports) {
        for cause in &report.causes {
            rows.push(vec![
                scenario.name.clone(),
                cause.trace.violation.property.to_owned(),
                cause.trace.failure().name().to_owned(),
                cause.trace.steps.len().to_string(),
                if cause.drops.is_empty() { "(every rule on)".to_owned() } else { cause.drops.join(" ") },
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    table::table(&["scenario", "violates", "failure", "steps", "because of"], &rows) + "\n"
}

/// What the verdicts cover.
fn covers(scenarios: &[Scenario], reports: &[Report]) -> String {
    let outcomes = || reports.iter().flat_map(|report| report.all_rules.iter().chain([&report.as_written]));
    let states: u64 = outcomes().map(|outcome| outcome.counts.states).sum();
    let worst = outcomes().filter_map(|outcome| match outcome.miss {
        MissProbability::Zero => None,
        MissProbability::Below { exponent } => Some(exponent),
    });
    let miss = match worst.max() {
        None => "exact".to_owned(),
        Some(exponent) => format!("probability that a state was missed < 2^{exponent} in any one"),
    };
    let cut = reports.iter().filter(|report| report.inconclusive()).count();
    let interleavings = match cut {
        0 => format!("every interleaving of {}", counted(reports.len(), "world")),
        _ => format!("not every interleaving: a limit came first in {cut} of {}", counted(reports.len(), "world")),
    };
    let requests = scenarios.iter().map(|scenario| scenario.requests.len()).max().unwrap_or(0);
    let layers = scenarios.iter().map(|scenario| scenario.model.layers.len()).max().unwrap_or(0);
    let pages = scenarios.iter().map(|scenario| scenario.world.device_pages).max().unwrap_or(0);
    let part = if outcomes().any(|outcome| matches!(outcome.reduction, Some(Reduction::Applied { .. }))) {
        " of a reduced search"
    } else {
        ""
    };
    format!(
        "{interleavings}: {states} states{part}; at most {}, {}, {}; {miss}\n",
        counted(requests, "request"),
        counted(pages as usize, "device page"),
        counted(layers, "layer")
    )
}

/// One line for each search that holds, and what to do about each that ran out.
fn covers_each(scenarios: &[Scenario], reports: &[Report], settings: &Settings) -> String {
    let mut out = String::new();
    if scenarios.len() > TOLD_MAX {
        return out;
    }
    for (scenario, report) in scenarios.iter().zip(reports) {
        let grain = settings.grain.unwrap_or(scenario.world.grain);
        let all_rules = report.all_rules.as_ref().map(|outcome| (" with every rule on", outcome));
        for (rules, outcome) in [("", &report.as_written)].into_iter().chain(all_rules) {
            if outcome.verdict == Verdict::Holds {
                let covers = extent::covers(scenario, outcome, grain);
                out += &format!("{}{rules} holds: {covers}\n", scenario.name);
            }
        }
        if report.inconclusive() {
            out += &out_of_room(scenario, settings);
        }
    }
    out
}

fn out_of_room(scenario: &Scenario, settings: &Settings) -> String {
    match shrink_first(scenario, settings) {
        None => format!("{}: ran out, and nothing of it can be less\n", scenario.name),
        Some((dimension, from, estimate)) => format!(
            "{}: ran out; take from the {} first: with {} in place of {from} there are {}\n",
            scenario.name,
            dimension.names().1,
            from - 1,
            plan::states(&estimate)
        ),
    }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The counterexample that is drawn: of a scenario tagged `showcase` if there is one, then the shortest read of wrong
/// content, then the shortest of all.
fn showcase<'a>(scenarios: &'a [Scenario], reports: &'a [Report]) -> Option<(&'a Scenario, &'a Cause)> {
    let all =
        scenarios.iter().zip(reports).flat_map(|(scenario, report)| report.causes.iter().map(move |c| (scenario, c)));
    all.min_by_key(|(scenario, cause)| {
        let shown = scenario.tags.iter().any(|tag| tag == "showcase");
        let reads = cause.trace.violation.property == "reads-see-own-content";
        (!shown, !reads, cause.trace.steps.len())
    })
}

/// A counterexample as lanes.
fn drawn(scenario: &Scenario, cause: &Cause, grain: Option<scenario::Grain>) -> String {
    let drops = input::rules(&cause.drops).unwrap_or(RuleSet::EMPTY);
    let memory = replay(&input::world(scenario, drops, grain), &cause.file)
        .map(|done| done.steps.into_iter().map(|step| step.memory).collect());
    lanes::draw(&cause.file, &memory.unwrap_or_else(|_| Vec::new()))
}

/// One trace and one drawing per property and minimal set of dropped rules.
fn write_causes(
    folder: &Path,
    scenario: &Scenario,
    report: &Report,
    grain: Option<scenario::Grain>,
) -> Result<(), Failure> {
    for cause in &report.causes {
        let mut name = format!("{}.{}", scenario.name, cause.trace.violation.property);
        if report.drops.len() > 1 {
            name += &format!(".{}", cause.drops.join("+"));
        }
        write_cause(folder, &name, scenario, cause, grain)?;
    }
    Ok(())
}

/// A counterexample as a trace and drawn as lanes.
pub(crate) fn write_cause(
    folder: &Path,
    name: &str,
    scenario: &Scenario,
    cause: &Cause,
    grain: Option<scenario::Grain>,
) -> Result<(), Failure> {
    for (extension, text) in [("trace", cause.file.to_string()), ("txt", drawn(scenario, cause, grain))] {
        let path = folder.join(format!("{name}.{extension}"));
        output::to_file(&path, "the counterexample", &text)?;
    }
    Ok(())
}

/// What it cost, for standard error.
#[derive(Default)]
struct Bench {
    states: u64,
    transitions: u64,
    bytes: u64,
}

impl Bench {
    fn add(&mut self, report: &Report) {
        for outcome in report.all_rules.iter().chain([&report.as_written]) {
            self.states += outcome.counts.states;
            self.transitions += outcome.counts.transitions;
            self.bytes += outcome.table_bytes;
        }
    }

    fn text(&self, took: Duration) -> String {
        let seconds = took.as_secs_f64().max(1e-9);
        format!(
            "{} states and {} transitions in {seconds:.1} s: {:.0} states/s, {:.0} transitions/s, {:.0} bytes a stored state",
            self.states,
            self.transitions,
            self.states as f64 / seconds,
            self.transitions as f64 / seconds,
            self.bytes as f64 / self.states.max(1) as f64
        )
    }
}
