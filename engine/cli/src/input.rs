//! Scenarios, rules, properties and traces as the user names them.

use std::path::{Path, PathBuf};

use kvweft_check::build::{dropped, with_names};
use kvweft_check::scenario::{self, Scenario, nearest};
use kvweft_core::RuleSet;
use kvweft_trace::TraceFile;
use kvweft_world::PROPERTIES;

use crate::failure::Failure;

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

/// The rules of `--drop`.
pub(crate) fn rules(texts: &[String]) -> Result<RuleSet, Failure> {
    dropped(texts.iter().map(String::as_str)).map_err(|(text, why)| Failure::rule(text, &why))
}

/// The properties of `--only`.
pub(crate) fn properties(names: &[String]) -> Result<Option<Vec<String>>, Failure> {
    for name in names {
        if !PROPERTIES.iter().any(|info| info.name == name) {
            let near = nearest(name, PROPERTIES.iter().map(|info| info.name)).map(str::to_owned);
            return Err(Failure::Property { name: name.clone(), nearest: near });
        }
    }
    Ok((!names.is_empty()).then(|| names.to_vec()))
}

/// A trace with the scenario that it is of, and the rules that it drops.
pub(crate) struct Traced {
    pub(crate) file: TraceFile,
    pub(crate) scenario: Scenario,
    pub(crate) drops: RuleSet,
}

/// Reads a trace and finds its scenario.
pub(crate) fn trace(path: &Path, scenario: Option<&PathBuf>) -> Result<Traced, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the trace", &error))?;
    let file = TraceFile::parse(&text).map_err(|error| Failure::Trace {
        path: path.to_owned(),
        line: error.line,
        message: error.message,
    })?;
    let scenario = match scenario {
        Some(path) => with_names(|known| scenario::load(path, known))?,
        None => match with_names(|known| scenario::load_embedded_one(&file.scenario, known)) {
            Some(loaded) => loaded?,
            None => {
                let message = format!(
                    "the trace is of `{}`, which is not built in: name its file with --scenario",
                    file.scenario
                );
                return Err(Failure::Trace { path: path.to_owned(), line: 2, message });
            }
        },
    };
    if scenario.digest() != file.digest {
        eprintln!(
            "warning: {} was recorded on another version of `{}` (digest {}, now {})",
            path.display(),
            file.scenario,
            file.digest,
            scenario.digest()
        );
    }
    let drops = dropped(file.drops.iter().map(String::as_str)).map_err(|(text, why)| {
        let Failure::Rule { text, why } = Failure::rule(text, &why) else { unreachable!("it is about a rule") };
        Failure::Trace { path: path.to_owned(), line: 2, message: format!("drops {text}: {why}") }
    })?;
    Ok(Traced { file, scenario, drops })
}
