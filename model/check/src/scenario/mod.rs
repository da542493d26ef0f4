//! Scenario files: what a world contains, what may go wrong in it, and what the explorer must find.
//!
//! The format is TOML; `docs/scenarios.md` documents every key. Everything that is wrong with a file is found in one go,
//! each [`Error`] with its line, what was expected, what came and what to do. Errors are [`miette::Diagnostic`]s; the
//! program chooses the renderer, and [`render_plain`] needs none.
//!
//! Architecture invariant: nothing here knows the manager. Rules and properties are names that the caller passes in.

mod choices;
mod digest;
mod document;
mod error;
mod import;
mod layers;
mod model;
mod names;
mod nearest;
mod read;
mod reader;
mod requests;
pub mod schema;
mod sources;
mod types;
mod verify;
mod words;

use std::path::{Path, PathBuf};

pub use choices::{Component, Dtype, Grain, LogFormat, Roles, Scale, Side, Verdict, WritePolicy};
pub use error::{Code, Error, Errors, SourceFile, render_plain};
pub use import::{Folding, Imported, Pick, import};
pub use model::{Layout, ModelFile};
pub use names::{Names, RuleName};
pub use nearest::nearest;
pub use sources::{Beside, Embedded, ModelSource, Text};
pub use types::{
    Abort, DroppedRule, Expect, Faults, Flush, Import, Layer, Model, REQUESTS_MAX, Request, Scenario, World,
};

use document::{FILE_BYTES_MAX, document};
use reader::{Reader, Table};

/// Parses a scenario; `name` is its path or file name, and what diagnostics call it.
///
/// # Errors
/// Everything that is wrong with the text and the files it names.
pub fn parse(name: &str, text: &str, names: &Names<'_>, sources: &dyn ModelSource) -> Result<Scenario, Errors> {
    let source = SourceFile::new(name, text);
    let tree = document(&source).map_err(|errors| Errors::new(errors).expect("a refused document has an error"))?;
    let mut reader = Reader::new(&source);
    let scenario = if reader.format_is_known("scenario", tree.get_ref()) {
        let top = reader.table("scenario", 0..0, tree.get_ref());
        scenario(&mut reader, &top, names, sources)
    } else {
        None
    };
    match (Errors::new(reader.errors), scenario) {
        (Some(errors), _) => Err(errors),
        (None, Some(scenario)) => Ok(Scenario { name: stem(name), ..scenario }),
        (None, None) => unreachable!("an absent value is always noted"),
    }
}

/// Loads a scenario file. Model files and logs are looked for beside it, then among the built-in ones.
///
/// # Errors
/// When it cannot be read, and everything that is wrong with it.
pub fn load(path: &Path, names: &Names<'_>) -> Result<Scenario, Errors> {
    let text = sources::read(path, FILE_BYTES_MAX as u64)?;
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    parse(&text.name, &text.text, names, &Beside { folder })
}

/// Loads every `*.toml` directly in a folder but `Cargo.toml`, sorted by file name.
///
/// # Errors
/// When the folder cannot be read or has no scenario, and everything that is wrong with its files.
pub fn load_folder(path: &Path, names: &Names<'_>) -> Result<Vec<Scenario>, Errors> {
    let folder = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such folder".to_owned(),
            _ => format!("the folder cannot be read: {error}"),
        };
        Error::whole(&folder, Code::Unreadable, what).help("check the path and its permissions")
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        // The folder may be a crate: its manifest is no scenario.
        let manifest = file.file_name().is_some_and(|name| name == "Cargo.toml");
        if file.extension().is_some_and(|extension| extension == "toml") && file.is_file() && !manifest {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        let error = Error::whole(&folder, Code::Empty, "the folder has no scenario")
            .expected("files whose names end in .toml")
            .help("name another folder, or a scenario file");
        return Err(error.into());
    }
    all(files.iter().map(|file| load(file, names)))
}

/// The built-in scenarios, sorted by name.
///
/// # Errors
/// Everything that is wrong with them: rules that the caller does not know, for instance.
pub fn load_embedded(names: &Names<'_>) -> Result<Vec<Scenario>, Errors> {
    all(kvweft_scenarios::SCENARIOS.iter().map(|file| embedded(file, names)))
}

/// The built-in scenario of that name; `None` when there is none.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_embedded_one(name: &str, names: &Names<'_>) -> Option<Result<Scenario, Errors>> {
    let file = kvweft_scenarios::SCENARIOS.iter().find(|file| file.name == name)?;
    Some(embedded(file, names))
}

fn embedded(file: &kvweft_scenarios::File, names: &Names<'_>) -> Result<Scenario, Errors> {
    parse(&format!("<built in>/{}.toml", file.name), file.text, names, &Embedded)
}

/// All scenarios, or all errors.
fn all(results: impl Iterator<Item = Result<Scenario, Errors>>) -> Result<Vec<Scenario>, Errors> {
    let (mut scenarios, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(scenario) => scenarios.push(scenario),
            Err(found) => errors.extend(found.into_vec()),
        }
    }
    Errors::new(errors).map_or(Ok(scenarios), Err)
}

/// The file's name without folder and `.toml`.
fn stem(name: &str) -> String {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    file.strip_suffix(".toml").unwrap_or(file).to_owned()
}

/// Reads the whole file; `name` is left empty.
fn scenario(
    reader: &mut Reader<'_>,
    top: &Table<'_>,
    names: &Names<'_>,
    sources: &dyn ModelSource,
) -> Option<Scenario> {
    reader.integer(top, "format");
    let title = reader.text(top, "title");
    let source = reader.text(top, "source");
    let story = reader.text(top, "story").map_or(String::new(), |story| story.value.trim().to_owned());
    let tags = reader.names(top, "tags", 24).into_iter().map(|tag| tag.value).collect();
    let world = reader.section(top, "world", "world").and_then(|table| read::world(reader, &table));
    let roles = world.as_ref().map(|world| world.roles);
    let model = reader.section(top, "model", "model").and_then(|table| layers::model(reader, &table, roles, sources));
    let (placed, import) = requests::requests(reader, top, sources);
    verify::requests(reader, &placed);
    if let Some(world) = &world {
        verify::sizes(reader, world, &placed, import.as_ref());
    }
    let faults = reader.section(top, "faults", "faults").map(|table| read::faults(reader, &table, &placed, roles));
    let drop = reader.section(top, "drop", "drop").map(|table| read::drop(reader, &table, names));
    let (properties, states_max, reduce) = checked(reader, top, names);
    let expect =
        reader.section(top, "expect", "expect").and_then(|table| read::expect(reader, &table, names, &properties));
    Some(Scenario {
        name: String::new(),
        title: title?.value,
        source: source?.value,
        story,
        tags,
        model: model?,
        world: world?,
        requests: placed.into_iter().map(|placed| placed.request).collect(),
        import,
        faults: faults.unwrap_or_default(),
        drop: drop.unwrap_or_default(),
        properties,
        states_max: states_max?,
        reduce: reduce?,
        expect,
    })
}

/// The properties of [check], sorted, its limit, and whether it asks for a reduced search.
fn checked(reader: &mut Reader<'_>, top: &Table<'_>, names: &Names<'_>) -> (Vec<String>, Option<u64>, Option<bool>) {
    let Some(table) = reader.section(top, "check", "check") else {
        let schema::Default::Integer(states_max) = schema::key("check", "max_states").default else {
            unreachable!("the schema gives the limit a default")
        };
        return (Vec::new(), Some(states_max), Some(false));
    };
    let properties = read::properties(reader, &table, "properties", names);
    let mut properties: Vec<String> = properties.into_iter().map(|property| property.value).collect();
    properties.sort();
    let states_max = reader.integer(&table, "max_states").map(|states| states.value);
    (properties, states_max, reader.flag(&table, "reduce").map(|flag| flag.value))
}
