//! Scenarios by lot.

use std::fmt::Write;

use kvweft_check::build::{CacheSystem, build, with_names};
use kvweft_check::scenario::{self, Embedded};
use kvweft_core::{RuleSet, RuleSite};

/// A fixed sequence of numbers that look random.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_in(&mut self, end: u64) -> bool {
        self.below(end) == 0
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// A world by lot.
pub(crate) struct Lot {
    pub(crate) system: CacheSystem,
    /// The scenario, and what it drops: enough to meet it again.
    pub(crate) text: String,
}

/// How many worlds are wanted of each kind.
pub(crate) fn wanted(usual: u64) -> u64 {
    std::env::var("KVWEFT_RANDOM_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The next world; `None` if the lot falls on a scenario that is none.
pub(crate) fn world(numbers: &mut Numbers, split: bool) -> Option<Lot> {
    let mut text = shape(numbers, split);
    let requests = 1 + numbers.below(if split { 2 } else { 3 });
    add_requests(numbers, requests, &mut text);
    add_faults(numbers, split, requests, &mut text);
    let rules: Vec<RuleSite> = RuleSite::all().collect();
    let drops = (0..numbers.below(4)).map(|_| rules[numbers.below(rules.len() as u64) as usize]);
    let drops = drops.fold(RuleSet::EMPTY, RuleSet::with);
    let scenario = with_names(|names| scenario::parse("random", &text, names, &Embedded)).ok()?;
    let dropped: Vec<String> = drops.iter().map(|at| at.to_string()).collect();
    Some(Lot { system: build(&scenario, drops), text: format!("{text}\n# drops {dropped:?}") })
}

fn shape(numbers: &mut Numbers, split: bool) -> String {
    let layers = numbers.pick(&["\"c4\"", "\"c4\"", "\"window\"", "\"c4\", \"c4\"", "\"window\", \"c4\""]);
    let host_pages = numbers.below(4);
    let mut text = format!(
        "format = 1\ntitle = \"t\"\nsource = \"s\"\ntags = []\n[model]\nfile = \"deepseek-v4-flash\"\nlayers = [{layers}]\n\
         index_k = \"{}\"\n[world]\nroles = \"{}\"\ndevice_pages = {}\nhost_pages = {host_pages}\nevent_slots = {}\n\
         max_batch = {}\nprefix_cache = {}\n",
        numbers.pick(&["bf16", "fp8"]),
        if split { "split" } else { "together" },
        2 + numbers.below(3),
        1 + numbers.below(2),
        1 + numbers.below(2),
        !numbers.one_in(8),
    );
    if host_pages > 0 {
        writeln!(text, "write_policy = \"{}\"", numbers.pick(&["through", "through", "back", "off"]))
            .expect("a string");
    }
    if numbers.one_in(4) {
        text += "chunk_pages = 1\n";
    }
    if split {
        let (pages, slots, deadlines) = (2 + numbers.below(3), 1 + numbers.below(2), numbers.one_in(2));
        writeln!(text, "decode_pages = {pages}\nmetadata_slots = {slots}\ndeadlines = {deadlines}").expect("a string");
    }
    text
}

fn add_requests(numbers: &mut Numbers, requests: u64, text: &mut String) {
    let mut before = String::new();
    for at in 0..requests {
        let fresh = numbers.pick(&["\"A\"", "\"B\"", "\"A\", \"B\"", "\"A\", \"C\""]).to_owned();
        let prompt = if at > 0 && numbers.one_in(2) { before } else { fresh };
        let output = if numbers.one_in(3) { "\"X\"" } else { "" };
        writeln!(text, "[[request]]\nname = \"r{at}\"\nprompt = [{prompt}]\noutput = [{output}]").expect("a string");
        if at > 0 && numbers.one_in(2) {
            writeln!(text, "after = [\"r{}\"]", numbers.below(at)).expect("a string");
        }
        if numbers.one_in(8) {
            *text += "retries = 1\n";
        }
        if numbers.one_in(8) {
            *text += "priority = 1\n";
        }
        before = prompt;
    }
}

/// At most two faults, of kinds that the roles have.
fn add_faults(numbers: &mut Numbers, split: bool, requests: u64, text: &mut String) {
    *text += "[faults]\n";
    let mut kinds: Vec<u64> = (0..numbers.below(3)).map(|_| numbers.below(if split { 8 } else { 3 })).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let (request, side) = (numbers.below(requests), numbers.pick(&["prefill", "decode"]));
        let at = if split { format!(", at = \"{side}\"") } else { String::new() };
        *text += &match kind {
            0 => format!("abort = [{{ request = \"r{request}\"{at} }}]\n"),
            1 if split => "flush = { at = \"SIDE\", times = 1 }\n".replace("SIDE", side),
            1 => "flush = 1\n".to_owned(),
            2 if !split => format!("preempt = [\"r{request}\"]\n"),
            2 | 3 => "lose = 1\n".to_owned(),
            4 => "duplicate = 1\n".to_owned(),
            5 => "reorder = 1\n".to_owned(),
            6 => "fail_part = 1\n".to_owned(),
            _ => "slow = 1\n".to_owned(),
        };
    }
}
