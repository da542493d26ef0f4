//! Taking times, and showing them side by side.

use std::time::Instant;

/// One search.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) states: u64,
    pub(crate) seconds: f64,
    /// As the checker tells it, where it does.
    pub(crate) bytes_per_state: Option<f64>,
}

/// Times a search that gives its number of states and, if it knows, bytes a state.
pub(crate) fn timed(search: impl FnOnce() -> (u64, Option<f64>)) -> Measured {
    let start = Instant::now();
    let (states, bytes_per_state) = search();
    Measured { states, seconds: start.elapsed().as_secs_f64(), bytes_per_state }
}

/// A search that can be run again and again, and its best run.
pub(crate) struct Contender<'a> {
    pub(crate) name: String,
    search: Box<dyn FnMut() -> Measured + 'a>,
    best: Option<Measured>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: impl Into<String>, search: impl FnMut() -> Measured + 'a) -> Self {
        Self { name: name.into(), search: Box::new(search), best: None }
    }
}

/// Runs all in turns, keeps the best of each, and prints them beside the first. `transitions` is how many steps each takes.
///
/// # Panics
/// If two disagree on the number of states.
pub(crate) fn race(mut contenders: Vec<Contender<'_>>, rounds: usize, transitions: u64) {
    for _ in 0..rounds {
        for contender in &mut contenders {
            let now = (contender.search)();
            if contender.best.is_none_or(|best| now.seconds < best.seconds) {
                contender.best = Some(now);
            }
        }
    }
    let first = contenders[0].best.expect("there is a round");
    println!("| checker | states | seconds | states/s | transitions/s | bytes a state | first is faster by |");
    println!("|---|---|---|---|---|---|---|");
    for Contender { name, best, .. } in &contenders {
        let best = best.expect("there is a round");
        assert_eq!(best.states, first.states, "{name} and {} do not agree on the states", contenders[0].name);
        let bytes = best.bytes_per_state.map_or("-".to_owned(), |bytes| format!("{bytes:.1}"));
        println!(
            "| {name} | {} | {:.2} | {:.0} | {:.0} | {bytes} | {:.2} |",
            best.states,
            best.seconds,
            best.states as f64 / best.seconds,
            transitions as f64 / best.seconds,
            best.seconds / first.seconds
        );
    }
}
