mod packed;
mod bundled;
use std::time::Instant;
use kvweft_check::explore::{Options, explore};
use stateright::{Model, Checker};
fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let threads: usize = a[1].parse().unwrap();
    if a[0] == "2pc" {
        let n = 8;
        for _ in 0..a[2].parse().unwrap() {
            let start = Instant::now();
            let o = explore(&packed::TwoPhaseCommit { managers: n }, &Options { threads, liveness: false, ..Options::default() });
            let s = start.elapsed().as_secs_f64();
            println!("{:?} {:?} {:032x} {:.0} states/s {} B {}", o.verdict, o.counts, o.digest, o.counts.states as f64 / s, o.table_bytes_per_state(), o.miss);
        }
        if a.len() > 3 {
            let start = Instant::now();
            let c = packed::TwoPhaseCommit { managers: n }.checker().threads(1).spawn_bfs().join();
            let s = start.elapsed().as_secs_f64();
            println!("sr packed {} {} {:.0}", c.unique_state_count(), c.state_count(), c.unique_state_count() as f64 / s);
            let start = Instant::now();
            let c = bundled::search(n);
            let s = start.elapsed().as_secs_f64();
            println!("sr bundled {c} {:.0}", c as f64 / s);
        }
        return;
    }
    let scenario = kvweft_check::build::with_names(|known| kvweft_check::scenario::load_embedded_one(&a[0], known)).unwrap().unwrap();
    let system = kvweft_check::build::build(&scenario, kvweft_core::RuleSet::EMPTY);
    for _ in 0..a[2].parse().unwrap() {
    let start = Instant::now();
    let o = explore(&system, &Options { threads, ..Options::default() });
    let s = start.elapsed().as_secs_f64();
    println!("{:?} {:?} {:032x} {:.0} t/s {} B", o.verdict, o.counts, o.digest, o.counts.transitions as f64 / s, o.table_bytes_per_state());
    }
}
