//! How far a search is, on standard error.

use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kvweft_check::explore::Progress;

use crate::output;

/// The bars of searches that run side by side.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// How often a long search says how far it is, where nobody watches a bar.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// Progress on standard error: a bar where somebody is looking, and elsewhere a line now and then.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    name: String,
    begun: Instant,
    bytes_max: u64,
    /// When something was last said where nobody watches a bar.
    said: Cell<Instant>,
}

impl Shown {
    /// For the search `at` of `of`, whose tables may take `bytes_max`.
    pub(crate) fn new(at: usize, of: usize, name: &str, bytes_max: u64) -> Shown {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = BARS.add(ProgressBar::new_spinner());
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("the template is fixed"));
            bar
        });
        let begun = Instant::now();
        Shown { bar, name: format!("[{at}/{of}] {name}"), begun, bytes_max, said: Cell::new(begun) }
    }

    /// Shows it.
    pub(crate) fn show(&self, progress: &Progress) {
        let text = || {
            let rate = progress.states as f64 / self.begun.elapsed().as_secs_f64().max(1e-9);
            format!(
                "{}  {} states, {rate:.0}/s, frontier {}, depth {}, tables {} of {} MiB",
                self.name,
                progress.states,
                progress.frontier,
                progress.depth,
                progress.table_bytes >> 20,
                self.bytes_max >> 20
            )
        };
        match &self.bar {
            Some(bar) => {
                bar.set_message(text());
                bar.tick();
            }
            None if self.said.get().elapsed() >= SAID_EVERY => {
                output::note(&text());
                self.said.set(Instant::now());
            }
            None => {}
        }
    }

    /// Leaves nothing behind.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
