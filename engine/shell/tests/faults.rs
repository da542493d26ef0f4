//! What notices which fault of a reload, on the host.

use kvweft_core::Dtype;
use kvweft_shell::Std;
use kvweft_shell::faults::{DETECTORS, Fault, matrix};

const TIMES: u32 = 3;

#[test]
fn nothing_is_noticed_without_a_fault_and_every_fault_by_some_detector() {
    for dtype in [Dtype::Fp8, Dtype::Bf16] {
        for row in matrix::<Std>(dtype, TIMES) {
            println!("{dtype:?} {:<44} {:?}", row.fault.name(), row.by);
            if row.fault == Fault::None {
                assert_eq!(row.by, [0; 5], "{dtype:?}");
            } else {
                assert!(row.by.contains(&TIMES), "{dtype:?}: {} is not noticed every time", row.fault.name());
            }
        }
    }
}

#[test]
fn each_detector_is_blind_to_some_fault_that_another_one_sees() {
    let rows = matrix::<Std>(Dtype::Fp8, TIMES);
    for (at, detector) in DETECTORS.iter().enumerate().filter(|(at, _)| *at != 1) {
        let blind = rows.iter().any(|row| row.by[at] == 0 && row.by.contains(&TIMES));
        assert!(blind, "{detector} notices everything");
    }
}
