//! What simulated runs show.

use std::num::NonZeroU16;

use kvweft_sim::{Before, Report, simulate, simulate_after};

use super::matrix::{Matrix, Row};
use crate::args;
use crate::commands::simulate::choose::choose;
use crate::parallel::in_parallel;
use crate::share::Share;

/// The reports of one configuration, one a seed.
pub(super) struct Played {
    reports: Vec<Report>,
}

/// Plays every row with every seed.
pub(super) fn play(matrix: &Matrix, threads: Option<NonZeroU16>) -> Vec<Played> {
    let seeds = 1..=u64::from(matrix.seeds);
    let runs: Vec<(&Row, u64)> =
        matrix.rows.iter().flat_map(|row| seeds.clone().map(move |seed| (row, seed))).collect();
    let mut reports = in_parallel(&runs, threads, |(row, seed)| play_once(row, *seed)).into_iter();
    let of_a_row = |_| Played { reports: reports.by_ref().take(matrix.seeds as usize).collect() };
    matrix.rows.iter().map(of_a_row).collect()
}

fn play_once(row: &Row, seed: u64) -> Report {
    const CHECKED: &str = "checked when the matrix was read";
    let args = args::Simulate { seed, ..row.simulate.clone() };
    let chosen = choose(&args).expect(CHECKED);
    match row.after {
        None => simulate(&chosen.workload, &chosen.settings),
        Some(after) => {
            // Agents of another seed share no text with these.
            let mut args = args::Simulate { seed: seed | 1 << 32, ..args };
            args.clients.sessions = Some(after.sessions);
            let before = choose(&args).expect(CHECKED).workload;
            let before = Before { workload: &before, reset_ns: after.reset_ms * 1_000_000 };
            simulate_after(&before, &chosen.workload, &chosen.settings)
        }
    }
    .expect(CHECKED)
}

impl Played {
    fn sum(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(of).sum()
    }

    /// The lower median over seeds.
    fn median(&self, of: impl Fn(&Report) -> u64) -> u64 {
        let mut values: Vec<u64> = self.reports.iter().map(of).collect();
        values.sort_unstable();
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
    }

    pub(super) fn runs(&self) -> u64 {
        self.reports.len() as u64
    }

    pub(super) fn requests(&self) -> u64 {
        self.sum(|report| report.requests.submitted)
    }

    pub(super) fn adds_up(&self) -> bool {
        self.reports.iter().all(|report| report.conservation.holds())
    }

    /// Sessions that read wrong bytes.
    pub(super) fn corrupt(&self) -> Share {
        Share::new(self.sum(|report| report.sessions.corrupt), self.sum(|report| report.sessions.total))
    }

    /// Runs in which no session did.
    pub(super) fn runs_without(&self) -> u64 {
        self.sum(|report| u64::from(report.sessions.corrupt == 0))
    }

    pub(super) fn ok(&self) -> u64 {
        self.sum(|report| report.sessions.ok)
    }

    /// Sessions that waited in vain.
    pub(super) fn stuck(&self) -> u64 {
        self.sum(|report| report.sessions.stuck + report.sessions.open)
    }

    pub(super) fn timeout(&self) -> u64 {
        self.sum(|report| report.sessions.timeout)
    }

    pub(super) fn error(&self) -> u64 {
        self.sum(|report| report.sessions.error)
    }

    /// Pages that were neither free nor cached at the end of the median run.
    pub(super) fn lost_pages(&self) -> u64 {
        self.median(|report| report.stuck.leaked_pages.iter().sum())
    }

    /// Of the median run: half of the first tokens, and 99 of 100, come no later.
    pub(super) fn first_token_ns(&self) -> [u64; 2] {
        [self.median(|report| report.first_token_ns.p50), self.median(|report| report.first_token_ns.p99)]
    }

    /// Half of the answers of the median run take no longer.
    pub(super) fn end_to_end_ns(&self) -> u64 {
        self.median(|report| report.end_to_end_ns.p50)
    }

    /// Answer tokens in a thousand seconds.
    pub(super) fn tokens_per_1000_s(&self) -> u64 {
        let answered = u128::from(self.sum(|report| report.answered_ns)).max(1);
        (u128::from(self.sum(|report| report.tokens.output)) * 1_000_000_000_000 / answered) as u64
    }

    /// Prompt tokens that did not have to be computed, in parts per 10,000.
    pub(super) fn reused_per_10k(&self) -> u64 {
        let hits = self.sum(|report| report.tokens.device_hits + report.tokens.host_hits);
        hits * 10_000 / self.sum(|report| report.tokens.input).max(1)
    }
}
