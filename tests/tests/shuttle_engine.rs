//! The whole engine on threads that shuttle schedules: prefill and decode with all their threads, and four clients.
//!
//! With all rules every schedule ends with every request answered from its own pages and nothing left behind. With a rule
//! dropped some schedule fails; its log is followed in the world of the scenario and comes out as a shrunk trace that
//! `kvweft replay` reproduces. Seeds are fixed; `KVWEFT_SHUTTLE_SCHEDULES` sets how many schedules each scheduler runs.

mod shuttle_engine {
    pub(crate) mod serve;
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use kvweft_check::record::{Origin, replay};
use kvweft_core::{Ending, Failure};
use kvweft_tests::threads::lines::{Explained, explain};
use shuttle::scheduler::{
    PctScheduler, RandomScheduler, Scheduler, UncontrolledNondeterminismCheckScheduler, UrwRandomScheduler,
};
use shuttle::{FailurePersistence, Runner};

use shuttle_engine::serve::Run;

/// Schedules of each scheduler, if nobody says otherwise.
const SCHEDULES: usize = 3_000;

const SEED: u64 = 0x6b76_7765_6674;

fn schedules() -> usize {
    let wanted = std::env::var("KVWEFT_SHUTTLE_SCHEDULES").ok();
    wanted.map_or(SCHEDULES, |text| text.parse().expect("KVWEFT_SHUTTLE_SCHEDULES is a number"))
}

/// No scheduler finds everything: what each is good at is not what the others are good at.
const PORTFOLIO: [&str; 4] = ["random", "urw", "pct, depth 3", "pct, depth 5"];

/// Runs so many schedules of one of the portfolio; what the first that failed says.
fn run(run: &Run, scheduler: &str, schedules: usize) -> Result<(), String> {
    let began = Instant::now();
    let result = match scheduler {
        "random" => with(run, RandomScheduler::new_from_seed(SEED, schedules)),
        "urw" => with(run, UrwRandomScheduler::new_from_seed(SEED, schedules)),
        "pct, depth 3" => with(run, PctScheduler::new_from_seed(SEED, 3, schedules)),
        "pct, depth 5" => with(run, PctScheduler::new_from_seed(SEED, 5, schedules)),
        "nondeterminism" => {
            let inner = RandomScheduler::new_from_seed(SEED, schedules);
            with(run, UncontrolledNondeterminismCheckScheduler::new(inner))
        }
        other => panic!("{other} is not in the portfolio"),
    };
    let verdict = if result.is_ok() { "holds" } else { "fails" };
    let (seconds, count) = (began.elapsed().as_secs_f64(), run.started());
    println!("{:<60} {scheduler:<14} {count:>7} schedules {seconds:>6.2} s  {verdict}", run.name());
    result
}

fn with(run: &Run, scheduler: impl Scheduler + 'static) -> Result<(), String> {
    run.restart();
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    let served = run.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(move || served.serve())));
    outcome.map(drop).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
    })
}

#[test]
fn every_schedule_holds_with_all_rules() {
    assert_eq!(holds("four-sessions"), [Ending::Finished]);
}

#[test]
fn every_schedule_with_faults_holds_with_all_rules() {
    // The faults do come at different times. Prefill tells decode of the client that went away there.
    let failed = [Failure::Peer, Failure::Reset].map(Ending::Failed);
    let expected = [[Ending::Finished, Ending::Aborted, Ending::Timeout].as_slice(), &failed].concat();
    assert_eq!(holds("four-sessions-with-faults"), expected);
}

/// How requests ended in some schedule; all of them hold.
#[track_caller]
fn holds(scenario: &str) -> Vec<Ending> {
    let all = Run::new(scenario, &[]);
    for scheduler in PORTFOLIO {
        if let Err(text) = run(&all, scheduler, schedules()) {
            panic!("{scheduler}: {text}\n{}", report(&all, &text));
        }
    }
    all.endings()
}

#[test]
fn a_schedule_decides_everything_that_happens() {
    let all = Run::new("four-sessions", &[]);
    assert_eq!(run(&all, "nondeterminism", schedules() / 10), Ok(()));
}

/// Some schedule fails without the rule, and the world breaks a property on the way that its log tells.
#[track_caller]
fn fails_without(scenario: &str, rule: &str) {
    let dropped = Run::new(scenario, &[rule]);
    let mut failures = PORTFOLIO.into_iter().filter_map(|scheduler| run(&dropped, scheduler, schedules()).err());
    let text = failures.next().expect("some schedule fails without the rule");
    println!("{}", report(&dropped, &text));
    let explained = explained(&dropped);
    let trace = explained.trace.expect("the world breaks a property on the way that the log tells");
    let replayed = replay(dropped.system(), &trace).expect("every step of a shrunk trace can be taken");
    assert_eq!(replayed.violation.map(|violation| violation.property), Some(&*trace.violates));
}

fn explained(run: &Run) -> Explained {
    let scenario = run.scenario();
    let origin = Origin { scenario: scenario.name.clone(), digest: scenario.digest(), drops: run.drops().to_vec() };
    explain(run.system(), &run.lines(), &origin)
}

/// What a person needs: what was seen on threads, and the trace; without a trace, the lines as they are.
fn report(run: &Run, text: &str) -> String {
    let Explained { trace, unmatched, actions, searched } = explained(run);
    let seen = format!("on threads: {}", text.lines().next().unwrap_or_default());
    match trace {
        Some(trace) => format!(
            "{seen}\nin the world: {actions} actions, {searched} of them without a line, {unmatched} lines unmatched; \
             shrunk to {}. `kvweft replay --scenario tests/tests/shuttle_engine/{}.toml` takes:\n{trace}",
            trace.steps.len(),
            run.scenario().name
        ),
        None => {
            let lines: Vec<String> = run.lines().iter().map(|line| line.to_json()).collect();
            format!("{seen}\nthe world breaks nothing on this way ({unmatched} lines unmatched):\n{}", lines.join("\n"))
        }
    }
}

#[test]
fn an_index_read_that_does_not_wait_is_found_and_traced() {
    fails_without("four-sessions", "index-read-waits-layer@ragged-prefill");
}

#[test]
fn an_offload_that_does_not_wait_is_found_and_traced() {
    fails_without("four-sessions", "store-waits-forward");
}

#[test]
fn a_send_that_does_not_wait_for_the_step_is_found_and_traced() {
    fails_without("four-sessions", "send-waits-writes@forward");
}

#[test]
fn an_aborted_receive_that_lets_go_early_is_found_and_traced() {
    fails_without("four-sessions-with-faults", "hold-until-drained@abort");
}

#[test]
fn a_page_that_goes_back_before_it_is_sent_is_found_and_traced() {
    fails_without("four-sessions-with-faults", "pin-until-sent");
}
