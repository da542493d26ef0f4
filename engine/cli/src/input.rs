//! Scenarios, rules, properties and traces as the user names them.

use std::io::Read;
use std::path::{Path, PathBuf};

use kvweft_check::build::{CacheSystem, build_with, dropped, with_names};
use kvweft_check::explore::Options;
use kvweft_check::record::replay;
use kvweft_check::scenario::{self, Grain, Scenario, nearest};
use kvweft_check::verdict::Settings;
use kvweft_core::{AllocationOrder, RuleSet};
use kvweft_shell::run::Report;
use kvweft_trace::TraceFile;
use kvweft_world::PROPERTIES;

use crate::failure::{self, Failure};
use crate::{args, output};

/// The scenarios that the user names: built-in ones, files, or folders; all built-in ones if none is named.
pub(crate) fn scenarios(names: &[String], tag: Option<&str>) -> Result<Vec<Scenario>, Failure> {
    let mut found = Vec::new();
    if names.is_empty() {
        found = with_names(scenario::load_embedded)?;
    }
    for name in names {
        let path = Path::new(name);
        if path.is_dir() {
            found.extend(with_names(|known| scenario::load_folder(path, known))?);
        } else {
            found.push(one_scenario(name)?);
        }
    }
    if let Some(tag) = tag {
        found.retain(|scenario| scenario.tags.iter().any(|known| known == tag));
        if found.is_empty() {
            return Err(Failure::NoTag(tag.to_owned()));
        }
    }
    Ok(found)
}

/// One scenario, built in or from a file.
pub(crate) fn one_scenario(name: &str) -> Result<Scenario, Failure> {
    if let Some(loaded) = with_names(|known| scenario::load_embedded_one(name, known)) {
        return Ok(loaded?);
    }
    let path = Path::new(name);
    if name.ends_with(".toml") || path.exists() {
        return Ok(with_names(|known| scenario::load(path, known))?);
    }
    let built_in = kvweft_scenarios::SCENARIOS.iter().map(|file| file.name);
    Err(Failure::NoScenario { name: name.to_owned(), nearest: nearest(name, built_in).map(str::to_owned) })
}

/// The grain of `--grain`.
pub(crate) fn grain(named: args::Grain) -> Grain {
    match named {
        args::Grain::Default => Grain::Default,
        args::Grain::Finest => Grain::Finest,
        args::Grain::Atomic => Grain::Atomic,
    }
}

/// How worlds are searched.
pub(crate) fn settings(args: &args::Search) -> Result<Settings, Failure> {
    let drop = match (args.drop.is_empty(), args.all_rules) {
        (true, false) => None,
        (true, true) => Some((Vec::new(), RuleSet::EMPTY)),
        (false, _) => Some((args.drop.clone(), rules(&args.drop)?)),
    };
    let mut explore = Options { states_max: args.max_states, table_bytes_max: args.max_memory, ..Options::default() };
    explore.exact = args.exact;
    explore.reduce = args.reduce;
    // A second thread within a small world costs more than it brings: only those who ask for it get it.
    explore.threads = args.threads.map_or(1, usize::from);
    Ok(Settings { explore, drop, only: properties(&args.only)?, grain: args.grain.map(grain) })
}

/// The rules of `--drop`.
pub(crate) fn rules(texts: &[String]) -> Result<RuleSet, Failure> {
    dropped(texts.iter().map(String::as_str)).map_err(|(text, why)| {
        let why = failure::why_no_rule(&text, &why);
        Failure::Rule { text, why }
    })
}

/// The properties of `--only`.
pub(crate) fn properties(names: &[String]) -> Result<Option<Vec<String>>, Failure> {
    for name in names {
        if !PROPERTIES.iter().any(|info| info.name == name) {
            return Err(Failure::Property(failure::no_property(name)));
        }
    }
    Ok((!names.is_empty()).then(|| names.to_vec()))
}

/// More than any trace has; a larger file is something else.
const TRACE_BYTES_MAX: u64 = 64 << 20;

/// A trace with the scenario that it is of, and the rules that it drops.
pub(crate) struct Traced {
    pub(crate) file: TraceFile,
    pub(crate) scenario: Scenario,
    pub(crate) drops: RuleSet,
    /// How finely the trace is cut, where that is not how its scenario says.
    grain: Option<Grain>,
}

impl Traced {
    /// The world in which the trace happened, but with these rules dropped.
    pub(crate) fn world(&self, drops: RuleSet) -> CacheSystem {
        world(&self.scenario, drops, self.grain)
    }
}

/// The world of a scenario at a grain, its own if none is given.
pub(crate) fn world(scenario: &Scenario, drops: RuleSet, grain: Option<Grain>) -> CacheSystem {
    build_with(scenario, drops, grain, AllocationOrder::Ascending)
}

/// Reads a trace and finds its scenario, and the grain at which it was recorded.
pub(crate) fn trace(path: &Path, scenario: Option<&PathBuf>) -> Result<Traced, Failure> {
    let text = read_trace(path)?;
    let at = |line: usize, message: String| Failure::Trace { path: path.to_owned(), line, message };
    let file = TraceFile::parse(&text).map_err(|error| at(error.line, error.message))?;
    let named = 1 + text.lines().position(|line| line.starts_with("scenario")).unwrap_or_default();
    let violates = 1 + text.lines().position(|line| line.starts_with("violates")).unwrap_or_default();
    let scenario = match scenario {
        Some(path) => with_names(|known| scenario::load(path, known))?,
        None => match with_names(|known| scenario::load_embedded_one(&file.scenario, known)) {
            Some(loaded) => loaded?,
            None => {
                let message = format!(
                    "the trace is of `{}`, which is not built in\nhelp: name its file with --scenario FILE",
                    file.scenario
                );
                return Err(at(named, message));
            }
        },
    };
    if !file.digest.is_empty() && scenario.digest() != file.digest {
        output::note(&format!(
            "warning: {} was recorded on another version of `{}` (digest {}, now {})",
            path.display(),
            file.scenario,
            file.digest,
            scenario.digest()
        ));
    }
    let drops = dropped(file.drops.iter().map(String::as_str))
        .map_err(|(text, why)| at(named, format!("drops `{text}`: {}", failure::why_no_rule(&text, &why))))?;
    if !PROPERTIES.iter().any(|info| info.name == file.violates) {
        return Err(at(violates, failure::no_property(&file.violates)));
    }
    let grain = grain_of(&file, &scenario, drops);
    if let Some(grain) = grain {
        output::note(&format!(
            "note: the trace was recorded at another grain than its scenario's: {}",
            format!("{grain:?}").to_lowercase()
        ));
    }
    Ok(Traced { file, scenario, drops, grain })
}

fn read_trace(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::io(path, "read the trace", &error);
    if path.is_dir() {
        let why = "a folder stands where a trace file was expected\nhelp: name a file in it".to_owned();
        return Err(Failure::File { path: path.to_owned(), why });
    }
    let mut text = String::new();
    let read = std::fs::File::open(path).map_err(failed)?.take(TRACE_BYTES_MAX + 1).read_to_string(&mut text);
    if text.len() as u64 > TRACE_BYTES_MAX {
        let why = format!("cannot read the trace: it is larger than {TRACE_BYTES_MAX} bytes");
        return Err(Failure::File { path: path.to_owned(), why });
    }
    read.map_err(failed)?;
    Ok(text)
}

/// The grain at which the trace can be replayed, if it is another than the scenario's: `check --grain` writes such
/// traces. `None` if it replays as its scenario says, or at no grain.
fn grain_of(file: &TraceFile, scenario: &Scenario, drops: RuleSet) -> Option<Grain> {
    if replay(&world(scenario, drops, None), file).is_ok() {
        return None;
    }
    let others = [Grain::Finest, Grain::Default, Grain::Atomic];
    others.into_iter().find(|&grain| replay(&world(scenario, drops, Some(grain)), file).is_ok())
}

/// The report of a run: a `run.json`, or the folder that holds it.
pub(crate) fn report(path: &Path) -> Result<Report, Failure> {
    let path = if path.is_dir() { path.join("run.json") } else { path.to_owned() };
    let failed = |error: std::io::Error| Failure::io(&path, "read the report", &error);
    let mut text = String::new();
    std::fs::File::open(&path).map_err(failed)?.take(TRACE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| {
        let why = format!("it is no report of a run: {error}\nhelp: `kvweft run --out DIR` writes one");
        Failure::File { path, why }
    })
}
