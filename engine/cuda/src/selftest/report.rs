//! What a self-test found.

use core::fmt;

use serde::Serialize;

use super::faults::FaultNoticed;
use crate::calibrate::Calibration;
use crate::gpu::GpuInfo;

/// What a self-test found on one device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The device.
    pub gpu: GpuInfo,
    /// In the order in which they ran.
    pub checks: Vec<Check>,
    /// What noticed which injected fault.
    pub faults: Vec<FaultNoticed>,
    /// In the order in which they ran.
    pub measurements: Vec<Measurement>,
    /// Which way of copying suits which runs of pages here, if it was measured.
    pub calibration: Option<Calibration>,
}

impl Report {
    /// Whether nothing failed. What was skipped does not count.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed { .. }))
    }
}

/// A check that ran.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// A sentence that holds if it passed.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, host and device.
    pub seconds: f64,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Outcome {
    /// All was as it should be.
    Passed {
        /// What was looked at.
        what: String,
    },
    /// Something was not.
    Failed {
        /// The first thing that was not.
        why: String,
    },
    /// It could not run here.
    Skipped {
        /// What is missing.
        why: String,
    },
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.outcome {
            Outcome::Passed { what } => ("ok", what),
            Outcome::Failed { why } => ("FAILED", why),
            Outcome::Skipped { why } => ("skipped", why),
        };
        write!(f, "{word:<8} {:<52} {:>6.2} s  {text}", self.name, self.seconds)
    }
}

/// A kernel's work, by its shapes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub enum Work {
    /// Scores of fp8 or bf16 index keys.
    IndexLogits {
        /// Bytes of a value of a key.
        key_bytes: u32,
        /// Queries.
        rows: u32,
        /// Keys of each.
        len: u32,
        /// Heads of each.
        heads: u32,
    },
    /// The largest of rows of logits.
    TopK {
        /// Rows.
        rows: u32,
        /// Logits of each.
        len: u32,
        /// How many are selected.
        k: u32,
    },
    /// Attention over selected rows of latent KV.
    SparseAttention {
        /// Whether rows are fp8 with scales.
        fp8: bool,
        /// Queries.
        rows: u32,
        /// Heads of each.
        heads: u32,
        /// Selected rows of each.
        k: u32,
    },
}

/// A time, beside the least time that the hardware could take.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The kernel or path.
    pub name: String,
    /// Shapes.
    pub shape: String,
    /// What was computed, where another library can be given the same.
    pub work: Option<Work>,
    /// The median time of one call in a CUDA graph of many, in microseconds.
    pub microseconds: f64,
    /// The same for calls that are launched one by one without waiting in between, where there is [`Measurement::work`].
    pub launched_microseconds: Option<f64>,
    /// Bytes that it must move.
    pub bytes: u64,
    /// Bytes over the rate that a plain copy reached in the same run, in microseconds.
    pub roofline_microseconds: f64,
}

impl Measurement {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / (self.microseconds * 1e-6)
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = 100.0 * self.roofline_microseconds / self.microseconds;
        write!(
            f,
            "{:<34} {:<44} {:>10.1} us {:>9.1} GB/s {:>6.1} % of roofline",
            self.name,
            self.shape,
            self.microseconds,
            self.rate() / 1e9,
            part
        )
    }
}
