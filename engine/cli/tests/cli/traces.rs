//! `replay`, `shrink` and `render` of traces that `check` wrote.

use kvweft_check::build::build;
use kvweft_check::record::{Walk, replay};
use kvweft_check::scenario;
use kvweft_trace::{StepLine, TraceFile};

use crate::kvweft::Folder;

const SCENARIO: &str = "reload-before-prefill-read";
const PROPERTY: &str = "reads-see-own-content";

#[test]
fn a_trace_replays_and_with_every_rule_on_the_fence_stands_in_its_way() {
    let folder = Folder::new("replay");
    let trace = folder.trace(SCENARIO, PROPERTY);
    let ran = folder.run(&["replay", &trace]);
    ran.ends_with(0);
    let last = "violated, as recorded: reads-see-own-content: r3 reads index-k of layer 0: expects A, finds -";
    assert_eq!(ran.stdout.lines().last(), Some(last));
    assert!(ran.stdout.contains("\n 17  client     submit r3 [A D]\n"), "{}", ran.stdout);
    let fenced = folder.run(&["replay", &trace, "--all-rules"]);
    fenced.ends_with(1);
    assert!(
        fenced.stdout.ends_with(
            "step 18 cannot happen: forward s3 read index-k layer 0\n  it waits for the reload event of layer 0: \
             index-read-waits-layer@ragged-prefill\n"
        ),
        "{}",
        fenced.stdout
    );
}

#[test]
fn a_trace_of_a_liveness_property_replays_to_its_end_and_names_the_dooming_step() {
    let folder = Folder::new("liveness");
    let trace = folder.trace("hold-and-wait", "every-request-ends");
    assert_eq!(folder.read(&trace).matches("  <- dooming step\n").count(), 1);
    let ran = folder.run(&["replay", &trace]);
    ran.ends_with(0);
    assert_eq!(
        ran.stdout.lines().last(),
        Some("violated, as recorded: wedge: every-request-ends: r1, r2 waits for ever")
    );
    let shrunk = folder.run(&["shrink", &trace]);
    shrunk.ends_with(0);
    assert_eq!(shrunk.stdout, folder.read(&trace));
    assert_eq!(
        shrunk.stderr,
        "note: every-request-ends is broken by what never happens, not by a step: the trace stays as it is\n"
    );
}

#[test]
fn a_trace_whose_last_step_was_left_out_does_not_violate_anything() {
    let folder = Folder::new("harmless");
    let mut trace = TraceFile::parse(&folder.read(&folder.trace(SCENARIO, PROPERTY))).expect("it was just written");
    trace.steps.pop();
    folder.write("short.trace", trace.to_string());
    let ran = folder.run(&["replay", "short.trace"]);
    ran.ends_with(1);
    assert_eq!(
        ran.stdout.lines().last(),
        Some("not violated: every step could be taken, and reads-see-own-content holds")
    );
    let shrunk = folder.run(&["shrink", "short.trace"]);
    shrunk.ends_with(1);
    assert_eq!(
        (shrunk.stdout.as_str(), shrunk.stderr.as_str()),
        ("", "error: the trace does not violate reads-see-own-content, so there is nothing to shrink\n")
    );
}

/// The trace with up to `most` steps more, each possible where it stands, the violation still at the end.
fn padded(trace: &TraceFile, most: usize) -> TraceFile {
    let loaded = kvweft_check::build::with_names(|names| scenario::load_embedded_one(&trace.scenario, names));
    let scenario = loaded.expect("it is built in").expect("it is valid");
    let drops = kvweft_check::build::dropped(trace.drops.iter().map(String::as_str)).expect("its rules are known");
    let system = build(&scenario, drops);
    let mut padded = trace.clone();
    let mut at = padded.steps.len() - 1;
    while at > 0 && padded.steps.len() < trace.steps.len() + most {
        let head = TraceFile { steps: padded.steps[..at].to_vec(), ..padded.clone() };
        let taken = replay(&system, &head).expect("a head of the trace replays").actions;
        let mut walk = Walk::new(&system);
        for action in taken {
            walk.take(action);
        }
        let longer = walk.choices().into_iter().find_map(|(_, described)| {
            let step = StepLine {
                actor: described.actor,
                action: described.ops.join("; "),
                result: String::new(),
                mark: String::new(),
            };
            let mut longer = padded.clone();
            longer.steps.insert(at, step);
            let replayed = replay(&system, &longer).ok()?;
            let early = replayed.steps[..longer.steps.len() - 1].iter().any(|step| !step.violations.is_empty());
            (replayed.violation.is_some() && !early).then_some(longer)
        });
        match longer {
            Some(longer) => padded = longer,
            None => at -= 1,
        }
    }
    padded
}

#[test]
fn a_trace_padded_with_harmless_steps_is_shrunk_to_what_it_was() {
    let folder = Folder::new("shrink");
    let cases = [
        (SCENARIO, PROPERTY, 1, true),
        ("handover", "done-means-arrived", 2, false),
        ("handover-queue", "no-read-under-write", 1, false),
        ("status-of-former-life", "done-means-arrived", 3, false),
    ];
    for (scenario, property, pads, same) in cases {
        let minimal = folder.read(&folder.trace(scenario, property));
        let steps = TraceFile::parse(&minimal).expect("it was just written").steps.len();
        let longer = padded(&TraceFile::parse(&minimal).expect("as above"), 8);
        let added = longer.steps.len() - steps;
        assert!(added >= pads, "{scenario}: only {added} steps could be added");
        folder.write("long.trace", longer.to_string());
        let ran = folder.run(&["shrink", "long.trace", "--out", "short.trace"]);
        ran.ends_with(0);
        assert_eq!(ran.stdout, "");
        assert!(ran.stderr.starts_with(&format!("{} steps shrunk to {steps} in ", steps + added)), "{}", ran.stderr);
        // Of several traces of this length another one may be left.
        assert!(folder.read("short.trace") == minimal || !same, "{scenario} from:\n{longer}");
        folder.run(&["replay", "short.trace"]).ends_with(0);
        assert_eq!(folder.run(&["shrink", "long.trace"]).stdout, folder.read("short.trace"));
    }
}

#[test]
fn a_trace_is_drawn_as_check_draws_it_and_as_a_graph() {
    let folder = Folder::new("render");
    let trace = folder.trace(SCENARIO, PROPERTY);
    let text = folder.run(&["render", &trace]);
    text.ends_with(0);
    assert_eq!(text.stdout, folder.read(&trace.replace(".trace", ".txt")));
    assert_eq!(folder.run(&["render", &trace, "--as", "text"]), text);
    let dot = folder.run(&["render", &trace, "--as", "dot"]);
    dot.ends_with(0);
    assert!(dot.stdout.starts_with("digraph {\n") && dot.stdout.ends_with("}\n"), "{}", dot.stdout);
    assert_eq!(dot.stdout.matches("shape=box").count(), 18);
    assert!(dot.stdout.contains("18 forward: s3 read index-k layer 0 [violation]"), "{}", dot.stdout);
}

#[test]
fn a_trace_that_cannot_be_replayed_is_still_drawn_with_a_warning() {
    let folder = Folder::new("render-unreplayable");
    let text = folder.read(&folder.trace(SCENARIO, PROPERTY)).replace("s3 read index-k layer 0", "s9 read everything");
    folder.write("odd.trace", text);
    let ran = folder.run(&["render", "odd.trace"]);
    ran.ends_with(0);
    assert!(ran.stdout.contains("s9 read everything   <- violation"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("[p1: "));
    assert!(ran.stderr.starts_with("warning: drawn without memory, the trace cannot be replayed: step 18"));
    let shrunk = folder.run(&["shrink", "odd.trace"]);
    shrunk.ends_with(1);
    assert!(shrunk.stderr.starts_with("error: the trace cannot be replayed, so it cannot be shrunk\nstep 18 cannot"));
}

#[test]
fn threads_follow_a_trace_and_say_which_fence_holds_them_with_every_rule_on() {
    let folder = Folder::new("replay-host");
    let ran = folder.run(&["check", "reload-before-prefill-read", "--out", "out"]);
    ran.ends_with(0);
    let trace = "out/reload-before-prefill-read.reads-see-own-content.trace";
    let broken = folder.run(&["replay", trace, "--on", "host"]);
    let stdout = &broken.ends_with(0).stdout;
    assert!(stdout.contains("on threads: every step was taken"), "{stdout}");
    assert!(stdout.contains("r3 ends well, its answer is garbled"), "{stdout}");
    let held = folder.run(&["replay", trace, "--on", "host", "--all-rules"]);
    let stdout = &held.ends_with(1).stdout;
    let fence = "on threads: the step is held back by its fence: index-read-waits-layer@ragged-prefill";
    assert!(stdout.contains(fence) && !stdout.contains("garbled"), "{stdout}");
}
