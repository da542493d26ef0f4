//! A run on engines that an earlier one has left behind.

use kvweft_core::Input;

use crate::report::Report;
use crate::settings::{Settings, SettingsError};
use crate::simulation::Simulation;
use crate::workload::Workload;

/// What went before.
#[derive(Clone, Copy, Debug)]
pub struct Before<'w> {
    /// What was played.
    pub workload: &'w Workload,
    /// When an operator resets the engine that clients talk to, and all of them go away.
    pub reset_ns: u64,
}

/// Plays a workload on the engines that an earlier run has left: it begins once every client of that one is gone. The
/// report is of this workload alone.
///
/// # Errors
/// If one of them cannot begin.
pub fn simulate_after(before: &Before<'_>, workload: &Workload, settings: &Settings) -> Result<Report, SettingsError> {
    settings.check(before.workload)?;
    settings.check(workload)?;
    let mut run = Simulation::new(before.workload, settings);
    run.start_clients();
    while run.now < before.reset_ns && run.step() {}
    let front = run.engines.len() - 1;
    run.input(front, Input::Flush);
    run.all_leave();
    while !run.nobody_is_there() && run.step() {}
    run.begin_again(workload);
    run.start_clients();
    while run.step() {}
    Ok(run.close())
}

impl<'w> Simulation<'w> {
    /// From now on everything is about another workload; what the engines hold stays.
    fn begin_again(&mut self, workload: &'w Workload) {
        self.workload = workload;
        self.began = self.now;
        self.rewind();
        self.report = Report::default();
        self.report.sessions.total = workload.sessions() as u64;
        self.ended = 0;
        for times in [&mut self.first_token, &mut self.per_token, &mut self.end_to_end, &mut self.behind] {
            times.clear();
        }
    }
}
