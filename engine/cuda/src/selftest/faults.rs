//! Faults that are injected into reloads on the device, and what notices them.

use core::fmt;

use kvweft_core::Dtype;
use kvweft_shell::faults::{DETECTORS, Fault as Injected, Noticed, matrix};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::lab::{Fault, Lab, ensure};
use super::tiers;
use crate::platform::Cuda;

/// Contexts that each fault is injected into, and in a small self-test.
const TIMES: [usize; 2] = [20, 1];

/// How often each detector has noticed a fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultNoticed {
    /// The type of the index keys.
    pub index_k: Dtype,
    /// What was found.
    pub noticed: Noticed,
}

impl Serialize for FaultNoticed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Noticed { fault, times, by } = self.noticed;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index_k", &dtype(self.index_k))?;
        map.serialize_entry("fault", fault.name())?;
        map.serialize_entry("times", &times)?;
        for (detector, count) in DETECTORS.iter().zip(by) {
            map.serialize_entry(detector, &count)?;
        }
        map.end()
    }
}

fn dtype(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}

impl fmt::Display for FaultNoticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Noticed { fault, times, by } = self.noticed;
        write!(f, "{:<5} {:<44} of {times}:", dtype(self.index_k), fault.name())?;
        DETECTORS.iter().zip(by).try_for_each(|(detector, count)| write!(f, "  {detector} {count:>2}"))
    }
}

/// Injects every fault, with pages, copies, scores, selections and sums on the device.
pub(super) fn injected(lab: &Lab, rows: &mut Vec<FaultNoticed>) -> Result<String, Fault> {
    tiers::open(lab)?;
    let times = lab.size(TIMES[0], TIMES[1]) as u32;
    for index_k in [Dtype::Fp8, Dtype::Bf16] {
        rows.extend(matrix::<Cuda>(index_k, times).into_iter().map(|noticed| FaultNoticed { index_k, noticed }));
    }
    for row in rows.iter() {
        let Noticed { fault, times, by } = row.noticed;
        if fault == Injected::None {
            ensure!(by == [0; DETECTORS.len()], "without a fault: {row}");
        } else {
            ensure!(by.contains(&times), "no detector notices it every time: {row}");
        }
    }
    Ok(format!("{} faults, {times} contexts each", rows.len() - 2))
}
