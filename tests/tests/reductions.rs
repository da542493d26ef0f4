//! Reduced searches of worlds against full ones: of the whole suite, and of many small worlds with some rule dropped.

use std::fmt::Write;

use kvweft_check::build::{CacheSystem, build, scenario_drops, with_names};
use kvweft_check::explore::{Options, Outcome, Verdict, WantedProperties, explore};
use kvweft_check::reduce::Reduction;
use kvweft_check::scenario::{self, Embedded, Scenario};
use kvweft_check::system::{Found, System};
use kvweft_check::trace::replay;
use kvweft_core::{RuleSet, RuleSite};
use kvweft_world::Action;

/// Unless the environment asks for another number.
const RANDOM_WORLDS: u64 = 1_500;
/// Larger random worlds are left out.
const STATES_MAX: u64 = 800;

fn options(scenario: &Scenario) -> Options {
    let want = match &scenario.properties[..] {
        [] => WantedProperties::All,
        listed => WantedProperties::Listed(listed.to_vec()),
    };
    Options { threads: 1, want, ..Options::default() }
}

fn broken(outcome: &Outcome<Action>) -> Vec<&'static str> {
    outcome.traces.iter().map(|trace| trace.violation.property).collect()
}

/// Each trace can be taken in the world, and its end breaks what it says.
fn check_traces(system: &CacheSystem, outcome: &Outcome<Action>, what: &str) {
    for trace in &outcome.traces {
        let states = replay(system, &trace.steps).expect(what);
        if trace.dooming_step.is_some() {
            let owed = system.owed(states.last().expect("an end"));
            assert!(owed.contains(&trace.violation), "{what}");
        } else {
            let (mut state, last) = (states[states.len() - 2].clone(), trace.steps.last().expect("a step"));
            let mut found = Found::default();
            system.step(&mut state, last, &mut found);
            assert!(found.violations.contains(&trace.violation), "{what}");
        }
    }
}

#[test]
fn the_whole_suite_has_the_same_verdicts_with_reductions_and_fewer_states() {
    let scenarios = with_names(scenario::load_embedded).expect("the built-in scenarios are right");
    let mut twenty_times = Vec::new();
    let (mut times, mut searches) = (1.0f64, 0);
    for scenario in &scenarios {
        for drops in [scenario_drops(scenario), RuleSet::EMPTY] {
            let system = build(scenario, drops);
            let options = options(scenario);
            let whole = explore(&system, &options);
            let reduced = explore(&system, &Options { reduce: true, ..options });
            assert_eq!(broken(&whole), broken(&reduced), "{}", scenario.name);
            assert!(matches!(reduced.reduction, Some(Reduction::Applied { .. })), "{}", scenario.name);
            check_traces(&system, &reduced, &scenario.name);
            let fewer = whole.counts.states as f64 / reduced.counts.states as f64;
            if fewer >= 20.0 && !twenty_times.contains(&scenario.name.as_str()) {
                twenty_times.push(&scenario.name);
            }
            times *= fewer;
            searches += 1;
        }
    }
    let mean = times.powf(1.0 / f64::from(searches));
    assert!(mean > 2.0, "expected less than half of the states, got a geometric mean of {mean:.2}");
    assert!(twenty_times.len() >= 3, "expected three contended scenarios, got {twenty_times:?}");
}

/// A fixed sequence of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn blocks(&mut self, least: u64, most: u64) -> String {
        let names =
            (0..least + self.below(most - least + 1)).map(|_| ["\"A\"", "\"B\"", "\"C\""][self.below(3) as usize]);
        names.collect::<Vec<_>>().join(", ")
    }
}

/// A small world: its shape, its requests and its faults by lot.
fn random_scenario(numbers: &mut Numbers) -> String {
    let split = numbers.below(2) == 0;
    let layers = ["\"c4\"", "\"window\"", "\"c4\", \"c4\"", "\"window\", \"c4\""][numbers.below(4) as usize];
    let mut text = format!(
        "format = 1\ntitle = \"t\"\nsource = \"s\"\ntags = []\n[model]\nfile = \"deepseek-v4-flash\"\nlayers = [{layers}]\n\
         index_k = \"bf16\"\n[world]\nroles = \"{}\"\ndevice_pages = {}\nhost_pages = {}\n",
        if split { "split" } else { "together" },
        2 + numbers.below(2),
        numbers.below(4)
    );
    if split {
        let deadlines = numbers.below(2) == 0;
        writeln!(text, "decode_pages = {}\ndeadlines = {deadlines}", 2 + numbers.below(2)).expect("a string");
    }
    let requests = if split { 1 + numbers.below(2) } else { 1 + numbers.below(3) };
    for at in 0..requests {
        let (prompt, output) = (numbers.blocks(1, 1), if numbers.below(3) == 0 { "\"X\"" } else { "" });
        writeln!(text, "[[request]]\nname = \"r{at}\"\nprompt = [{prompt}]\noutput = [{output}]").expect("a string");
        if at > 0 && numbers.below(2) == 0 {
            writeln!(text, "after = [\"r{}\"]", at - 1).expect("a string");
        }
    }
    text += "[faults]\n";
    match numbers.below(if split { 8 } else { 4 }) {
        0 => text += "abort = [\"r0\"]\n",
        1 => text += "preempt = [\"r0\"]\n",
        2 => text += "flush = 1\n",
        4 => text += "lose = 1\n",
        5 => text += "duplicate = 1\n",
        6 => text += "fail_part = 1\n",
        7 => text += "slow = 1\n",
        _ => {}
    }
    text
}

#[test]
fn small_worlds_by_lot_have_the_same_verdicts_with_reductions() {
    let rules: Vec<RuleSite> = RuleSite::all().collect();
    let mut numbers = Numbers(11);
    let (mut checked, mut refuted, mut states, mut wholes) = (0u64, 0, 0, 0);
    let (mut holding, mut stuck, mut stepping) = (0u64, 0u64, 0u64);
    let asked = std::env::var("KVWEFT_RANDOM_WORLDS").ok().and_then(|text| text.parse().ok());
    for _ in 0..asked.unwrap_or(RANDOM_WORLDS) {
        let text = random_scenario(&mut numbers);
        let Ok(scenario) = with_names(|names| scenario::parse("random", &text, names, &Embedded)) else { continue };
        let drops = (0..numbers.below(3))
            .fold(RuleSet::EMPTY, |drops, _| drops.with(rules[numbers.below(rules.len() as u64) as usize]));
        let system = build(&scenario, drops);
        let options = Options { states_max: STATES_MAX, ..options(&scenario) };
        let whole = explore(&system, &options);
        if !whole.exhausted {
            continue;
        }
        let reduced = explore(&system, &Options { reduce: true, states_max: 4 * STATES_MAX, ..options });
        let dropped: Vec<String> = drops.iter().map(|at| at.to_string()).collect();
        let what = format!("{text}\ndrops {dropped:?}");
        assert_eq!(broken(&whole), broken(&reduced), "{what}");
        check_traces(&system, &reduced, &what);
        checked += 1;
        refuted += u64::from(matches!(reduced.reduction, Some(Reduction::Applied { refuted }) if refuted != 0));
        holding += u64::from(whole.verdict == Verdict::Holds);
        stuck += u64::from(whole.traces.iter().any(|trace| trace.dooming_step.is_some()));
        stepping += u64::from(whole.traces.iter().any(|trace| trace.dooming_step.is_none()));
        states += reduced.counts.states;
        wholes += whole.counts.states;
    }
    let seen = format!("{checked} worlds: {holding} hold, {stuck} stuck, {stepping} broken, {refuted} refuted");
    eprintln!("{seen}; {states} of {wholes} states");
    assert!(checked > 400 && holding.min(stuck).min(stepping).min(refuted) > 15, "{seen}");
    assert!(states * 3 < wholes * 2, "the reduction must reduce: {states} of {wholes}");
}
