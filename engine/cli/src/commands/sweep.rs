//! `kvweft sweep` and `kvweft merge`. Results are lines of JSON: a header that says what is swept, then one line a cell.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use kvweft_check::explore::Options;
use kvweft_check::sweep::{Answer, Cell, Drops, Sweep};
use kvweft_check::verdict::Settings;
use serde_json::{Value, json};

use crate::args;
use crate::commands::bounded::walks;
use crate::failure::Failure;
use crate::{input, json, output};

/// Runs `kvweft sweep`.
pub(crate) fn run(args: &args::Sweep) -> Result<ExitCode, Failure> {
    input::rules(&args.drop)?;
    let explore = Options {
        states_max: args.max_states,
        table_bytes_max: args.max_memory,
        threads: usize::from(args.threads),
        ..Options::default()
    };
    let sweep = Sweep {
        scenarios: input::scenarios(&args.scenarios, args.tag.as_deref())?,
        drops: match (args.each_rule, args.drop.is_empty()) {
            (true, _) => Drops::Each,
            (false, true) => Drops::AsWritten,
            (false, false) => Drops::Listed(args.drop.clone()),
        },
        settings: Settings { explore, drop: None, only: None, grain: args.grain.map(input::grain) },
        walks: args.walk.map(|walk| walks(walk, args.walks)),
        seeds: args.seeds,
    };
    let mut cells = BTreeMap::new();
    sweep.run(args.shard, &mut |cell| {
        output::note(&format!("cell {} of {}: {}", cell.number + 1, sweep.cells(), cell.scenario));
        cells.insert(cell.number, line(&cell));
    });
    let results = Results { header: header(&sweep, args), cells };
    results.write(args.out.as_deref())?;
    Ok(results.exit_code(false))
}

/// Runs `kvweft merge`.
pub(crate) fn merge(args: &args::Merge) -> Result<ExitCode, Failure> {
    let mut files = args.files.iter();
    let first = files.next().expect("at least one file is required");
    let mut merged = Results::read(first)?;
    for path in files {
        merged.add(first, path, Results::read(path)?)?;
    }
    merged.write(args.out.as_deref())?;
    let missing: Vec<String> =
        (0..merged.count()).filter(|number| !merged.cells.contains_key(number)).map(|n| n.to_string()).collect();
    if !missing.is_empty() {
        let shown = missing.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
        let more = if missing.len() > 20 { ", .." } else { "" };
        output::note(&format!("{} of {} cells are missing: {shown}{more}", missing.len(), merged.count()));
    }
    Ok(merged.exit_code(!missing.is_empty()))
}

/// What is swept: equal for all shards of one sweep, and for no other.
fn header(sweep: &Sweep, args: &args::Sweep) -> Value {
    let scenarios: Vec<Value> =
        sweep.scenarios.iter().map(|scenario| json!({ "name": scenario.name, "digest": scenario.digest() })).collect();
    let drops = match &sweep.drops {
        Drops::AsWritten => json!("as-written"),
        Drops::Each => json!("each"),
        Drops::Listed(rules) => json!(rules),
    };
    json!({
        "format": "kvweft-sweep",
        "version": 1,
        "cells": sweep.cells(),
        "scenarios": scenarios,
        "drops": drops,
        "grain": sweep.settings.grain.map(json::grain),
        "max_states": args.max_states,
        "max_memory": args.max_memory,
        "walk": sweep.walks.map(|walks| walks.strategy.to_string()),
        "walks": sweep.walks.map(|walks| walks.walks),
        "depth": sweep.walks.map(|walks| walks.steps_max),
        "seed": sweep.walks.map(|walks| walks.seed),
        "seeds": sweep.seeds,
    })
}

fn line(cell: &Cell) -> Value {
    json!({
        "cell": cell.number,
        "scenario": cell.scenario,
        "drops": cell.drops,
        "seed": cell.seed,
        "answer": match cell.answer {
            Answer::Holds => "holds",
            Answer::Violated => "violated",
            Answer::Inconclusive => "inconclusive",
        },
        "violates": cell.violates,
        "states": cell.states,
        "steps": cell.steps,
        "unexpected": cell.unexpected,
    })
}

/// The results of some cells of a sweep.
struct Results {
    header: Value,
    cells: BTreeMap<u64, Value>,
}

impl Results {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the results", &error))?;
        let wrong = |line: usize, message: &str| Failure::Trace {
            path: path.to_owned(),
            line,
            message: format!("{message}\nhelp: `kvweft sweep --out FILE` writes such files"),
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, serde_json::from_str::<Value>(line)));
        let header = match lines.next() {
            Some((_, Ok(header))) if header["format"] == "kvweft-sweep" => header,
            _ => return Err(wrong(1, "expected the header of results of a sweep")),
        };
        if header["version"] != 1 || !header["cells"].is_u64() {
            return Err(wrong(1, &format!("expected version 1 of the results of a sweep, got {}", header["version"])));
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
                _ => return Err(wrong(number, &format!("expected a cell below {}", results.count()))),
            }
        }
        Ok(results)
    }

    fn count(&self) -> u64 {
        self.header["cells"].as_u64().unwrap_or_default()
    }

    fn add(&mut self, first: &Path, path: &Path, other: Self) -> Result<(), Failure> {
        let wrong = |why: String| Failure::File { path: path.to_owned(), why };
        if other.header != self.header {
            let differ = self.header.as_object().into_iter().flatten();
            let differ =
                differ.filter(|(key, value)| other.header[key.as_str()] != **value).map(|(key, _)| key.as_str());
            let differ = differ.collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("it is of another sweep than {}: they differ in {differ}", first.display())));
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

    fn write(&self, out: Option<&Path>) -> Result<(), Failure> {
        let lines = std::iter::once(&self.header).chain(self.cells.values()).map(|line| format!("{line}\n"));
        let text: String = lines.collect();
        let Some(path) = out else { return output::result(&text) };
        output::to_file(path, "the results", &text)
    }

    fn exit_code(&self, missing: bool) -> ExitCode {
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
