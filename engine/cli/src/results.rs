//! Results of numbered parts of one work, as lines of JSON: a header that says what the work is, then one line a cell. So parts
//! that were done apart can be put together.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;

/// What a header may begin with.
const FORMATS: [&str; 2] = ["kvweft-sweep", "kvweft-seeds"];

/// The results of some cells, under a header that is the same for all of one work.
pub(crate) struct Results {
    pub(crate) header: Value,
    pub(crate) cells: BTreeMap<u64, Value>,
}

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the results", &error))?;
        let wrong = |line: usize, message: &str| Failure::Trace {
            path: path.to_owned(),
            line,
            message: format!(
                "{message}\nhelp: `kvweft sweep --out FILE` and `kvweft simulate --out FILE` write such files"
            ),
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, serde_json::from_str::<Value>(line)));
        let header = match lines.next() {
            Some((_, Ok(header))) if FORMATS.iter().any(|format| header["format"] == *format) => header,
            _ => return Err(wrong(1, "expected the header of results of a sweep or of seeds")),
        };
        if header["version"] != 1 || !header["cells"].is_u64() {
            return Err(wrong(1, &format!("expected version 1 of the results, got {}", header["version"])));
        }
        let mut results = Self { header, cells: BTreeMap::new() };
        for (number, line) in lines {
            let cell = line.as_ref().ok().and_then(|line| line["cell"].as_u64());
            match (cell, line) {
                (Some(cell), Ok(line)) if cell < results.count() => {
                    if results.cells.insert(cell, line).is_some() {
                        return Err(wrong(number, &format!("cell {cell} comes a second time")));
                    }
                }
                (_, Err(_)) => return Err(wrong(number, "expected a line of JSON; this one is cut short or damaged")),
                _ => return Err(wrong(number, &format!("expected a cell below {}", results.count()))),
            }
        }
        Ok(results)
    }

    pub(crate) fn count(&self) -> u64 {
        self.header["cells"].as_u64().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, first: &Path, path: &Path, other: Self) -> Result<(), Failure> {
        let wrong = |why: String| Failure::File { path: path.to_owned(), why };
        if other.header != self.header {
            let differ = self.header.as_object().into_iter().flatten();
            let differ =
                differ.filter(|(key, value)| other.header[key.as_str()] != **value).map(|(key, _)| key.as_str());
            let differ = differ.collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("it is of another work than {}: they differ in {differ}", first.display())));
        }
        for (number, cell) in other.cells {
            if self.cells.get(&number).is_some_and(|known| *known != cell) {
                return Err(wrong(format!(
                    "cell {number} came out otherwise before, and the results of a cell are always the same\n\
                     help: run both shards again with one version of kvweft"
                )));
            }
            self.cells.insert(number, cell);
        }
        Ok(())
    }

    pub(crate) fn write(&self, out: Option<&Path>) -> Result<(), Failure> {
        let lines = std::iter::once(&self.header).chain(self.cells.values()).map(|line| format!("{line}\n"));
        let text: String = lines.collect();
        let Some(path) = out else { return output::result(&text) };
        // Under its own name only when it is whole: a shard that was stopped leaves nothing that looks like a result.
        output::to_file(path, "the results", &text)
    }

    pub(crate) fn exit_code(&self, missing: bool) -> ExitCode {
        let any = |key: &str, value: Value| self.cells.values().any(|cell| cell[key] == value);
        if any("unexpected", Value::Bool(true)) {
            ExitCode::from(1)
        } else if missing || any("answer", json!("inconclusive")) {
            ExitCode::from(3)
        } else {
            ExitCode::SUCCESS
        }
    }
}
