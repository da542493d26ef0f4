//! Runs every kernel on the device at hand and compares it with its reference on the host, bit for bit wherever the
//! reference promises bits; then measures each beside what the hardware could do.
//!
//! Inputs are random but always the same. Nothing is left behind: memory is freed when a check ends.

mod attend;
mod copies;
mod faults;
mod gates;
mod graph;
mod index;
mod lab;
mod overlap;
mod pages;
mod peers;
mod report;
mod select;
mod speed;
mod speed_copies;
mod tiers;
mod whole;

use std::time::Instant;

pub use faults::FaultNoticed;
pub use report::{Check, Measurement, Outcome, Report, Work};

use crate::calibrate::Calibration;
use crate::gpu::Gpu;
use crate::platform::CALIBRATED_PAGE;
use lab::{Fault, Lab};

/// A check: what was compared, or why it failed.
type Test = fn(&Lab) -> Result<String, Fault>;
/// Some measurements.
type Bench = fn(&Lab) -> Result<Vec<Measurement>, Fault>;

const TESTS: &[(&str, Test)] = &[
    ("index keys are written as on the host", index::write),
    ("logits of random keys agree with the host", index::logits_random),
    ("logits of integers equal the host's bits", index::logits_exact),
    ("logits on the portable way equal the host's bits", index::logits_portable),
    ("absent and poisoned pages show in logits", index::logits_absent),
    ("top-k of adversarial rows equals the host's", select::adversarial),
    ("top-k of a million logits equals the host's", select::million),
    ("top-k of random shapes equals the host's", select::random),
    ("sums of selected rows equal the host's", attend::sums),
    ("attention agrees with the host", attend::attention),
    ("attention over nothing, poison and a sink", attend::edges),
    ("attention on the portable way does too", attend::attention_portable),
    ("write, score, select, sum: equal to the host", whole::end_to_end),
    ("repeats have the same bits", whole::repeats),
    ("pages are copied with their checksums, both ways", copies::permutations),
    ("a copy touches its own bytes only", copies::guard_bands),
    ("reloads and offloads are the same on both paths", tiers::both_paths),
    ("pages reach another engine through the host", tiers::through_host),
    ("poison fills its pages, verify finds what changed", pages::poison_and_verify),
    ("pages beyond 4 GiB are found", pages::far_pages),
    ("other GPUs' memory can be addressed", peers::pages),
];

/// Those that let something run beside a held stream, which a tool that serialises all work of a device lets wait for ever.
const BESIDE: &[(&str, Test)] =
    &[("gates hold a stream", gates::gates), ("first launches do not wait for a held stream", gates::first_launch)];

const FAULTS: &str = "every injected fault is noticed, and nothing without";
const CALIBRATION: &str = "copies are calibrated";

const BENCHES: &[(&str, Bench)] = &[
    ("speed of the device's memory", speed::memory),
    ("speed of index keys", speed::index),
    ("speed of top-k", speed::top_k),
    ("speed of attention", speed::attention),
    ("speed of page care", speed::pages),
    ("speed of copies from and to the host", speed_copies::copies),
    ("a reload beside a forward", overlap::reload),
    ("speed of copies to another GPU", peers::rates),
];

/// What of a self-test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Checks and measurements.
    All,
    /// Checks.
    Checks,
    /// Checks with small shapes, for a run under `compute-sanitizer`: without those of work beside a held stream, which the
    /// tool lets wait for ever.
    Small,
    /// Measurements.
    Measurements,
}

/// Runs checks and measurements with at most so much device memory, in bytes (1 GiB is enough for all but the pages
/// beyond 4 GiB), and calls `seen` after each. Where `only` is not empty, those run whose names contain it.
///
/// A failed check does not stop the others, except that after a fault of a kernel the driver refuses everything.
pub fn selftest(gpu: &Gpu, part: Part, only: &str, memory_max: u64, seen: &mut dyn FnMut(&Check)) -> Report {
    let mut report = Report {
        gpu: gpu.info().clone(),
        checks: Vec::new(),
        faults: Vec::new(),
        measurements: Vec::new(),
        calibration: None,
    };
    let lab = match Lab::new(gpu, memory_max, part == Part::Small) {
        Ok(lab) => lab,
        Err(error) => {
            let outcome = Outcome::Failed { why: error.to_string() };
            report.checks.push(Check { name: "a stream for the self-test".to_owned(), outcome, seconds: 0.0 });
            seen(&report.checks[0]);
            return report;
        }
    };
    let mut note = |report: &mut Report, name: &str, begin: Instant, result| {
        let (name, seconds) = (name.to_owned(), begin.elapsed().as_secs_f64());
        report.checks.push(Check { name, outcome: outcome(result), seconds });
        seen(report.checks.last().expect("just pushed"));
    };
    let measures = matches!(part, Part::All | Part::Measurements);
    let tests = TESTS.iter().filter(|_| part != Part::Measurements);
    let tests = tests.chain(BESIDE.iter().filter(|_| matches!(part, Part::All | Part::Checks)));
    for (name, test) in tests.filter(|(name, _)| name.contains(only)) {
        let begin = Instant::now();
        note(&mut report, name, begin, test(&lab));
    }
    if part != Part::Measurements && FAULTS.contains(only) {
        let begin = Instant::now();
        let result = faults::injected(&lab, &mut report.faults);
        note(&mut report, FAULTS, begin, result);
    }
    for (name, bench) in BENCHES.iter().filter(|(name, _)| measures && name.contains(only)) {
        let begin = Instant::now();
        let result = bench(&lab).map(|measured| {
            let what = format!("{} measurements", measured.len());
            report.measurements.extend(measured);
            what
        });
        note(&mut report, name, begin, result);
    }
    if measures && CALIBRATION.contains(only) {
        let begin = Instant::now();
        let result = Calibration::measure(gpu, CALIBRATED_PAGE).map_err(Fault::from).map(|calibration| {
            let what = calibration.to_string();
            report.calibration = Some(calibration);
            what
        });
        note(&mut report, CALIBRATION, begin, result);
    }
    report
}

fn outcome(result: Result<String, Fault>) -> Outcome {
    match result {
        Ok(what) => Outcome::Passed { what },
        Err(Fault::Skipped(why)) => Outcome::Skipped { why },
        Err(fault) => Outcome::Failed { why: fault.to_string() },
    }
}
