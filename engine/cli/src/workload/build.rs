//! From what was said to a workload.

use std::path::Path;

use kvweft_check::build::{dropped, model_geometry};
use kvweft_check::scenario::{Beside, Code, Component, Dtype, ModelFile, ModelSource, SourceFile, nearest};
use kvweft_core::{Geometry, RuleSet};
use kvweft_shell::run::{RunError, Workload, check};

use super::{Chosen, Layers, Pool, Said, Told, Wrong};
use crate::failure::{self, Failure};

/// All pools together, so that a slip of the keyboard does not take the whole machine.
const POOL_BYTES_MAX: u64 = 64 << 30;

/// The default model, and how many of its layers.
const MODEL: &str = "deepseek-v3.2";
const LAYERS: usize = 2;

/// What a prompt token takes beside what is computed, where nothing is said: a large model prefills about 20,000 tokens a
/// second.
const PROMPT_TOKEN_US: u64 = 50;

/// The workload, with defaults for what was not said.
pub(super) fn build(said: Said, source: Option<&SourceFile>, folder: &Path) -> Result<Chosen, Failure> {
    let model = model(&said, source, folder)?;
    let layers = layers(&said, source, &model)?;
    index_fits(&said, source, &model, &layers)?;
    let geometry = model_geometry(&model, &layers, value(&said.index_k));
    let number = |told: &Option<Told<u64>>, default: u64| value(told).unwrap_or(default);
    let (sessions, rounds) = (number(&said.sessions, 80) as u32, number(&said.rounds, 6) as u32);
    let mut workload = Workload::new(sessions, rounds, geometry);
    workload.system_tokens = number(&said.system_tokens, workload.system_tokens.into()) as u32;
    workload.first_tokens = number(&said.first_tokens, workload.first_tokens.into()) as u32;
    workload.round_tokens = number(&said.round_tokens, workload.round_tokens.into()) as u32;
    workload.seed = number(&said.seed, workload.seed);
    workload.heads = number(&said.heads, workload.heads.into()) as u32;
    workload.chunk_pages = number(&said.chunk_pages, workload.chunk_pages.into()) as u32;
    workload.prompt_token_us = number(&said.prompt_token_us, PROMPT_TOKEN_US);
    workload.timeout_ms = number(&said.timeout_ms, workload.timeout_ms);
    workload.deadline_ms = number(&said.deadline_ms, workload.deadline_ms);
    workload.cache = value(&said.cache).unwrap_or(true);
    workload.split = value(&said.split).unwrap_or(false);
    let drops = rules(&said, source)?;
    workload.rules = drops.iter().fold(RuleSet::ALL, RuleSet::without);
    pools(&mut workload, &said, source)?;
    Ok(Chosen { workload, model, layers })
}

fn value<T: Clone>(told: &Option<Told<T>>) -> Option<T> {
    told.as_ref().map(|told| told.value.clone())
}

fn model(said: &Said, source: Option<&SourceFile>, folder: &Path) -> Result<ModelFile, Failure> {
    let told = said.model.as_ref();
    let name = told.map_or(MODEL, |told| told.value.as_str());
    // A path on the command line is relative to where the command runs, one in a file to the file.
    let folder = if told.is_some_and(|told| told.span.is_some()) { folder } else { Path::new("") };
    let models = Beside { folder: folder.to_owned() };
    match models.model(name)? {
        Some(text) => Ok(ModelFile::parse(&text.name, &text.text)?),
        None => {
            let names = models.model_names();
            let near = nearest(name, names.iter().map(String::as_str));
            let help = match near {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "`kvweft list models` names the built-in ones; the name of a file ends in .toml".to_owned(),
            };
            let what = format!("there is no model `{name}`");
            let expected = format!("one of {}, or a model file", names.join(", "));
            Err(Wrong { code: Code::UnknownName, what: &what, expected, help }.with("model", told, source))
        }
    }
}

/// The layers taken, in the model's order.
fn layers(said: &Said, source: Option<&SourceFile>, model: &ModelFile) -> Result<Vec<usize>, Failure> {
    let told = said.layers.as_ref();
    let wrong = |code, what: String, expected: String, help: String| {
        Wrong { code, what: &what, expected, help }.with("layers", told, source)
    };
    match told.map_or(&Layers::First(LAYERS), |told| &told.value) {
        // The smallest model has one layer: it need not be asked for.
        Layers::First(count) if told.is_none() => Ok((0..(*count).min(model.layers.len())).collect()),
        Layers::First(count) if *count > model.layers.len() => Err(wrong(
            Code::OutOfBounds,
            format!("{} has no {count} layers", model.name),
            format!("at most {}", model.layers.len()),
            "take fewer layers, or another model".to_owned(),
        )),
        Layers::First(count) => Ok((0..*count).collect()),
        Layers::Kinds(kinds) => {
            let mut picked: Vec<usize> = Vec::new();
            for kind in kinds {
                let known = model.kinds();
                if !known.contains(&kind.as_str()) {
                    let help = match nearest(kind, known.iter().copied()) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => "`kvweft list models` shows the kinds of each model".to_owned(),
                    };
                    let what = format!("{} has no layers of kind `{kind}`", model.name);
                    return Err(wrong(Code::UnknownName, what, format!("one of {}", known.join(", ")), help));
                }
                let next = picked.last().map_or(0, |last| last + 1);
                let found = (next..model.layers.len()).find(|layer| model.layers[*layer] == *kind);
                picked.push(found.ok_or_else(|| {
                    let what = format!("no layer of kind `{kind}` is left behind the ones before");
                    let help = "sort the list as the model's layers are".to_owned();
                    wrong(Code::Conflict, what, "layers in the model's order".to_owned(), help)
                })?);
            }
            Ok(picked)
        }
    }
}

/// The wanted dtype of index keys means something for the layers taken.
fn index_fits(said: &Said, source: Option<&SourceFile>, model: &ModelFile, layers: &[usize]) -> Result<(), Failure> {
    let Some(told) = &said.index_k else { return Ok(()) };
    let indexed: Vec<&str> = layers.iter().map(|layer| model.layers[*layer].as_str()).collect();
    let indexed: Vec<&str> = indexed.into_iter().filter(|kind| model.has(kind, Component::IndexK)).collect();
    let wrong = |code, what: String, expected: String, help: &str| {
        Wrong { code, what: &what, expected, help: help.to_owned() }.with("index_k", Some(told), source)
    };
    if indexed.is_empty() {
        let what = format!("no layer taken from {} has index keys", model.name);
        let help = "take a layer that has an indexer, or leave the dtype out";
        return Err(wrong(Code::Conflict, what, String::new(), help));
    }
    let lacks = |kind: &&&str| model.layout(kind, Component::IndexK, told.value).is_none();
    if let Some(kind) = indexed.iter().find(lacks) {
        let has = |dtype: &&&str| {
            let dtype = Dtype::from_name(dtype);
            dtype.is_some_and(|dtype| model.layout(kind, Component::IndexK, dtype).is_some())
        };
        let known: Vec<&str> = Dtype::NAMES.iter().filter(has).copied().collect();
        let what = format!("{} has no layout for index keys of kind `{kind}` as {}", model.name, told.value);
        let help = "choose one of these, or add a `[[layout]]` to a model file of your own";
        return Err(wrong(Code::UnknownName, what, format!("one of {}", known.join(", ")), help));
    }
    Ok(())
}

fn rules(said: &Said, source: Option<&SourceFile>) -> Result<RuleSet, Failure> {
    let mut drops = RuleSet::EMPTY;
    for told in said.drop.iter().flatten() {
        let found = dropped([told.value.as_str()]).map_err(|(text, why)| {
            let why = failure::why_no_rule(&text, &why);
            match &told.span {
                None => Failure::Rule { text, why },
                Some(_) => {
                    let (what, rest) = why.split_once('\n').unwrap_or((&why, ""));
                    let (expected, help) = match rest.split_once(": ") {
                        Some(("expected", expected)) => (expected, ""),
                        Some(("help", help)) => ("", help),
                        _ => ("", rest),
                    };
                    let (expected, help) = (expected.to_owned(), help.to_owned());
                    Wrong { code: Code::UnknownName, what, expected, help }.with("drop", Some(told), source)
                }
            }
        })?;
        drops = drops.union(found);
    }
    Ok(drops)
}

/// The sizes of the pools, and whether the workload can be played with them.
fn pools(workload: &mut Workload, said: &Said, source: Option<&SourceFile>) -> Result<(), Failure> {
    let wrong = |key: &str, told: &Option<Told<Pool>>, code, what: String, help: &str| {
        Wrong { code, what: &what, expected: String::new(), help: help.to_owned() }.with(key, told.as_ref(), source)
    };
    if said.decode_pages.is_some() && !workload.split {
        let what = "there is no decode engine by itself".to_owned();
        let help = "split the engines, or leave the pages of the decode engine out";
        return Err(wrong("decode_pages", &said.decode_pages, Code::Conflict, what, help));
    }
    let peak = u64::from(workload.pages_peak());
    let pages = |told: &Option<Told<Pool>>| match value(told) {
        Some(Pool::Pages(pages)) => pages,
        Some(Pool::Percent(percent)) => u32::try_from((peak * u64::from(percent)).div_ceil(100)).unwrap_or(u32::MAX),
        None => peak as u32,
    };
    workload.device_pages = pages(&said.device_pages);
    workload.host_pages = pages(&said.host_pages);
    workload.decode_pages = if workload.split { pages(&said.decode_pages) } else { 0 };
    let bytes = pool_bytes(workload);
    if bytes > POOL_BYTES_MAX {
        let (took, most) = (bytes >> 30, POOL_BYTES_MAX >> 30);
        let why = format!(
            "the pools would take {took} GiB, more than {most} GiB\n\
             help: choose fewer sessions, rounds, layers or tokens, or smaller pools"
        );
        return Err(Failure::Run(why));
    }
    match check(workload) {
        Ok(_) => Ok(()),
        Err(why @ RunError::Pool { .. }) => {
            let decode = matches!(why, RunError::Pool { pool, .. } if pool.contains("decode"));
            let (key, told) = match decode {
                true => ("decode_pages", &said.decode_pages),
                false => ("device_pages", &said.device_pages),
            };
            Err(wrong(key, told, Code::TooSmall, why.to_string(), "take more pages, or shorter sessions"))
        }
        Err(why @ (RunError::Shape(_) | RunError::Panicked { .. })) => {
            Err(Failure::Run(format!("{why}\nhelp: take other layers, or a model such as {MODEL}")))
        }
    }
}

/// Bytes of a page over all layers.
pub(crate) fn page_bytes(geometry: &Geometry) -> u64 {
    let bytes = |c: &kvweft_core::ComponentLayout| u64::from(c.layers.len()) * u64::from(c.layout.page_bytes());
    geometry.components.iter().map(bytes).sum()
}

/// Bytes of all pools.
fn pool_bytes(workload: &Workload) -> u64 {
    let host = if workload.cache { workload.host_pages } else { 0 };
    let pages = [workload.device_pages, host, workload.decode_pages];
    pages.iter().map(|pages| u64::from(*pages)).sum::<u64>().saturating_mul(page_bytes(&workload.geometry))
}
