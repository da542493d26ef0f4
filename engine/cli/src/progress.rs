//! How far a search is, on standard error.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use kvweft_check::explore::Progress;

/// Progress on standard error, where somebody is looking.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    name: String,
    begun: Instant,
}

impl Shown {
    /// For the search `at` of `of`.
    pub(crate) fn new(at: usize, of: usize, name: &str) -> Shown {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("the template is fixed"));
            bar
        });
        Shown { bar, name: format!("[{at}/{of}] {name}"), begun: Instant::now() }
    }

    /// Shows it.
    pub(crate) fn show(&self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        let rate = progress.states as f64 / self.begun.elapsed().as_secs_f64().max(1e-9);
        bar.set_message(format!(
            "{}  {} states, {rate:.0}/s, frontier {}, depth {}",
            self.name, progress.states, progress.frontier, progress.depth
        ));
        bar.tick();
    }

    /// Leaves nothing behind.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
