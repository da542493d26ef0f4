//! A trace without the names that somebody gave: of the scenario, its requests and its blocks.

use std::collections::HashMap;
use std::path::Path;

use kvweft_check::build::with_names;
use kvweft_check::scenario;
use kvweft_trace::TraceFile;

use crate::failure::Failure;

/// Names become `r1`, `r2` and so on, and `A`, `B` and so on, in the order in which requests are submitted. A trace of a
/// built-in scenario names nothing of anybody's, and stays as it is.
pub(super) fn redacted(path: &Path, text: &str) -> Result<String, Failure> {
    let mut trace = TraceFile::parse(text).map_err(|error| Failure::Trace {
        path: path.to_owned(),
        line: error.line,
        message: error.message,
    })?;
    let built_in = with_names(|known| scenario::load_embedded_one(&trace.scenario, known));
    if let Some(built_in) = built_in
        && built_in?.digest() == trace.digest
    {
        return Ok(trace.to_string());
    }
    let names = names(&trace);
    trace.scenario = "redacted".to_owned();
    // It is computed from the scenario, names and all.
    trace.digest = String::new();
    trace.detail = replaced(&trace.detail, &names);
    for step in &mut trace.steps {
        step.action = replaced(&step.action, &names);
        step.result = replaced(&step.result, &names);
    }
    Ok(trace.to_string())
}

/// What each name of a request or a block becomes: `submit NAME [BLOCK .. | BLOCK ..]` shows them all.
fn names(trace: &TraceFile) -> HashMap<String, String> {
    let (mut requests, mut blocks): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let operations = trace.steps.iter().flat_map(|step| step.action.split("; "));
    for submitted in operations.filter_map(|operation| operation.strip_prefix("submit ")) {
        let mut words = submitted.split([' ', '[', ']', '|']).filter(|word| !word.is_empty());
        requests.extend(words.next().filter(|name| !requests.contains(name)));
        for word in words {
            if !blocks.contains(&word) {
                blocks.push(word);
            }
        }
    }
    let requests = requests.iter().enumerate().map(|(at, name)| ((*name).to_owned(), format!("r{}", at + 1)));
    let letters = |at: usize| {
        let letter = char::from(b'A' + (at % 26) as u8);
        if at < 26 { letter.to_string() } else { format!("{letter}{}", at / 26) }
    };
    let blocks = blocks.iter().enumerate().map(|(at, name)| ((*name).to_owned(), letters(at)));
    requests.chain(blocks).collect()
}

/// Whole words alone: names have letters, digits, `-`, `_` and `.`.
fn replaced(text: &str, names: &HashMap<String, String>) -> String {
    let of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !of_name(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        out += names.get(word).map_or(word, String::as_str);
        let next = behind.find(of_name).unwrap_or(behind.len());
        out += &behind[..next];
        rest = &behind[next..];
    }
    out
}
