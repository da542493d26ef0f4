//! Scratch: walk by picking actions whose text contains words.
use kvweft_check::build::*;
use kvweft_check::scenario;
fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap();
    let drops: Vec<String> = args.next().unwrap().split(',').filter(|s| !s.is_empty()).map(|s| s.to_owned()).collect();
    let s = with_names(|n| scenario::load(std::path::Path::new(&path), n)).map_err(|e| e.render_plain()).unwrap();
    let sys = build(&s, dropped(drops.iter().map(|s| s.as_str())).unwrap());
    let mut w = kvweft_world::World::new(&sys.machine, sys.managers.clone());
    let mut names = kvweft_trace::LocalNames::default();
    for word in args {
        let mut acts = Vec::new();
        w.enabled(&sys.machine, &mut acts);
        let texts: Vec<_> = acts.iter().map(|a| w.describe(&sys.machine, *a, &names)).collect();
        let hit = texts.iter().position(|d| format!("{} {}", d.actor, d.ops.join("; ")).contains(&word));
        let Some(hit) = hit else {
            println!("no {word} in:");
            for d in texts {
                println!("   {} {}", d.actor, d.ops.join("; "));
            }
            return;
        };
        let mut f = kvweft_world::Found::logging();
        w.step(&sys.machine, acts[hit], &mut f);
        let r = kvweft_world::World::<kvweft_core::Manager>::results(&sys.machine, &f.log.unwrap(), &mut names);
        println!("{:10} {:50} -> {} {:?}", texts[hit].actor, texts[hit].ops.join("; "), r, f.violations);
    }
    println!("{:?}", w.memory_text(&sys.machine, &mut names));
}
