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
    let report = selftest(&gpu, Part::Measurements, "", args.max_device_memory, &mut |check| {
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
        output::to_file(&path, "the report", &(document + "\n"))?;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kvweft_cuda::selftest::{Check, Measurement};
    use kvweft_cuda::{Calibration, Direction, GpuInfo, RunRate, Way};

    use super::*;

    fn report() -> Report {
        let measurement = |name: &str, work| Measurement {
            name: name.to_owned(),
            shape: "1 x 4096".to_owned(),
            work,
            microseconds: 8.0,
            launched_microseconds: work.map(|_| 10.0),
            bytes: 16_384,
            roofline_microseconds: 0.8,
        };
        let way = |direction| Way {
            direction,
            big_rate: 55e9,
            ring_rate: 51e9,
            ring_blocks: 4,
            runs: vec![RunRate { run_bytes: 1 << 20, rate: 49e9 }],
            copy_engine_from: None,
        };
        let gpu = GpuInfo {
            ordinal: 0,
            name: "a GPU".to_owned(),
            architecture: "sm_90".to_owned(),
            kernels: "sm_90".to_owned(),
            driver_version: 13_000,
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            memory_bytes_per_second: 0,
        };
        let work = |k| Some(Work::TopK { rows: 1, len: 4096, k });
        Report {
            gpu,
            checks: vec![Check {
                name: "it".to_owned(),
                outcome: Outcome::Failed { why: "so".to_owned() },
                seconds: 1.0,
            }],
            faults: Vec::new(),
            measurements: vec![measurement("a", work(512)), measurement("b", None), measurement("c", work(2048))],
            calibration: Some(Calibration {
                page_bytes: 8448,
                ways: [way(Direction::HostToDevice), way(Direction::DeviceToHost)],
            }),
        }
    }

    fn answer() -> Answer {
        let times = vec![None, Some(Times { graph_ns: 40_000, launched_ns: 80_000 })];
        Answer::Timed { version: "2.11".to_owned(), times }
    }

    #[test]
    fn the_other_library_is_beside_the_work_that_it_did() {
        let text = text(&report(), Some(&answer()));
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a line each").to_owned();
        assert!(
            line("c ").ends_with("8.0            10.0 %       10.0         40.0                80.0      5.0 x, 8.0 x"),
            "{text}"
        );
        assert!(line("a ").ends_with("10.0") && !line("b ").contains(" x,"), "{text}");
        assert!(text.contains("copies: in: pages of 8448 by 4 blocks") && text.ends_with("FAILED it: so\n"), "{text}");
    }

    /// Field names of every object of the document are those that the schema asks for.
    #[test]
    fn the_document_has_the_fields_of_its_schema() {
        let schema: Value =
            serde_json::from_str(include_str!("../../../../docs/schemas/bench.schema.json")).expect("JSON");
        let document = document(&report(), Some(&answer()));
        let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
        let asked = |place: &str| {
            let list = schema.pointer(&format!("{place}/required")).and_then(Value::as_array).expect("a list");
            list.iter().map(|name| name.as_str().expect("a text").to_owned()).collect::<BTreeSet<_>>()
        };
        for (place, value) in [
            ("", &document),
            ("/$defs/gpu", &document["gpu"]),
            ("/$defs/beside", &document["beside"]),
            ("/$defs/measurement", &document["measurements"][0]),
            ("/$defs/calibration", &document["calibration"]),
            ("/$defs/way", &document["calibration"]["ways"][0]),
        ] {
            assert_eq!(names(value), asked(place), "{place}");
        }
        assert_eq!(document["measurements"][2]["beside_graph_ns"], 40_000);
        assert_eq!(document["failed"], json!(["it"]));
    }
}
