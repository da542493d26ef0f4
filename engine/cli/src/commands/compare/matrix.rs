//! A matrix: configurations that are put side by side.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, FromArgMatches};
use kvweft_check::scenario::{Code, Component, Dtype, Error, Scenario, SourceFile, WritePolicy, nearest};
use kvweft_core::RuleSet;
use serde::Deserialize;
use toml::Spanned;

use crate::args::{self, IndexK, Switch};
use crate::commands::simulate::choose::choose;
use crate::failure::Failure;
use crate::{input, typed};

/// The page that describes matrices.
const PAGE: &str = "docs/compare.md";
/// Options of `kvweft simulate` that say how it is run and not what is simulated.
const NOT_SIMULATED: [&str; 9] = ["seed", "seeds", "shard", "threads", "format", "plot", "out", "help", "version"];
/// As many sessions as `kvweft simulate` takes.
const SESSIONS_MAX: u32 = 1 << 20;
/// As many seeds as `--seeds` takes.
const SEEDS_MAX: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: Spanned<u32>,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    seeds: Spanned<u32>,
    scenario: String,
    #[serde(default)]
    simulate: toml::Table,
    row: Spanned<Vec<RowFile>>,
    exposure: Option<Spanned<Exposure>>,
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
    name: Spanned<String>,
    title: String,
    group: String,
    scenario: Option<String>,
    #[serde(default)]
    simulate: toml::Table,
    reported: Option<String>,
    choice: Option<String>,
    after: Option<Spanned<After>>,
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
        let (source, file) = read(name)?;
        let seeds = *file.seeds.get_ref();
        let mut rows: Vec<Row> = Vec::new();
        for row in file.row.into_inner() {
            if rows.iter().any(|known| known.name == *row.name.get_ref()) {
                let what = format!("two rows are called `{}`", row.name.get_ref());
                return Err(Error::at(&source, row.name.span(), Code::Duplicate, what).help("rename one").into());
            }
            rows.push(Row::new(&source, &file.scenario, &file.simulate, row)?);
        }
        Ok(Matrix { title: file.title, notes: file.notes, seeds, rows })
    }
}

impl Row {
    fn new(source: &SourceFile, scenario: &str, base: &toml::Table, row: RowFile) -> Result<Row, Failure> {
        let at = row.name.span();
        let wrong = |why: String| wrong(source, at.clone(), &format!("row `{}`", row.name.get_ref()), &why);
        if row.name.get_ref().is_empty() || row.name.get_ref().contains('=') {
            return Err(typed::out_of_bounds(source, at, "the name of a row", "a text without `=`"));
        }
        let mut options = base.clone();
        options.extend(row.simulate.clone());
        let simulate = simulate(&options).map_err(wrong)?;
        let chosen = choose(&simulate)?;
        chosen.settings.check(&chosen.workload).map_err(|why| wrong(why.to_string()))?;
        if let Some(after) = &row.after {
            bounds(source, after.span(), "sessions of a run before", after.get_ref().sessions, 1..=SESSIONS_MAX)?;
        }
        let drops = input::rules(&simulate.engine.drop)?;
        let scenario = input::one_scenario(row.scenario.as_deref().unwrap_or(scenario))?;
        let scenario = configured(scenario, &simulate.engine).map_err(wrong)?;
        Ok(Row {
            name: row.name.into_inner(),
            title: row.title,
            group: row.group,
            reported: row.reported,
            choice: row.choice,
            after: row.after.map(Spanned::into_inner),
            simulate,
            scenario,
            drops,
        })
    }
}

/// Something that `who` cannot be; behind a line that begins with `help: ` is what to do.
fn wrong(source: &SourceFile, at: Range<usize>, who: &str, why: &str) -> Failure {
    let (what, help) = why.split_once("\nhelp: ").unwrap_or((why, ""));
    Error::at(source, at, Code::OutOfBounds, format!("{who}: {what}")).help(help).into()
}

fn bounds(
    source: &SourceFile,
    at: Range<usize>,
    what: &str,
    value: u32,
    valid: std::ops::RangeInclusive<u32>,
) -> Result<(), Failure> {
    if valid.contains(&value) {
        return Ok(());
    }
    let expected = match valid.into_inner() {
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min} to {max}"),
    };
    Err(typed::out_of_bounds(source, at, what, &expected))
}

/// Keys and values as options of `kvweft simulate`.
fn simulate(options: &toml::Table) -> Result<args::Simulate, String> {
    let mut words: Vec<String> = Vec::new();
    for (key, value) in options {
        if NOT_SIMULATED.contains(&key.as_str()) {
            return Err(format!("`{key}` says how it is run, and not what is simulated\nhelp: remove it"));
        }
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
        let mut parts = text.split("\n\n");
        let first = parts.next().unwrap_or_default().trim_start_matches("error: ");
        let near = parts.find_map(|part| part.trim().strip_prefix("tip: "));
        let near = near.map_or(String::new(), |near| format!("{near}; "));
        format!("{first}\nhelp: {near}keys are options of `kvweft simulate`, with `_` for `-`")
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
    let wrong = |why: String| Err(Failure::Option { option: "run".to_owned(), why });
    let mut paths = vec![None; matrix.rows.len()];
    for (name, path) in runs {
        let Some(at) = matrix.rows.iter().position(|row| row.name == *name) else {
            let near = nearest(name, matrix.rows.iter().map(|row| row.name.as_str()));
            let meant = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return wrong(format!("there is no row `{name}`{meant}"));
        };
        if paths[at].replace(path.as_path()).is_some() {
            return wrong(format!("two runs are named for the row `{name}`\nhelp: leave one out"));
        }
    }
    Ok(paths)
}

/// What `kvweft exposure` varies, and the options of `kvweft simulate` that stay.
///
/// # Errors
/// What is wrong with the matrix.
pub(crate) fn exposure(name: &str) -> Result<(Exposure, args::Simulate), Failure> {
    let (source, file) = read(name)?;
    let exposure = file.exposure.ok_or_else(|| {
        let what = "there is no table [exposure]";
        Failure::from(Error::at(&source, 0..0, Code::MissingKey, what).help("docs/exposure.md describes it"))
    })?;
    let at = exposure.span();
    let exposure = exposure.into_inner();
    bounds(&source, at.clone(), "[exposure]: `seeds`", exposure.seeds, 1..=SEEDS_MAX)?;
    for concurrency in &exposure.concurrency {
        bounds(
            &source,
            at.clone(),
            "[exposure]: a number of sessions in `concurrency`",
            *concurrency,
            1..=SESSIONS_MAX,
        )?;
    }
    let lists = [exposure.index_k.len(), exposure.concurrency.len(), exposure.load_mb_per_s.len()];
    if lists.contains(&0) || exposure.load_mb_per_s.contains(&0) {
        let what = "[exposure]: a list is empty, or a speed is 0";
        let expected = "at least one of `index_k`, `concurrency` and `load_mb_per_s`";
        return Err(typed::out_of_bounds(&source, at, what, expected));
    }
    let mut options = file.simulate;
    options.extend(exposure.simulate.clone());
    let simulate = simulate(&options).map_err(|why| wrong(&source, at, "[exposure]", &why))?;
    Ok((exposure, simulate))
}

fn read(name: &str) -> Result<(SourceFile, File), Failure> {
    let path = Path::new(name);
    let source = match kvweft_scenarios::matrix(name) {
        Some(text) => SourceFile::new(&format!("<built in>/matrices/{name}.toml"), text),
        None if name.ends_with(".toml") || path.exists() => {
            let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the matrix", &error))?;
            SourceFile::new(name, &text)
        }
        None => {
            let known = kvweft_scenarios::MATRICES.iter().map(|file| file.name);
            let meant = nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let why = format!("no matrix and no file is called that{meant}\nexpected: `case`, or a matrix file");
            return Err(Failure::File { path: path.to_owned(), why });
        }
    };
    let file: File = typed::read(&source, PAGE)?;
    bounds(&source, file.format.span(), "`format`", *file.format.get_ref(), 1..=1)?;
    bounds(&source, file.seeds.span(), "`seeds`", *file.seeds.get_ref(), 1..=SEEDS_MAX)?;
    if file.row.get_ref().is_empty() {
        return Err(typed::out_of_bounds(&source, file.row.span(), "`row`", "at least one [[row]]"));
    }
    Ok((source, file))
}
