//! Small runs of the engine on host threads, and their event logs.

mod played;

use kvweft_core::{Dtype, Geometry};
use kvweft_shell::conform::conform;
use kvweft_shell::run::{Report, State, Workload};

fn play(workload: &Workload) -> (Report, String) {
    let (report, lines) = played::play(workload);
    (report, lines.iter().map(|line| line.to_json() + "\n").collect())
}

fn workload(dtype: Dtype) -> Workload {
    Workload::new(8, 3, Geometry::uniform(2, 64, Some(dtype)))
}

#[track_caller]
fn all_right(workload: &Workload) -> (Report, String) {
    let (report, log) = play(workload);
    assert_eq!((report.sessions.ok, report.state), (workload.sessions, State::Complete), "{report:#?}");
    let checked = conform(&log).unwrap_or_else(|why| panic!("{why}"));
    assert!(!checked.cut_off && checked.cells > 0, "{checked:?}");
    (report, log)
}

#[test]
fn sessions_on_one_engine_are_right_and_their_log_conforms() {
    for dtype in [Dtype::Fp8, Dtype::Bf16, Dtype::Fp4] {
        let (report, _) = all_right(&workload(dtype));
        assert_eq!(report.tokens.reused, report.tokens.reusable, "{report:#?}");
    }
}

#[test]
fn a_small_device_pool_offloads_and_reloads_and_all_is_right() {
    let mut workload = workload(Dtype::Bf16);
    workload.device_pages = workload.pages_peak() * 2 / 5;
    let (report, _) = all_right(&workload);
    assert!(report.pages.reloaded > 0 && report.pages.offloaded > 0, "{report:#?}");
}

#[test]
fn prefill_and_decode_apart_are_right_and_their_log_conforms() {
    let mut workload = workload(Dtype::Fp8);
    workload.split = true;
    let (report, _) = all_right(&workload);
    assert!(report.pages.sent > 0, "{report:#?}");
}

#[test]
fn without_a_cache_everything_is_computed_again_and_the_answers_are_the_same() {
    let mut workload = workload(Dtype::Bf16);
    workload.cache = false;
    let (report, _) = all_right(&workload);
    assert_eq!((report.tokens.reused, report.pages.reloaded), (0, 0));
}
