//! Measures the explorer on two-phase commit: `two_phase_commit [MANAGERS] [THREADS] [exact]`.
//!
//! Counts go to stdout and are the same in every run; rates go to stderr.

#[path = "../tests/explorer/two_phase_commit.rs"]
mod two_phase_commit;

use std::time::Instant;

use kvweft_check::explore::{Options, explore};
use two_phase_commit::TwoPhaseCommit;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u32| {
        arguments.get(place).map_or(default, |text| text.parse().expect("expected a number"))
    };
    let system = TwoPhaseCommit::new(number(0, 8));
    let exact = arguments.iter().any(|argument| argument == "exact");
    for liveness in [false, true] {
        let options = Options { threads: number(1, 1) as usize, exact, liveness, ..Options::default() };
        let start = Instant::now();
        let outcome = explore(&system, &options);
        let seconds = start.elapsed().as_secs_f64();
        let counts = outcome.counts;
        println!(
            "liveness {liveness}: {:?}, {} states, {} transitions, depth {}, miss {}",
            outcome.verdict, counts.states, counts.transitions, counts.depth, outcome.miss
        );
        eprintln!(
            "  {seconds:.2} s, {:.0} states/s, {:.0} transitions/s, {} table bytes/state",
            counts.states as f64 / seconds,
            counts.transitions as f64 / seconds,
            outcome.table_bytes_per_state()
        );
    }
}
