//! `kvweft bench`.

use std::process::ExitCode;

use kvweft_cuda::Gpu;
use kvweft_cuda::selftest::{Measurement, Outcome, Part, Report, Work, selftest};
use serde_json::{Value, json};

use super::beside_torch::{self, Answer, Times};
use super::selftest::header;
use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output;
use crate::table::table;

/// Runs the command.
pub(crate) fn run(args: &args::Bench) -> Result<ExitCode, Failure> {
    let args::SelftestOn::Cuda = args.on;
    let gpu = Gpu::open(args.device).map_err(Failure::Gpu)?;
    let first_line = header(&gpu);
    let report = selftest(&gpu, Part::Measurements, args.max_device_memory, &mut |check| {
        output::note(&check.to_string());
    });
    // Its memory and its context are gone before another process measures.
    drop(gpu);
    let answer = args.beside.map(|args::Beside::Torch| {
        output::note("the same in PyTorch");
        let works: Vec<Work> = report.measurements.iter().filter_map(|measurement| measurement.work).collect();
        beside_torch::time(args.device, &works)
    });
    if let Some(Answer::Missing { missing }) = &answer {
        output::note(&format!("nothing beside: {missing}"));
    }
    let document = serde_json::to_string_pretty(&document(&report, answer.as_ref())).expect("it has no keys but texts");
    match args.format {
        Format::Text => output::result(&(first_line + &text(&report, answer.as_ref())))?,
        Format::Json => output::result(&format!("{document}\n"))?,
    }
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the folder", &error))?;
        let path = folder.join("bench.json");
        std::fs::write(&path, document + "\n").map_err(|error| Failure::io(&path, "write the report", &error))?;
        output::note(&format!("the report is in {}", path.display()));
    }
    Ok(ExitCode::from(u8::from(!report.passed())))
}

/// Each measurement with its times in the other library, if there are any.
fn pairs<'a>(report: &'a Report, answer: Option<&Answer>) -> Vec<(&'a Measurement, Option<Times>)> {
    let mut times = match answer {
        Some(Answer::Timed { times, .. }) => times.clone(),
        _ => Vec::new(),
    }
    .into_iter();
    let beside = |measurement: &Measurement| measurement.work.and_then(|_| times.next()).flatten();
    report
        .measurements
        .iter()
        .map({
            let mut beside = beside;
            move |measurement| (measurement, beside(measurement))
        })
        .collect()
}

fn text(report: &Report, answer: Option<&Answer>) -> String {
    let micro = |us: f64| format!("{us:.1}");
    let rows: Vec<Vec<String>> = pairs(report, answer)
        .into_iter()
        .map(|(measurement, beside)| {
            let share = 100.0 * measurement.roofline_microseconds / measurement.microseconds;
            let mut row = vec![
                measurement.name.clone(),
                measurement.shape.clone(),
                micro(measurement.microseconds),
                format!("{share:.1} %"),
                measurement.launched_microseconds.map_or_else(String::new, micro),
            ];
            if let Some(times) = beside {
                let (graph, launched) = (times.graph_ns as f64 / 1e3, times.launched_ns as f64 / 1e3);
                let ours = measurement.launched_microseconds.unwrap_or(measurement.microseconds);
                row.extend([micro(graph), micro(launched)]);
                row.push(format!("{:.1} x, {:.1} x", graph / measurement.microseconds, launched / ours));
            }
            row
        })
        .collect();
    let mut header = vec!["kernel", "shape", "us in a graph", "of roofline", "us launched"];
    if matches!(answer, Some(Answer::Timed { .. })) {
        header.extend(["PyTorch in a graph", "launched", "faster"]);
    }
    let calibration = report.calibration.as_ref().map_or_else(String::new, |found| format!("copies: {found}\n"));
    let failed: String = report
        .checks
        .iter()
        .map(|check| match &check.outcome {
            Outcome::Failed { why } => format!("FAILED {}: {why}\n", check.name),
            _ => String::new(),
        })
        .collect();
    table(&header, &rows) + &calibration + &failed
}

fn document(report: &Report, answer: Option<&Answer>) -> Value {
    let nano = |us: f64| (us * 1e3).round() as u64;
    let measurements: Vec<Value> = pairs(report, answer)
        .into_iter()
        .map(|(measurement, beside)| {
            json!({
                "name": measurement.name,
                "shape": measurement.shape,
                "work": measurement.work,
                "bytes": measurement.bytes,
                "graph_ns": nano(measurement.microseconds),
                "launched_ns": measurement.launched_microseconds.map(nano),
                "roofline_ns": nano(measurement.roofline_microseconds),
                "beside_graph_ns": beside.map(|times| times.graph_ns),
                "beside_launched_ns": beside.map(|times| times.launched_ns),
            })
        })
        .collect();
    let beside = answer.map(|answer| match answer {
        Answer::Timed { version, .. } => json!({ "library": "torch", "version": version, "missing": null }),
        Answer::Missing { missing } => json!({ "library": "torch", "version": null, "missing": missing }),
    });
    let failed: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| matches!(check.outcome, Outcome::Failed { .. }))
        .map(|check| check.name.as_str())
        .collect();
    json!({
        "format": "kvweft-bench",
        "version": 1,
        "gpu": report.gpu,
        "beside": beside,
        "measurements": measurements,
        "calibration": report.calibration,
        "failed": failed,
    })
}
