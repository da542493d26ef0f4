//! Machines that cannot be cloned.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kvweft_check::builder::{Checked, Checker};
use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::replayed::{Fault, Replayed};
use kvweft_check::system::Found;

use crate::pool::{Action, Pool};

fn check(copies_hold: bool) -> Checked {
    let replayed = Replayed {
        fresh: move || Pool::new(1, copies_hold),
        enabled: Pool::enabled,
        step: |pool: &mut Pool, action: &Action, _: &mut Found| pool.step(action),
        fingerprint: Pool::view,
    };
    Checker::new(replayed)
        .named("pool")
        .kept_in("nowhere")
        .always("copies-write-leased-blocks", |state| !state.view().copies_collide())
        .sometimes("both-ended", |state| state.view().ended == [true; 2])
        .check()
}

#[test]
fn a_pool_of_locks_and_guards_holds_where_a_copy_keeps_its_lease() {
    let checked = check(true);
    assert!(checked.holds(), "{}", checked.report());
    assert!(checked.coverage.starts_with("every interleaving: 15 states, 6 steps deep"), "{}", checked.coverage);
}

#[test]
fn a_lease_that_ends_before_its_copy_is_found_by_the_shortest_way() {
    let checked = check(false);
    assert_eq!(checked.verdict, Verdict::Violated);
    let steps: Vec<String> =
        checked.failures[0].file.steps.iter().map(|step| format!("{} {}", step.actor, step.action)).collect();
    assert_eq!(steps, ["r0 lease and copy", "r0 end"]);
}

#[test]
fn machines_that_share_state_are_refused_before_any_verdict() {
    let pool = Pool::new(1, true);
    let shared = Replayed {
        fresh: || pool.shallow_clone(),
        enabled: Pool::enabled,
        step: |pool: &mut Pool, action: &Action, _: &mut Found| pool.step(action),
        fingerprint: Pool::view,
    };
    let Err(Fault::Shared { expected, got, .. }) = shared.verify() else { panic!("{:?}", shared.verify()) };
    assert!(expected.contains("free: [0]") && got.contains("free: []"), "{expected} {got}");
    assert!(std::panic::catch_unwind(|| explore(&shared, &Options::default())).is_err(), "no verdict rests on it");
}

/// A counter whose steps add what `by` gives.
fn counter(start: impl Fn() -> u32 + Sync, by: impl Fn(u32) -> u32 + Sync) -> Result<Verdict, Fault> {
    let counter = Replayed {
        fresh: &start,
        enabled: |counter: &u32| if *counter < 8 { vec!["add"] } else { vec![] },
        step: |counter: &mut u32, _: &&str, _: &mut Found| *counter += by(*counter),
        fingerprint: |counter: &u32| *counter,
    };
    counter.verify()?;
    Ok(explore(&counter, &Options { threads: 1, ..Options::default() }).verdict)
}

#[test]
fn steps_that_differ_when_they_are_taken_again_are_refused() {
    assert_eq!(counter(|| 0, |_| 1), Ok(Verdict::Holds));
    let calls = AtomicU32::new(0);
    let drifting = counter(|| 0, |_| 1 + calls.fetch_add(1, Ordering::Relaxed) / 8);
    let Err(Fault::Nondeterministic { step: 1, action, expected, got }) = drifting else { panic!("{drifting:?}") };
    assert_eq!((action.as_str(), expected.as_str(), got.as_str()), ("add", "1 with [add]", "2 with [add]"));
    let starts = AtomicU32::new(0);
    let restless = counter(|| starts.fetch_add(1, Ordering::Relaxed), |_| 1);
    assert_eq!(restless, Err(Fault::Fresh { expected: "0 with [add]".into(), got: "1 with [add]".into() }));
}

#[test]
fn a_machine_that_turns_out_to_drift_while_it_is_searched_gives_no_verdict() {
    // Behaves until the walks of `verify` are over: then the search itself must notice.
    let calls = Arc::new(AtomicU32::new(0));
    let search = |wrong_after: u32| {
        calls.store(0, Ordering::Relaxed);
        counter(|| 0, |_| if calls.fetch_add(1, Ordering::Relaxed) < wrong_after { 1 } else { 2 })
    };
    assert_eq!(search(u32::MAX), Ok(Verdict::Holds));
    let total = calls.load(Ordering::Relaxed);
    let search = std::panic::AssertUnwindSafe(|| search(total - 4));
    let panic = std::panic::catch_unwind(search).expect_err("no verdict");
    let message = panic.downcast_ref::<String>().expect("a text");
    assert!(message.starts_with("the same steps must lead to the same state: after step"), "{message}");
}
