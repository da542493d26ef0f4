//! Scratch: rule@site against scenarios.
use kvweft_check::build::*;
use kvweft_check::explore::*;
use kvweft_check::scenario;
use kvweft_core::{RuleSet, RuleSite};
fn main() {
    let all = with_names(|n| scenario::load_folder(std::path::Path::new("scenarios"), n))
        .map_err(|e| e.render_plain())
        .unwrap();
    let mut marks = kvweft_check::system::Marks::default();
    for s in &all {
        let sys = build(s, RuleSet::EMPTY);
        let o = explore(&sys, &Options { threads: 2, states_max: 2_000_000, ..Options::default() });
        marks.unite(&o.marks);
        if o.verdict != Verdict::Holds {
            println!(
                "ALL-ON {} {:?} {:?}",
                s.name,
                o.verdict,
                o.traces.iter().map(|t| (t.violation.property, t.steps.len(), &t.violation.detail)).collect::<Vec<_>>()
            );
        }
    }
    for at in RuleSite::all() {
        let mut hits = Vec::new();
        for s in &all {
            let sys = build(s, RuleSet::EMPTY.with(at));
            let o =
                explore(&sys, &Options { threads: 2, states_max: 400_000, stop_at_first: true, ..Options::default() });
            if o.verdict == Verdict::Violated {
                hits.push(format!("{}:{}:{}", s.name, o.traces[0].violation.property, o.traces[0].steps.len()));
            }
        }
        println!(
            "{:45} held={} {}",
            at.to_string(),
            marks.contains(kvweft_check::world_system::marks::held(at)),
            if hits.is_empty() { "NONE".to_owned() } else { hits.join(" ") }
        );
    }
    use kvweft_core::machine::{Next, request::*, slot::*};
    for st in RequestState::ALL {
        for ev in RequestEvent::ALL {
            let hit = marks.contains(kvweft_check::world_system::marks::request_cell(st, ev));
            let never = matches!(kvweft_core::machine::request::next(st, ev), Next::Never(_));
            if hit == never {
                println!("CELL request {st:?} {ev:?} hit={hit} {:?}", kvweft_core::machine::request::next(st, ev));
            }
        }
    }
    for st in SlotState::ALL {
        for ev in SlotEvent::ALL {
            let hit = marks.contains(kvweft_check::world_system::marks::slot_cell(st, ev));
            let never = matches!(kvweft_core::machine::slot::next(st, ev), Next::Never(_));
            if hit == never {
                println!("CELL slot {st:?} {ev:?} hit={hit} {:?}", kvweft_core::machine::slot::next(st, ev));
            }
        }
    }
}
