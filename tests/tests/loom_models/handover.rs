//! A prefill and a decode engine: the end of a hand-over against an abort and a deadline.

use std::sync::Arc;

use kvweft_core::{Config, Ending, Geometry, Life, RequestId, Role, RuleSet, Stream, Timer, Wait, WritePolicy};
use kvweft_shell::gate::Open;
use kvweft_shell::log::Log;
use kvweft_shell::{Engine, Platform, Setting, Stop};
use kvweft_tests::threads::requests::{complaint, submission};
use kvweft_tests::threads::stamp::tiny;
use kvweft_tests::threads::{LoomPlatform, StampModel};

type Shell = kvweft_shell::Shell<LoomPlatform, StampModel>;
type Half = Arc<Engine<LoomPlatform, StampModel>>;

/// What is said of a request that dies of a deadline although everything is there.
pub(crate) const NEEDLESS: &str = "ended by its deadline although its completion was queued";

/// The state of a page without an owner.
const FREE: usize = 0;

const FIRST: RequestId = RequestId(1);
const SECOND: RequestId = RequestId(2);

/// Two engines without threads, and the page of the first request computed. Decode has one page, prefill two.
fn computed(rules: RuleSet) -> (Shell, Half, Half) {
    let geometry = tiny(Geometry::uniform(1, 1, None));
    let base = Config {
        rules,
        write_policy: WritePolicy::Off,
        status_queries: 0,
        ..Config::new(Role::Prefill, geometry, 2, 0)
    };
    let decode = base.decode(1, base.metadata_slots);
    let setting = Setting { log: Arc::new(Log::off()), gate: Arc::new(Open), poison: false, prompt_token_us: 0 };
    let shell = Shell::new(vec![base, decode], vec![Arc::new(StampModel), Arc::new(StampModel)], setting);
    submit(&shell, FIRST);
    let [prefill, decode] = [0, 1].map(|at| Arc::clone(&shell.engines()[at]));
    deliver(&shell);
    assert!(prefill.run_next(Stream::Forward));
    prefill.take_reports();
    (shell, prefill, decode)
}

fn submit(shell: &Shell, request: RequestId) {
    let RequestId(number) = request;
    shell.submit(&submission(number, Some(number), &[number as u16], &[])).expect("it fits");
}

/// Takes every message that is under way, on both sides.
fn deliver(shell: &Shell) {
    for (engine, link) in shell.engines().iter().zip(shell.links()) {
        while !link.is_empty() {
            assert!(engine.take_message());
        }
    }
}

/// Everything that is posted is sent, taken and told, and the decode engine ends its request.
fn hand_over(shell: &Shell, sends: usize) {
    let [prefill, decode] = [0, 1].map(|at| &shell.engines()[at]);
    for _ in 0..sends {
        assert!(prefill.send_next());
    }
    prefill.take_reports();
    decode.take_reports();
    deliver(shell);
}

/// The client of the first request goes away while the prefill engine writes its page, and the second request wants it.
pub(crate) fn abort_against_late_write(rules: RuleSet) {
    late_write(rules, |decode| decode.abort(FIRST).expect("it is known"));
}

/// An operator resets the decode engine while the prefill engine writes a page there, and a new request wants it.
///
/// Here a reset that lets go of the page too early lets two engines write it; see `reset_against_reload` for one that lets
/// go of nothing.
pub(crate) fn reset_against_late_write(rules: RuleSet) {
    late_write(rules, |decode| decode.flush());
}

fn late_write(rules: RuleSet, stop: impl Fn(&Half)) {
    let (shell, prefill, decode) = computed(rules);
    let writer = Arc::clone(&prefill);
    let nic = LoomPlatform::spawn(String::new(), move || assert!(writer.send_next()));
    stop(&decode);
    submit(&shell, SECOND);
    deliver(&shell);
    if prefill.accounts().pages[0][FREE] == 0 {
        // The page has its new owner already, and the second request is computed for it: what is posted may be sent.
        assert!(prefill.run_next(Stream::Forward));
        prefill.take_reports();
        assert!(prefill.send_next());
        assert!(prefill.send_next());
        nic.join().expect("it ran");
        return;
    }
    nic.join().expect("it ran");
    hand_over(&shell, 1);
    deliver(&shell);
    assert!(prefill.run_next(Stream::Forward));
    prefill.take_reports();
    hand_over(&shell, 2);
    assert!(decode.run_next(Stream::Forward));
    decode.take_reports();
    assert_ne!(decode.ended(FIRST).map(|ended| ended.ending), Some(Ending::Finished));
    assert_eq!(complaint(&decode.ended(SECOND).expect("it has ended")), None);
}

/// Everything has arrived, and word of it is queued. The timer is looked at before the word, or between its two parts, or
/// after it.
pub(crate) fn completion_against_deadline(rules: RuleSet) {
    let (mut shell, prefill, decode) = computed(rules);
    assert!(prefill.send_next());
    assert!(prefill.send_next());
    prefill.take_reports();
    let reader = Arc::clone(&decode);
    let net = LoomPlatform::spawn(String::new(), move || {
        reader.take_report();
        reader.take_message();
    });
    let _ = (0..2).any(|life| decode.fire(Timer { request: FIRST, life: Life(life), wait: Wait::Receive }));
    // A poll may have taken what the other thread waits for.
    shell.stop(Stop::Now).expect("there are no threads that could fail");
    net.join().expect("it ran");
    let early = decode.ended(FIRST).map(|ended| ended.ending);
    assert_ne!(early, Some(Ending::Timeout), "{NEEDLESS}");
    assert!(decode.run_next(Stream::Forward));
    decode.take_reports();
    assert_eq!(complaint(&decode.ended(FIRST).expect("it has ended")), None);
}
