//! Every interleaving of one protocol step of the concurrent shell, by loom: with all rules each model holds, and with the
//! rule that it is about dropped it fails the way the table says.
//!
//! Loom aborts the process where it finds a deadlock. So each test starts this binary twice as its own child, once for
//! each side, and judges by what the child printed.

mod loom_models {
    pub(super) mod copies;
    pub(super) mod handover;
}

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kvweft_core::{RuleSet, parse_rule};

use loom_models::{copies, handover};

/// Tells a child which side it runs; nobody else needs to set it.
const SIDE: &str = "KVWEFT_LOOM_SIDE";

/// Set to run without the bounds that some models have; takes long.
const UNBOUNDED: &str = "KVWEFT_LOOM_UNBOUNDED";

/// What loom says where nothing orders two accesses to a page.
const CAUSALITY: &str = "Causality violation: Concurrent";
/// What loom says where every thread waits.
const DEADLOCK: &str = "deadlock; threads = ";

static ITERATIONS: AtomicU64 = AtomicU64::new(0);

/// One model.
struct Case {
    /// The name of its test.
    name: &'static str,
    /// The rule to drop.
    rule: &'static str,
    /// What is printed then.
    fails_with: &'static str,
    /// Preemptions at most, where a full search takes too long for every day.
    bound: Option<usize>,
    model: fn(RuleSet),
}

impl Case {
    /// As a parent: runs both sides. As a child: runs one of them.
    fn judge(&self) {
        match std::env::var(SIDE).as_deref() {
            Ok("kept") => self.explore(RuleSet::ALL),
            Ok(_) => {
                let dropped = parse_rule(self.rule).expect("the table names a rule");
                self.explore(dropped.iter().fold(RuleSet::ALL, RuleSet::without));
            }
            Err(_) => {
                let (holds, text) = self.child("kept");
                assert!(holds, "{} with all rules:\n{text}", self.name);
                assert!(text.contains("exhausted"), "{} was not exhausted:\n{text}", self.name);
                let (holds, text) = self.child("dropped");
                assert!(!holds, "{} holds without {}", self.name, self.rule);
                assert!(text.contains(self.fails_with), "expected `{}`, got:\n{text}", self.fails_with);
            }
        }
    }

    /// Whether a side holds, and what its process printed.
    fn child(&self, side: &str) -> (bool, String) {
        let began = Instant::now();
        let program = std::env::current_exe().expect("the test binary knows where it lies");
        let output = Command::new(program)
            .args(["--exact", self.name, "--nocapture"])
            .env(SIDE, side)
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("the test binary runs again");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let iterations = text.split_once("iterations: ").and_then(|(_, rest)| rest.split_whitespace().next());
        let known = [CAUSALITY, DEADLOCK, self.fails_with].into_iter().find(|known| text.contains(known));
        let verdict = if output.status.success() { "holds" } else { known.unwrap_or("fails otherwise") };
        let rules = if side == "kept" { "all rules".to_owned() } else { format!("without {}", self.rule) };
        println!(
            "{:<58} {:<53} {:>8} iterations {:>6.2} s  {verdict}",
            self.name,
            rules,
            iterations.unwrap_or("?"),
            began.elapsed().as_secs_f64()
        );
        (output.status.success(), text)
    }

    /// Runs every interleaving, and prints how many there were.
    fn explore(&self, rules: RuleSet) {
        let model = self.model;
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            usual(panic);
            eprintln!("iterations: {}", ITERATIONS.load(Ordering::Relaxed));
        }));
        self.builder().check(move || {
            ITERATIONS.fetch_add(1, Ordering::Relaxed);
            model(rules);
        });
        // No limit was given that could have ended the search before its time.
        println!("exhausted, iterations: {}", ITERATIONS.load(Ordering::Relaxed));
    }

    /// Everything in code, so that no variable of loom's in the environment changes what is searched.
    fn builder(&self) -> loom::model::Builder {
        let mut builder = loom::model::Builder::new();
        builder.max_threads = 4;
        builder.max_branches = 10_000;
        builder.max_permutations = None;
        builder.max_duration = None;
        builder.preemption_bound = self.bound.filter(|_| std::env::var_os(UNBOUNDED).is_none());
        builder.checkpoint_file = None;
        builder.checkpoint_interval = 20_000;
        builder.expect_explicit_explore = false;
        builder.location = false;
        builder.log = false;
        builder
    }
}

macro_rules! models {
    ($($name:ident, $rule:literal, $fails_with:expr, $bound:expr, $model:path;)*) => {
        $(
            #[test]
            fn $name() {
                let name = stringify!($name);
                Case { name, rule: $rule, fails_with: $fails_with, bound: $bound, model: $model }.judge();
            }
        )*
    };
}

models! {
    an_index_read_waits_for_the_reload_of_its_layer,
        "index-read-waits-layer@ragged-prefill", CAUSALITY, None, copies::reload_against_read;
    an_offload_waits_for_the_forward_step,
        "store-waits-forward", CAUSALITY, None, copies::offload_against_write;
    an_eviction_leaves_a_matched_page_alone,
        "evict-skips-leased@host", CAUSALITY, None, copies::eviction_against_match;
    the_last_copy_wakes_the_request_that_waits_for_its_page,
        "wake-on-completion@offload", DEADLOCK, Some(5), copies::last_copy_against_waiter;
    a_reset_takes_back_the_pages_of_copies_under_way,
        "reset-clears-everything@transfers", copies::LEFT_BEHIND, None, copies::reset_against_reload;
    an_aborted_receive_keeps_its_page_until_the_writer_stops,
        "hold-until-drained@abort", CAUSALITY, None, handover::abort_against_late_write;
    a_reset_keeps_the_page_of_a_receive_until_the_writer_stops,
        "hold-until-drained@flush", CAUSALITY, None, handover::reset_against_late_write;
    a_completion_that_is_queued_beats_the_deadline,
        "completion-before-deadline", handover::NEEDLESS, None, handover::completion_against_deadline;
}
