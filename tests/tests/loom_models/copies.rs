//! One engine: copies between tiers against steps, evictions, waiters and resets.

use std::sync::Arc;

use kvweft_core::{Accounts, Config, Dtype, Geometry, RequestId, Role, RuleSet, Stream};
use kvweft_shell::{Engine, Parts, Platform};
use kvweft_tests::threads::requests::{complaint, submission};
use kvweft_tests::threads::stamp::tiny;
use kvweft_tests::threads::{LoomPlatform, StampModel};

type Shell = Arc<Engine<LoomPlatform, StampModel>>;

/// What is said of a reset that loses something.
pub(crate) const LEFT_BEHIND: &str = "the reset left something behind";

const A: u16 = 1;
const B: u16 = 2;

fn engine(rules: RuleSet, device_pages: u32, host_pages: u32) -> Shell {
    let geometry = tiny(Geometry::uniform(1, 1, Some(Dtype::Bf16)));
    let config = Config { rules, ..Config::new(Role::Together, geometry, device_pages, host_pages) };
    Arc::new(Engine::new(config, Parts::new(Arc::new(StampModel))))
}

fn submit(engine: &Shell, request: u32, prompt: &[u16], output: &[u16]) {
    engine.submit(&submission(request, None, prompt, output)).expect("it fits");
}

/// Runs what is queued on a stream, and lets the manager know.
fn run(engine: &Shell, stream: Stream) {
    assert!(engine.run_next(stream));
    engine.take_reports();
}

fn spawn(engine: &Shell, work: impl FnOnce(&Shell) + Send + 'static) -> loom::thread::JoinHandle<()> {
    let engine = Arc::clone(engine);
    LoomPlatform::spawn(String::new(), move || work(&engine))
}

/// With all rules the answer is right. Where one is dropped, loom's own check of accesses is what the model is about, and
/// a wrong answer in an earlier interleaving must not end the search before.
fn assert_answered(engine: &Shell, rules: RuleSet, request: u32) {
    if rules != RuleSet::ALL {
        return;
    }
    let ended = engine.ended(RequestId(request)).expect("the request has ended");
    assert_eq!(complaint(&ended), None, "request {request}");
}

/// An engine with one device page in which A was computed, copied to the host, and had to make room for B. Request 3 has
/// just asked for A: its reload is queued, and so is the step that reads it.
fn reload_is_queued(rules: RuleSet) -> Shell {
    let engine = engine(rules, 1, 2);
    for (request, content) in [(1, A), (2, B)] {
        submit(&engine, request, &[content], &[]);
        run(&engine, Stream::Forward);
        run(&engine, Stream::Store);
    }
    submit(&engine, 3, &[A], &[]);
    engine
}

/// The load stream writes the page while the forward stream would read it.
pub(crate) fn reload_against_read(rules: RuleSet) {
    let engine = reload_is_queued(rules);
    let load = spawn(&engine, |engine| assert!(engine.run_next(Stream::Load)));
    assert!(engine.run_next(Stream::Forward));
    load.join().expect("it ran");
    engine.take_reports();
    assert_answered(&engine, rules, 3);
}

/// The store stream reads a page that the forward stream still writes.
pub(crate) fn offload_against_write(rules: RuleSet) {
    let engine = engine(rules, 1, 1);
    submit(&engine, 1, &[A], &[]);
    let store = spawn(&engine, |engine| assert!(engine.run_next(Stream::Store)));
    assert!(engine.run_next(Stream::Forward));
    store.join().expect("it ran");
    engine.take_reports();
    assert_answered(&engine, rules, 1);
}

/// Request 3 has matched A in the host tier, and its reload reads the page. The answer of request 2 is copied to the
/// host meanwhile, and A's page there is the least recently used.
pub(crate) fn eviction_against_match(rules: RuleSet) {
    let engine = engine(rules, 3, 2);
    submit(&engine, 1, &[A], &[]);
    run(&engine, Stream::Forward);
    run(&engine, Stream::Store);
    // Three pages push A out of the device. They find no room in the host tier.
    submit(&engine, 4, &[10, 11, 12], &[]);
    run(&engine, Stream::Forward);
    submit(&engine, 2, &[B], &[20]);
    run(&engine, Stream::Forward);
    run(&engine, Stream::Store);
    submit(&engine, 3, &[A], &[]);
    // The last step of request 2 ends; the manager does not know of it yet.
    assert!(engine.run_next(Stream::Forward));
    let load = spawn(&engine, |engine| assert!(engine.run_next(Stream::Load)));
    // Takes its report: the answer is complete and goes to the host tier if a page can be had there.
    engine.take_reports();
    run(&engine, Stream::Store);
    load.join().expect("it ran");
    engine.take_reports();
    assert!(engine.run_next(Stream::Forward));
    engine.take_reports();
    assert_answered(&engine, rules, 3);
}

/// Request 2 waits for the only page, which the copy of A still reads. When that ends, somebody must look at the queue.
pub(crate) fn last_copy_against_waiter(rules: RuleSet) {
    let engine = engine(rules, 1, 1);
    submit(&engine, 1, &[A], &[]);
    run(&engine, Stream::Forward);
    submit(&engine, 2, &[B], &[]);
    let device = spawn(&engine, |engine| {
        assert!(engine.run_next(Stream::Store));
        assert!(engine.run_next(Stream::Forward));
    });
    let scheduler = spawn(&engine, |engine| {
        assert!(engine.take_report());
        assert!(engine.take_report());
    });
    assert_eq!(complaint(&engine.wait_for(RequestId(2))), None);
    device.join().expect("it ran");
    scheduler.join().expect("it ran");
}

/// An operator resets the engine while a reload is under way.
///
/// Of the rules that a reset keeps, this is the one that needs threads to matter: if the completion of the reload is taken
/// before the reset nothing is under way to be forgotten, and if it comes after, page, lease and event slot belong to a
/// transfer that nobody knows. No access collides, since a forgotten page is never given away again: what shows it is
/// that the accounts do not come back to zero.
pub(crate) fn reset_against_reload(rules: RuleSet) {
    let engine = reload_is_queued(rules);
    let load = spawn(&engine, |engine| {
        assert!(engine.run_next(Stream::Load));
        engine.take_reports();
    });
    engine.flush();
    assert!(engine.run_next(Stream::Forward));
    load.join().expect("it ran");
    engine.take_reports();
    let Accounts { pages, transfers, event_slots, leases, requests, .. } = engine.accounts();
    let free = [pages[0][0], pages[1][0]];
    assert_eq!((free, transfers, event_slots, leases, requests), ([1, 2], 0, 0, 0, 0), "{LEFT_BEHIND}");
}
