//! What real runs measured.

use std::path::PathBuf;

use kvweft_core::RuleSite;

use super::matrix::{Matrix, paths};
use crate::args::Switch;
use crate::failure::Failure;
use crate::input;
use crate::share::Share;

/// A real run.
pub(super) struct Measured {
    pub(super) run: String,
    pub(super) device: String,
    pub(super) corrupt: Share,
    pub(super) timeout: u64,
    pub(super) error: u64,
    pub(super) first_token_p50_us: u64,
}

/// The runs that are named, by row.
///
/// # Errors
/// If one cannot be read, or is of another configuration than its row.
pub(super) fn all(matrix: &Matrix, runs: &[(String, PathBuf)]) -> Result<Vec<Option<Measured>>, Failure> {
    let mut all = Vec::new();
    for (row, path) in matrix.rows.iter().zip(paths(matrix, runs)?) {
        let Some(path) = path else {
            all.push(None);
            continue;
        };
        let report = input::report(path)?;
        let dropped = |kept: &dyn Fn(RuleSite) -> bool| -> Vec<String> {
            RuleSite::all().filter(|at| !kept(*at)).map(|at| at.to_string()).collect()
        };
        let (run, wanted) = (dropped(&|at| report.workload.rules.has(at)), dropped(&|at| !row.drops.has(at)));
        let cache = row.simulate.engine.cache == Switch::On;
        if run != wanted || report.workload.cache != cache {
            let words = |cache: bool, drops: &[String]| {
                let drops = if drops.is_empty() { "nothing".to_owned() } else { drops.join(" ") };
                format!("the cache {}, dropped {drops}", if cache { "on" } else { "off" })
            };
            let why = format!(
                "it is no run of row `{}`\nexpected: {}\ngot: {}",
                row.name,
                words(cache, &wanted),
                words(report.workload.cache, &run)
            );
            return Err(Failure::File { path: path.to_owned(), why });
        }
        let sessions = report.sessions;
        all.push(Some(Measured {
            run: report.run,
            device: report.device,
            corrupt: Share::new(u64::from(sessions.corrupt()), u64::from(sessions.classed() + sessions.open)),
            timeout: u64::from(sessions.timeout),
            error: u64::from(sessions.error),
            first_token_p50_us: report.first_token_us.p50,
        }));
    }
    Ok(all)
}
