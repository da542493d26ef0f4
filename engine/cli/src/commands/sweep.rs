//! `kvweft sweep` and `kvweft merge`. Results are lines of JSON: a header that says what is swept, then one line a cell.

use std::collections::BTreeMap;
use std::process::ExitCode;

use kvweft_check::explore::Options;
use kvweft_check::sweep::{Answer, Cell, Drops, Sweep};
use kvweft_check::verdict::Settings;
use serde_json::{Value, json};

use crate::args;
use crate::commands::bounded::walks;
use crate::failure::Failure;
use crate::results::Results;
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
    // Every cell of a file is below the count, so as many are missing as it is greater.
    let missing = merged.count() - merged.cells.len() as u64;
    if missing != 0 {
        let absent = (0..merged.count()).filter(|number| !merged.cells.contains_key(number));
        let shown = absent.take(20).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
        let more = if missing > 20 { ", .." } else { "" };
        output::note(&format!("{missing} of {} cells are missing: {shown}{more}", merged.count()));
    }
    Ok(merged.exit_code(missing != 0))
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
