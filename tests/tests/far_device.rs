//! Runs on a device that has copies in its own order and computes where the pages are: what is true of it is
//! true of the shell's side of a GPU.

use std::sync::atomic::{AtomicBool, Ordering};

use kvweft_core::{Dtype, Geometry};
use kvweft_shell::conform::conform;
use kvweft_shell::lockstep::Lines;
use kvweft_shell::run::{Call, Report, Workload, run};
use kvweft_tests::threads::FarPlatform;
use kvweft_tests::threads::far_platform::{ANSWERED, FOLLOWED};

fn play(workload: &Workload) -> (Report, String) {
    let lines = Lines::default();
    let call = Call {
        name: "test".to_owned(),
        tool: "kvweft".to_owned(),
        log: Some(Box::new(lines.clone())),
        interrupted: &AtomicBool::new(false),
        progress: &mut |_| {},
    };
    let report = run::<FarPlatform>(workload, call).expect("the run ends well");
    (report, lines.take().iter().map(|line| line.to_json() + "\n").collect())
}

#[test]
fn sessions_are_right_their_logs_conform_and_the_device_computes() {
    for dtype in [Dtype::Fp8, Dtype::Bf16] {
        for split in [false, true] {
            let mut workload = Workload::new(8, 3, Geometry::uniform(2, 64, Some(dtype)));
            workload.split = split;
            workload.device_pages = workload.pages_peak() * 2 / 5;
            let before: Vec<usize> = ANSWERED.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            let (report, log) = play(&workload);
            assert_eq!(report.sessions.ok, workload.sessions, "{report:#?}");
            let checked = conform(&log).unwrap_or_else(|why| panic!("{why}"));
            assert!(!checked.cut_off && checked.cells > 0, "{checked:?}");
            assert!(report.pages.reloaded > 0, "{report:#?}");
            for (count, before) in ANSWERED.iter().zip(before) {
                assert!(
                    count.load(Ordering::Relaxed) > before,
                    "{dtype:?}, split {split}: the device computed nothing"
                );
            }
        }
    }
    assert!(FOLLOWED.load(Ordering::Relaxed) > 0, "no step waited on the device");
}
