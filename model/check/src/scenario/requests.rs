//! `[[request]]` and `[requests]`: written out, or taken from a log.

use super::choices::LogFormat;
use super::error::Code;
use super::import::{Pick, import};
use super::reader::{At, Reader, Table};
use super::schema::key;
use super::sources::ModelSource;
use super::types::{Import, REQUESTS_MAX, Request};

/// A request and where it stands.
pub(super) struct Placed {
    pub(super) request: Request,
    pub(super) span: std::ops::Range<usize>,
    pub(super) name_span: std::ops::Range<usize>,
    pub(super) after_spans: Vec<std::ops::Range<usize>>,
}

/// `[[request]]` or `[requests]`.
pub(super) fn requests(
    reader: &mut Reader<'_>,
    top: &Table<'_>,
    sources: &dyn ModelSource,
) -> (Vec<Placed>, Option<Import>) {
    let written = reader.sections(top, "request", "request");
    let imported = reader.section(top, "requests", "requests");
    if top.has("request") && top.has("requests") {
        let error = reader.error(top.key_span("requests"), Code::Conflict, "both `[[request]]` and `[requests]`");
        error.expected = "one of them".to_owned();
        error.help = "write the requests out, or take them from a log".to_owned();
        return (Vec::new(), None);
    }
    if let Some(table) = imported {
        let Some(from) = reader.section(&table, "from", "requests.from") else {
            return (Vec::new(), None);
        };
        return from_log(reader, &from, sources);
    }
    if !top.has("request") {
        let error = reader.error(top.span.clone(), Code::MissingKey, "the scenario has no request");
        error.expected = "at least one `[[request]]`, or `[requests]`".to_owned();
        error.help = "add `[[request]]` with a name and a prompt".to_owned();
    } else if written.len() > REQUESTS_MAX {
        let error = reader.error(written[REQUESTS_MAX].span.clone(), Code::OutOfBounds, "too many requests");
        error.expected = format!("at most {REQUESTS_MAX}");
        error.found = written.len().to_string();
        error.help = "a world of this size cannot be explored: use fewer requests".to_owned();
    }
    let requests = written.iter().filter_map(|table| request(reader, table)).collect();
    (requests, None)
}

fn request(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<Placed> {
    let name = reader.text(table, "name");
    let prompt = reader.names(table, "prompt", 16);
    let output = reader.names(table, "output", 16);
    let after = reader.names(table, "after", 24);
    let retries = reader.integer(table, "retries");
    let priority = reader.integer(table, "priority");
    let (name, retries, priority) = (name?, retries?, priority?);
    let values = |list: Vec<At<String>>| list.into_iter().map(|at| at.value).collect::<Vec<_>>();
    Some(Placed {
        span: table.span.clone(),
        name_span: name.span,
        after_spans: after.iter().map(|at| at.span.clone()).collect(),
        request: Request {
            name: name.value,
            prompt: values(prompt),
            output: values(output),
            after: values(after),
            retries: retries.value as u32,
            priority: priority.value as u32,
        },
    })
}

/// `requests.from`.
fn from_log(reader: &mut Reader<'_>, from: &Table<'_>, sources: &dyn ModelSource) -> (Vec<Placed>, Option<Import>) {
    let Some((file, format, pick)) = pick(reader, from) else {
        return (Vec::new(), None);
    };
    let text = match sources.data(&file.value) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let names = sources.data_names();
            let what = "there is no request log of this name";
            reader.unknown_name(file.span, what, &file.value, names.iter().map(String::as_str));
            return (Vec::new(), None);
        }
        Err(errors) => {
            super::layers::refused(reader, &file, errors);
            return (Vec::new(), None);
        }
    };
    match import(&text.name, &text.text, &pick) {
        Ok(imported) => {
            let place = |request| Placed {
                request,
                span: from.span.clone(),
                name_span: from.span.clone(),
                after_spans: Vec::new(),
            };
            let requests = imported.requests.into_iter().map(place).collect();
            (requests, Some(Import { file: file.value, format, folding: imported.folding }))
        }
        Err(errors) => {
            reader.errors.extend(errors.into_vec());
            (Vec::new(), None)
        }
    }
}

fn pick(reader: &mut Reader<'_>, from: &Table<'_>) -> Option<(At<String>, LogFormat, Pick)> {
    let file = reader.text(from, "file");
    let format = reader.choice(from, "format", LogFormat::from_name);
    let rows = rows(reader, from);
    let sessions = reader.integer(from, "sessions");
    let skip = reader.integer(from, "skip");
    let turns = reader.integer(from, "turns");
    let blocks_max = reader.integer(from, "max_blocks").map(|n| n.value as usize);
    let format = format?.value;
    let (needed, foreign): (_, &[&str]) = match format {
        LogFormat::Mooncake => ("rows", &["sessions", "skip", "turns"]),
        LogFormat::Sessions => ("turns", &["rows"]),
    };
    if !from.has(needed) {
        reader.missing_key(&from.span, key("requests.from", needed));
    }
    for name in foreign.iter().filter(|name| from.has(name)) {
        let what = format!("`requests.from.{name}` has no meaning for the format \"{format}\"");
        let error = reader.error(from.key_span(name), Code::Conflict, what);
        error.expected = format!("`{needed}`");
        error.help = format!("remove `{name}`");
    }
    let pick = match format {
        LogFormat::Mooncake => Pick::Mooncake { rows: rows?, blocks_max },
        LogFormat::Sessions => Pick::Sessions {
            skip: skip?.value as usize,
            sessions: sessions?.value as usize,
            turns: turns?.value as usize,
            blocks_max,
        },
    };
    let file = file?;
    reader.errors.is_empty().then_some((file, format, pick))
}

/// Row numbers, each once and in order.
fn rows(reader: &mut Reader<'_>, from: &Table<'_>) -> Option<Vec<usize>> {
    let element = super::schema::Key {
        kind: super::schema::Kind::Integer { min: 0, max: 10_000_000 },
        ..*key("requests.from", "rows")
    };
    let mut rows: Vec<usize> = Vec::new();
    for value in reader.list(from, "rows") {
        let row = reader.integer_of(&element, value)?;
        let number = row.value as usize;
        if rows.last().is_some_and(|last| *last >= number) {
            let error = reader.error(row.span, Code::OutOfBounds, "row numbers must grow");
            error.expected = "each row once, in the order of the log".to_owned();
            error.found = number.to_string();
            error.help = "sort the list and name each row once".to_owned();
        }
        rows.push(number);
    }
    Some(rows)
}
