//! Plays a workload and keeps its log.

use std::sync::atomic::AtomicBool;

use kvweft_shell::Std;
use kvweft_shell::lockstep::Lines;
use kvweft_shell::run::{Call, Report, Workload, run};
use kvweft_trace::event::Line;

pub(crate) fn play(workload: &Workload) -> (Report, Vec<Line>) {
    let lines = Lines::default();
    let call = Call {
        name: "test".to_owned(),
        tool: "kvweft".to_owned(),
        log: Some(Box::new(lines.clone())),
        interrupted: &AtomicBool::new(false),
        progress: &mut |_| {},
    };
    let report = run::<Std>(workload, call).expect("the run ends well");
    (report, lines.take())
}

#[allow(dead_code, reason = "each test binary uses what it needs")]
pub(crate) fn lines(workload: &Workload) -> Vec<Line> {
    play(workload).1
}
