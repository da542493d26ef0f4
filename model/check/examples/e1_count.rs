use kvweft_check::build::{build, with_names};
use kvweft_check::explore::{Options, explore};
use kvweft_check::scenario::load_embedded_one;
use kvweft_core::RuleSet;
use std::time::Instant;
fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    for name in names {
        let scenario = with_names(|known| load_embedded_one(&name, known)).unwrap().unwrap();
        let system = build(&scenario, RuleSet::EMPTY);
        for liveness in [true] {
        let mut best = [f64::MAX; 4];
        for _ in 0..1 {
            for which in [std::env::var("W").unwrap().parse::<usize>().unwrap()] {
                let options = Options { threads: 1 + which % 2, liveness, ..Options::default() };
                let start = Instant::now();
                let outcome = if which < 2 { explore(&system, &options) } else { explore(&system.composed(false), &options) };
                let took = start.elapsed().as_secs_f64();
                best[which] = best[which].min(took);
                if best[which] == took { eprintln!("{name} {which}: {took:.3} s {} tps, {:?} {:x}", outcome.counts.transitions as f64 / took, outcome.counts, outcome.digest); }
            }
        }
        eprintln!("{name} liveness {liveness} plain/composed: one {:.2}, two {:.2}; composed two/one {:.2}", best[0] / best[2], best[1] / best[3], best[2] / best[3]);
        }
    }
}
