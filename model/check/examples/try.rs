//! Scratch.
use kvweft_check::build::*;
use kvweft_check::explore::*;
use kvweft_check::scenario;
fn main() {
    for path in std::env::args().skip(1) {
        let s = with_names(|n| scenario::load(std::path::Path::new(&path), n));
        let s = match s {
            Ok(s) => s,
            Err(e) => {
                println!("{}", e.render_plain());
                continue;
            }
        };
        for drops in [scenario_drops(&s), kvweft_core::RuleSet::EMPTY] {
            let sys = build(&s, drops);
            let t = std::time::Instant::now();
            let o = explore(&sys, &Options { threads: 1, states_max: 2_000_000, ..Options::default() });
            println!(
                "{} drops={:?} {:?} {:?} {:.2}s {:.0} tr/s",
                s.name,
                drops.iter().map(|r| r.to_string()).collect::<Vec<_>>(),
                o.verdict,
                o.counts,
                t.elapsed().as_secs_f64(),
                o.counts.transitions as f64 / t.elapsed().as_secs_f64()
            );
            for tr in &o.traces {
                println!(
                    "  {} : {}  len {} doom {:?}",
                    tr.violation.property,
                    tr.violation.detail,
                    tr.steps.len(),
                    tr.dooming_step
                );
                let mut w = kvweft_world::World::new(&sys.machine, sys.managers.clone());
                let mut names = kvweft_trace::LocalNames::default();
                for a in &tr.steps {
                    let d = w.describe(&sys.machine, *a, &names);
                    let mut f = kvweft_world::Found::logging();
                    w.step(&sys.machine, *a, &mut f);
                    let r =
                        kvweft_world::World::<kvweft_core::Manager>::results(&sys.machine, &f.log.unwrap(), &mut names);
                    println!("     {:10} {:50} -> {}", d.actor, d.ops.join("; "), r);
                }
            }
        }
    }
}
