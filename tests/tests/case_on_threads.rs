//! Each cause of the case on real threads, and on a device that is far from them: with its rule dropped, the trace garbles the answer every time; with the rule
//! on, the fence refuses it every time, or the same steps are right.

use std::time::Duration;

use kvweft_check::build::{CacheSystem, build, dropped, with_names};
use kvweft_check::record::replay;
use kvweft_check::scenario;
use kvweft_core::{RuleSet, RuleSite};
use kvweft_shell::lockstep::{Lockstep, Outcome};
use kvweft_shell::{Platform, Std};
use kvweft_tests::threads::FarPlatform;
use kvweft_trace::TraceFile;

const TIMES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(5);

struct Cause {
    /// The trace, as it is kept under `scenarios/traces`.
    trace: &'static str,
    /// Whether the rule is kept by a fence, so that the trace cannot happen with it.
    fenced: bool,
}

const CAUSES: [Cause; 7] = [
    Cause { trace: "case-as-found.reads-see-own-content.host-layout-from-device", fenced: false },
    Cause { trace: "case-as-found.reads-see-own-content.copy-moves-pool-layout", fenced: false },
    Cause { trace: "case-as-found.reads-see-own-content.send-moves-pool-layout", fenced: false },
    Cause { trace: "case-as-found.reads-see-own-content.index-read-waits-layer@ragged-prefill", fenced: true },
    Cause { trace: "case-layer-wait-bf16-decode.reads-see-own-content", fenced: true },
    Cause { trace: "case-layer-wait-fp8-prefill.reads-see-own-content", fenced: true },
    Cause { trace: "case-layer-wait-fp8-decode.reads-see-own-content", fenced: true },
];

fn load(name: &str) -> (TraceFile, CacheSystem, CacheSystem) {
    let path = format!("{}/../scenarios/traces/{name}.trace", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let file = TraceFile::parse(&text).expect("a stored trace is well-formed");
    let scenario = with_names(|names| scenario::load_embedded_one(&file.scenario, names)).expect("it is built in");
    let scenario = scenario.expect("a built-in scenario is good");
    let drops = dropped(file.drops.iter().map(String::as_str)).expect("its rules exist");
    (file, build(&scenario, drops), build(&scenario, RuleSet::EMPTY))
}

fn follow<'a, P: Platform>(system: &'a CacheSystem, actions: &[kvweft_world::Action]) -> Lockstep<'a, P> {
    let mut lockstep = Lockstep::new(&system.machine, system.managers.clone()).expect("the world can be served");
    for &action in actions {
        lockstep.take(action).unwrap_or_else(|mismatch| panic!("{action}: {mismatch}"));
    }
    lockstep
}

fn finish<P: Platform>(lockstep: Lockstep<'_, P>) -> Vec<Outcome> {
    lockstep.finish(PATIENCE).expect("no thread panics")
}

#[test]
fn each_cause_garbles_an_answer_100_of_100_times_and_never_with_its_rule_on() {
    each_cause::<Std>();
}

#[test]
fn so_it_is_where_gates_hold_the_copies_of_a_device_that_computes() {
    each_cause::<FarPlatform>();
}

fn each_cause<P: Platform>() {
    for cause in CAUSES {
        let (file, without, with) = load(cause.trace);
        let broken = replay(&without, &file).unwrap_or_else(|why| panic!("{}: {why}", cause.trace));
        assert!(broken.violation.is_some(), "{}", cause.trace);
        let refused = replay(&with, &file);
        let (mut garbled, mut right, mut held) = (0, 0, 0);
        for _ in 0..TIMES {
            garbled += usize::from(finish(follow::<P>(&without, &broken.actions)).iter().any(Outcome::is_garbled));
            let outcomes = match &refused {
                Ok(replayed) => {
                    assert!(!cause.fenced && replayed.violation.is_none(), "{}", cause.trace);
                    finish(follow::<P>(&with, &replayed.actions))
                }
                Err(impossible) => {
                    let blocked = impossible.blocked.as_ref().expect("a fence stands in the way");
                    let lockstep = follow::<P>(&with, &impossible.actions);
                    let owed_to = lockstep.held(blocked.operation);
                    held += usize::from(owed_to == Some(blocked.owed_to) && names(&file, blocked.owed_to));
                    finish(lockstep)
                }
            };
            right += usize::from(outcomes.iter().all(|outcome| outcome.answer.as_ref() == Some(&outcome.expected)));
        }
        let held_expected = if cause.fenced { TIMES } else { 0 };
        println!("{}: garbled {garbled}, held {held}, right with the rule on {right}, of {TIMES}", cause.trace);
        assert_eq!((garbled, held, right), (TIMES, held_expected, TIMES), "{}", cause.trace);
    }
}

/// Whether the trace drops the rule.
fn names(file: &TraceFile, at: RuleSite) -> bool {
    let name = at.to_string();
    file.drops.iter().any(|dropped| *dropped == name || name.starts_with(&format!("{dropped}@")))
}

#[test]
fn every_stored_trace_is_followed_by_threads_and_refused_by_the_same_fence_as_in_the_world() {
    every_trace::<Std>();
}

#[test]
fn so_they_are_where_gates_hold_the_copies_of_a_device_that_computes() {
    every_trace::<FarPlatform>();
}

fn every_trace<P: Platform>() {
    let folder = format!("{}/../scenarios/traces", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("names are UTF-8"))
        .filter_map(|name| name.strip_suffix(".trace").map(str::to_owned))
        .collect();
    names.sort();
    let mut refused_by_fence = 0;
    for name in &names {
        let (file, without, with) = load(name);
        let broken = replay(&without, &file).unwrap_or_else(|why| panic!("{name}: {why}"));
        drop(follow::<P>(&without, &broken.actions));
        let lockstep = match replay(&with, &file) {
            Ok(replayed) => follow::<P>(&with, &replayed.actions),
            Err(impossible) => {
                let lockstep = follow::<P>(&with, &impossible.actions);
                if let Some(blocked) = &impossible.blocked {
                    assert_eq!(lockstep.held(blocked.operation), Some(blocked.owed_to), "{name}");
                    refused_by_fence += 1;
                }
                lockstep
            }
        };
        assert!(!finish(lockstep).iter().any(Outcome::is_garbled), "{name} garbles an answer with every rule on");
    }
    println!("{} traces followed, {refused_by_fence} refused by a fence with every rule on", names.len());
    assert!(refused_by_fence > 20, "{refused_by_fence}");
}
