//! A matrix: configurations that are put side by side.

use std::path::{Path, PathBuf};

use clap::{Args, FromArgMatches};
use kvweft_check::scenario::{Component, Dtype, Scenario, WritePolicy, nearest};
use kvweft_core::RuleSet;
use serde::Deserialize;

use crate::args::{self, IndexK, Switch};
use crate::commands::simulate::choose::choose;
use crate::failure::Failure;
use crate::input;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    seeds: u32,
    scenario: String,
    #[serde(default)]
    simulate: toml::Table,
    row: Vec<RowFile>,
    exposure: Option<Exposure>,
}

/// What `kvweft exposure` varies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exposure {
    /// The rule that is dropped.
    pub(crate) drop: String,
    pub(crate) index_k: Vec<String>,
    pub(crate) concurrency: Vec<u32>,
    /// Host to device, in place of what the profile says.
    pub(crate) load_mb_per_s: Vec<u64>,
    pub(crate) seeds: u32,
    /// What is simulated, with the keys of the whole matrix where nothing is said.
    #[serde(default)]
    pub(crate) simulate: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowFile {
    name: String,
    title: String,
    group: String,
    scenario: Option<String>,
    #[serde(default)]
    simulate: toml::Table,
    reported: Option<String>,
    choice: Option<String>,
    after: Option<After>,
}

/// A run that went before, on the same engines.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// Its sessions.
    pub(super) sessions: u32,
    /// When the engine that clients talk to is reset, and the clients go away.
    pub(super) reset_ms: u64,
}

/// A configuration.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) title: String,
    /// Rows of one group share a table.
    pub(super) group: String,
    /// What somebody else saw of it.
    pub(super) reported: Option<String>,
    /// What it is called among those that can be chosen.
    pub(super) choice: Option<String>,
    pub(super) after: Option<After>,
    /// What is simulated.
    pub(super) simulate: args::Simulate,
    /// What is explored.
    pub(super) scenario: Scenario,
    pub(super) drops: RuleSet,
}

/// The whole file.
pub(super) struct Matrix {
    pub(super) title: String,
    /// Said below the tables.
    pub(super) notes: Vec<String>,
    /// Simulated runs of each row.
    pub(super) seeds: u32,
    pub(super) rows: Vec<Row>,
}

impl Matrix {
    /// The matrix of that name, built in or a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(name: &str) -> Result<Matrix, Failure> {
        let (path, file) = read(name)?;
        Matrix::check(&path, file)
    }

    fn check(path: &Path, file: File) -> Result<Matrix, Failure> {
        let wrong = |why: String| Err(Failure::File { path: path.to_owned(), why });
        if file.format != 1 {
            return wrong(format!("format: expected 1, got {}", file.format));
        }
        if file.seeds == 0 || file.row.is_empty() {
            return wrong("expected `seeds` of at least 1, and at least one [[row]]".to_owned());
        }
        let mut rows: Vec<Row> = Vec::new();
        for row in file.row {
            if rows.iter().any(|known| known.name == row.name) {
                return wrong(format!("two rows are called `{}`\nhelp: rename one", row.name));
            }
            rows.push(Row::new(path, &file.scenario, &file.simulate, row)?);
        }
        Ok(Matrix { title: file.title, notes: file.notes, seeds: file.seeds, rows })
    }
}

impl Row {
    fn new(path: &Path, scenario: &str, base: &toml::Table, row: RowFile) -> Result<Row, Failure> {
        let wrong = |why: String| Failure::File { path: path.to_owned(), why: format!("row `{}`: {why}", row.name) };
        let mut options = base.clone();
        options.extend(row.simulate.clone());
        let simulate = simulate(&options).map_err(wrong)?;
        let chosen = choose(&simulate)?;
        chosen.settings.check(&chosen.workload).map_err(|why| wrong(why.to_string()))?;
        let drops = input::rules(&simulate.engine.drop)?;
        let scenario = input::one_scenario(row.scenario.as_deref().unwrap_or(scenario))?;
        let scenario = configured(scenario, &simulate.engine).map_err(wrong)?;
        Ok(Row {
            name: row.name,
            title: row.title,
            group: row.group,
            reported: row.reported,
            choice: row.choice,
            after: row.after,
            simulate,
            scenario,
            drops,
        })
    }
}

/// Keys and values as options of `kvweft simulate`.
fn simulate(options: &toml::Table) -> Result<args::Simulate, String> {
    let mut words: Vec<String> = Vec::new();
    for (key, value) in options {
        let option = format!("--{}", key.replace('_', "-"));
        let values = match value {
            toml::Value::Boolean(false) => continue,
            toml::Value::Boolean(true) => {
                words.push(option);
                continue;
            }
            toml::Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            let text = word(value)?;
            match key.as_str() {
                "workload" => words.push(text),
                _ => words.push(format!("{option}={text}")),
            }
        }
    }
    let command = args::Simulate::augment_args(clap::Command::new("simulate").no_binary_name(true));
    let parsed = command.try_get_matches_from(words).and_then(|matches| args::Simulate::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        format!("{first}\nhelp: keys are options of `kvweft simulate`, with `_` for `-`")
    })
}

fn word(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        other => Err(format!("expected a text, an integer, true or false, or a list, got a {}", other.type_str())),
    }
}

/// The scenario with the cache and the index keys of an engine.
fn configured(mut scenario: Scenario, engine: &args::SimulatedEngine) -> Result<Scenario, String> {
    if engine.cache == Switch::Off {
        scenario.world.prefix_cache = false;
        scenario.world.write_policy = WritePolicy::Off;
        scenario.world.host_pages = 0;
    }
    let Some(index_k) = engine.index_k else { return Ok(scenario) };
    let dtype = match index_k {
        IndexK::Fp8 => Dtype::Fp8,
        IndexK::Bf16 => Dtype::Bf16,
        IndexK::Fp4 => Dtype::Fp4,
    };
    let geometry = &scenario.model.geometry;
    for layer in scenario.model.layers.iter_mut().filter(|layer| layer.index_k.is_some()) {
        let layout = geometry.layout(&layer.kind, Component::IndexK, dtype);
        let layout = layout.ok_or_else(|| format!("{} has no layout for index keys as {dtype}", geometry.name))?;
        layer.index_k = Some(layout.clone());
        layer.decode_index_k = Some(layout.clone());
    }
    Ok(scenario)
}

/// The paths that `--run` names, by row.
pub(super) fn paths<'a>(matrix: &Matrix, runs: &'a [(String, PathBuf)]) -> Result<Vec<Option<&'a Path>>, Failure> {
    let mut paths = vec![None; matrix.rows.len()];
    for (name, path) in runs {
        let Some(at) = matrix.rows.iter().position(|row| row.name == *name) else {
            let near = nearest(name, matrix.rows.iter().map(|row| row.name.as_str()));
            let meant = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(Failure::Option { option: "run".to_owned(), why: format!("there is no row `{name}`{meant}") });
        };
        paths[at] = Some(path.as_path());
    }
    Ok(paths)
}

/// What `kvweft exposure` varies, and the options of `kvweft simulate` that stay.
///
/// # Errors
/// What is wrong with the matrix.
pub(crate) fn exposure(name: &str) -> Result<(Exposure, args::Simulate), Failure> {
    let (path, file) = read(name)?;
    let wrong = |why: String| Failure::File { path: path.clone(), why };
    let exposure = file.exposure.ok_or_else(|| wrong("expected a table [exposure]".to_owned()))?;
    let mut options = file.simulate;
    options.extend(exposure.simulate.clone());
    let simulate = simulate(&options).map_err(wrong)?;
    Ok((exposure, simulate))
}

fn read(name: &str) -> Result<(PathBuf, File), Failure> {
    let path = Path::new(name);
    let text = match kvweft_scenarios::matrix(name) {
        Some(text) => text.to_owned(),
        None if name.ends_with(".toml") || path.exists() => {
            std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the matrix", &error))?
        }
        None => {
            let known = kvweft_scenarios::MATRICES.iter().map(|file| file.name);
            let meant = nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let why = format!("no matrix and no file is called that{meant}\nexpected: `case`, or a matrix file");
            return Err(Failure::File { path: path.to_owned(), why });
        }
    };
    let file: File = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Failure::Trace { path: path.to_owned(), line, message: error.message().to_owned() }
    })?;
    Ok((path.to_owned(), file))
}
