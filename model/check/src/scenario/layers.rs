//! `[model]`: takes a few layers out of a model file.

use super::choices::{Component, Dtype, Roles};
use super::error::{Code, Errors};
use super::model::ModelFile;
use super::read::split_only;
use super::reader::{At, Reader, Table};
use super::schema::key;
use super::sources::ModelSource;
use super::types::{Layer, Model};

/// Reads the section; `roles` is `None` when [world] was refused.
pub(super) fn model(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    roles: Option<Roles>,
    sources: &dyn ModelSource,
) -> Option<Model> {
    let file = reader.text(table, "file");
    let index_k = reader.choice(table, "index_k", Dtype::from_name);
    let decode_index_k = reader.choice(table, "decode_index_k", Dtype::from_name);
    if roles == Some(Roles::Together) {
        split_only(reader, table, "decode_index_k");
    }
    let file = file?;
    let geometry = geometry(reader, &file, sources)?;
    let picked = pick(reader, table, &geometry);
    let kinds: Vec<&str> = picked.iter().map(|index| geometry.layers[*index].as_str()).collect();
    for wanted in [&index_k, &decode_index_k].into_iter().flatten() {
        index_fits(reader, wanted, &geometry, &kinds);
    }
    let index_k = index_k.map(|dtype| dtype.value).or(geometry.index_k_dtype);
    let decode_index_k = decode_index_k.map(|dtype| dtype.value).or(index_k);
    let layers = picked.iter().map(|index| {
        let kind = &geometry.layers[*index];
        let layout = |component, dtype: Option<Dtype>| geometry.layout(kind, component, dtype?).cloned();
        Some(Layer {
            index: *index as u32,
            kind: kind.clone(),
            kv: layout(Component::Kv, Some(geometry.kv_dtype))?,
            index_k: layout(Component::IndexK, index_k),
            decode_index_k: layout(Component::IndexK, decode_index_k),
        })
    });
    let layers = layers.collect::<Option<Vec<Layer>>>()?;
    Some(Model { file: file.value, geometry, layers })
}

/// The model file that the scenario names.
fn geometry(reader: &mut Reader<'_>, file: &At<String>, sources: &dyn ModelSource) -> Option<ModelFile> {
    match sources.model(&file.value) {
        Ok(Some(text)) => match ModelFile::parse(&text.name, &text.text) {
            Ok(model) => Some(model),
            Err(errors) => {
                reader.errors.extend(errors.into_vec());
                None
            }
        },
        Ok(None) => {
            let names = sources.model_names();
            let names = names.iter().map(String::as_str);
            reader.unknown_name(file.span.clone(), "there is no model file of this name", &file.value, names);
            None
        }
        Err(errors) => {
            refused(reader, file, errors);
            None
        }
    }
}

/// Notes that a file which the scenario names cannot be used: at its name, unless the error has a line of its own.
pub(super) fn refused(reader: &mut Reader<'_>, file: &At<String>, errors: Errors) {
    for error in errors.into_vec() {
        if error.line > 0 {
            reader.errors.push(error);
            continue;
        }
        let note = reader.error(file.span.clone(), error.code, error.what);
        note.expected = error.expected;
        note.found = if error.found.is_empty() { error.file } else { format!("{} in {}", error.found, error.file) };
        note.help = error.help;
    }
}

/// The layers named by kind or index. They keep the model's order: each entry is looked for behind the one before.
fn pick(reader: &mut Reader<'_>, table: &Table<'_>, geometry: &ModelFile) -> Vec<usize> {
    let mut picked: Vec<usize> = Vec::new();
    let indices = super::schema::Key {
        kind: super::schema::Kind::Integer { min: 0, max: geometry.layers.len() as u64 - 1 },
        ..*key("model", "layers")
    };
    let kinds = super::schema::Key { kind: super::schema::Kind::Name { chars_max: 24 }, ..indices };
    for value in reader.list(table, "layers") {
        let next = picked.last().map_or(0, |last| last + 1);
        let index = if value.get_ref().is_integer() {
            let Some(index) = reader.integer_of(&indices, value) else {
                continue;
            };
            (index.value as usize >= next).then_some(index.value as usize)
        } else {
            let Some(kind) = reader.text_of(&kinds, value) else {
                continue;
            };
            if !geometry.layers.contains(&kind.value) {
                let what = format!("the model {} has no layers of this kind", geometry.name);
                reader.unknown_name(kind.span, what, &kind.value, geometry.kinds().into_iter());
                continue;
            }
            (next..geometry.layers.len()).find(|index| geometry.layers[*index] == kind.value)
        };
        match index {
            Some(index) => picked.push(index),
            None => {
                let error = reader.error(value.span(), Code::Conflict, "no such layer is left behind the ones before");
                error.expected = format!("layers in the model's order, each once, from {next} on");
                error.help = "sort the list as the model's layers are, and take each layer once".to_owned();
            }
        }
    }
    picked
}

/// The wanted dtype of index-K means something for the layers taken.
fn index_fits(reader: &mut Reader<'_>, wanted: &At<Dtype>, geometry: &ModelFile, kinds: &[&str]) {
    let indexed: Vec<&str> = kinds.iter().copied().filter(|kind| geometry.has(kind, Component::IndexK)).collect();
    if indexed.is_empty() && !kinds.is_empty() {
        let what = format!("no layer taken from {} has index-K", geometry.name);
        let error = reader.error(wanted.span.clone(), Code::Conflict, what);
        error.found = format!("\"{}\"", wanted.value);
        error.help = "take a layer that has an indexer, or remove the key".to_owned();
    }
    let lacks = |kind: &&&str| geometry.layout(kind, Component::IndexK, wanted.value).is_none();
    if let Some(kind) = indexed.iter().find(lacks) {
        let known =
            geometry.layouts.iter().filter(|l| l.component == Component::IndexK && l.kinds.iter().any(|k| k == kind));
        let known: Vec<&str> = known.map(|layout| layout.dtype.name()).collect();
        let what = format!("{} has no layout for index-K of kind \"{kind}\" as {}", geometry.name, wanted.value);
        let error = reader.error(wanted.span.clone(), Code::UnknownName, what);
        error.expected = format!("one of {}", known.join(", "));
        error.found = format!("\"{}\"", wanted.value);
        error.help = "choose one of these, or add a `[[layout]]` to the model file".to_owned();
    }
}
