//! Reads the sections of a scenario file, but for model and requests.

use super::choices::{Grain, Roles, Side, Verdict, WritePolicy};
use super::error::Code;
use super::names::Names;
use super::reader::{At, Reader, Table};
use super::requests::Placed;
use super::schema::key;
use super::types::{Abort, DroppedRule, Expect, Faults, Flush, World};

/// `[world]`.
pub(super) fn world(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<World> {
    let roles = reader.choice(table, "roles", Roles::from_name);
    let small = |reader: &mut Reader<'_>, name| reader.integer(table, name).map(|n| n.value as u32);
    let device_pages = small(reader, "device_pages");
    let host_pages = small(reader, "host_pages");
    let decode_pages = small(reader, "decode_pages");
    let metadata_slots = small(reader, "metadata_slots");
    let event_slots = small(reader, "event_slots");
    let write_policy = reader.choice(table, "write_policy", WritePolicy::from_name);
    let prefix_cache = reader.flag(table, "prefix_cache");
    let page_tokens = small(reader, "page_tokens");
    let chunk_pages = small(reader, "chunk_pages");
    let batch_max = small(reader, "max_batch");
    let grain = reader.choice(table, "grain", Grain::from_name);
    let deadlines = reader.flag(table, "deadlines");
    let roles = roles?.value;
    let split = roles == Roles::Split;
    if !split {
        split_only(reader, table, "decode_pages");
        split_only(reader, table, "metadata_slots");
        if deadlines.as_ref().is_some_and(|flag| flag.value) {
            split_only(reader, table, "deadlines");
        }
    } else if !table.has("decode_pages") {
        reader.missing_key(&table.span, key("world", "decode_pages"));
    }
    let host_pages = host_pages?;
    if let Some(policy) = write_policy.as_ref().filter(|policy| policy.value != WritePolicy::Off && host_pages == 0) {
        let error = reader.error(policy.span.clone(), Code::Conflict, "a write policy without a host tier");
        error.expected = "\"off\" while host_pages = 0".to_owned();
        error.found = format!("\"{}\"", policy.value);
        error.help = "set host_pages, or remove write_policy".to_owned();
    }
    let default_policy = if host_pages > 0 { WritePolicy::Through } else { WritePolicy::Off };
    Some(World {
        roles,
        device_pages: device_pages?,
        host_pages,
        decode_pages: if split { decode_pages? } else { 0 },
        metadata_slots: if split { metadata_slots.unwrap_or(1) } else { 0 },
        event_slots: event_slots?,
        write_policy: write_policy.map_or(default_policy, |policy| policy.value),
        prefix_cache: prefix_cache?.value,
        page_tokens: page_tokens?,
        chunk_pages: chunk_pages?,
        batch_max: batch_max?,
        grain: grain?.value,
        deadlines: deadlines.map_or(split, |flag| flag.value),
    })
}

/// Notes that the key, if present, needs a split world.
pub(super) fn split_only(reader: &mut Reader<'_>, table: &Table<'_>, name: &str) {
    if table.has(name) {
        let what = format!("`{}.{name}` needs a split world", table.place);
        let error = reader.error(table.key_span(name), Code::Conflict, what);
        error.expected = "`roles = \"split\"`".to_owned();
        error.found = "`roles = \"together\"`".to_owned();
        error.help = format!("remove `{name}`, or set `roles = \"split\"` in [world]");
    }
}

/// `[faults]`; `roles` is `None` when [world] was refused.
pub(super) fn faults(reader: &mut Reader<'_>, table: &Table<'_>, requests: &[Placed], roles: Option<Roles>) -> Faults {
    let count = |reader: &mut Reader<'_>, name| reader.integer(table, name).map_or(0, |n| n.value as u32);
    Faults {
        abort: aborts(reader, table, requests, roles),
        preempt: preempts(reader, table, requests),
        flush: flush(reader, table, roles),
        lose: count(reader, "lose"),
        duplicate: count(reader, "duplicate"),
        reorder: count(reader, "reorder"),
        slow: count(reader, "slow"),
        fail_part: count(reader, "fail_part"),
    }
}

fn aborts(reader: &mut Reader<'_>, table: &Table<'_>, requests: &[Placed], roles: Option<Roles>) -> Vec<Abort> {
    let mut aborts: Vec<Abort> = Vec::new();
    for value in reader.list(table, "abort") {
        let default = (roles == Some(Roles::Split)).then_some(Side::Decode);
        let (request, at) = match reader.element_table(value, "faults.abort") {
            Some(entry) => {
                if roles == Some(Roles::Together) {
                    split_only(reader, &entry, "at");
                }
                let at = reader.choice(&entry, "at", Side::from_name).map(|at| at.value);
                (reader.text(&entry, "request"), default.and(at))
            }
            None => {
                let element = super::schema::Key { name: "abort", place: "faults", ..*key("faults.abort", "request") };
                (reader.text_of(&element, value), default)
            }
        };
        let Some(request) = request else { continue };
        let Some(subject) = subject(reader, &request, requests) else {
            continue;
        };
        let abort = Abort { request: request.value, at };
        let lives = subject.request.retries as usize + 1;
        if aborts.iter().filter(|other| **other == abort).count() >= lives {
            let what = format!("more aborts of \"{}\" than it has lives", abort.request);
            let error = reader.error(request.span, Code::Duplicate, what);
            error.expected = format!("at most {lives}, since retries = {}", lives - 1);
            error.help = "remove the entry, or raise the request's retries".to_owned();
        }
        aborts.push(abort);
    }
    aborts
}

fn preempts(reader: &mut Reader<'_>, table: &Table<'_>, requests: &[Placed]) -> Vec<String> {
    let names = reader.names(table, "preempt", 24);
    let known = names.into_iter().filter(|name| subject(reader, name, requests).is_some());
    known.map(|name| name.value).collect()
}

/// The request that a fault names. Where requests were refused, nothing can be said about names.
fn subject<'r>(reader: &mut Reader<'_>, name: &At<String>, requests: &'r [Placed]) -> Option<&'r Placed> {
    let found = requests.iter().find(|placed| placed.request.name == name.value);
    if found.is_none() && !requests.is_empty() {
        let names = requests.iter().map(|placed| placed.request.name.as_str());
        reader.unknown_name(name.span.clone(), "there is no request of this name", &name.value, names);
    }
    found
}

fn flush(reader: &mut Reader<'_>, table: &Table<'_>, roles: Option<Roles>) -> Flush {
    let Some(value) = reader.raw(table, "flush") else {
        return Flush::default();
    };
    let split = roles == Some(Roles::Split);
    let (times, at) = match reader.element_table(value, "faults.flush") {
        Some(entry) => {
            if roles == Some(Roles::Together) {
                split_only(reader, &entry, "at");
            }
            let at = reader.choice(&entry, "at", Side::from_name).map(|at| at.value);
            (reader.integer(&entry, "times"), at)
        }
        None => {
            let times = super::schema::Key { name: "flush", place: "faults", ..*key("faults.flush", "times") };
            (reader.integer_of(&times, value), Some(Side::Decode))
        }
    };
    let times = times.map_or(0, |times| times.value as u32);
    Flush { times, at: at.filter(|_| split && times > 0) }
}

/// `[drop]`.
pub(super) fn drop(reader: &mut Reader<'_>, table: &Table<'_>, names: &Names<'_>) -> Vec<DroppedRule> {
    let mut dropped: Vec<DroppedRule> = Vec::new();
    let element = super::schema::Key { kind: super::schema::Kind::Line { chars_max: 128 }, ..*key("drop", "rules") };
    for value in reader.list(table, "rules") {
        let Some(text) = reader.text_of(&element, value) else {
            continue;
        };
        let (rule, site) = match text.value.split_once('@') {
            Some((rule, site)) => (rule, Some(site)),
            None => (text.value.as_str(), None),
        };
        let Some(known) = names.rule(rule) else {
            let rules = names.rules.iter().map(|rule| rule.name);
            reader.unknown_name(text.span.clone(), "there is no rule of this name", rule, rules);
            continue;
        };
        if known.sites.is_empty() {
            let what = format!("`{rule}` is not modelled yet: no world can show it");
            let error = reader.error(text.span, Code::UnknownName, what);
            error.expected = "a rule that has sites".to_owned();
            error.help = "`kvweft list rules` shows which rules have sites".to_owned();
            continue;
        }
        if let Some(site) = site.filter(|site| !known.sites.contains(site)) {
            let what = format!("the rule `{rule}` has no site of this name");
            reader.unknown_name(text.span.clone(), what, site, known.sites.iter().copied());
            continue;
        }
        let rule = DroppedRule { rule: rule.to_owned(), site: site.map(str::to_owned) };
        let covers = |other: &DroppedRule| {
            other.rule == rule.rule && (other.site.is_none() || rule.site.is_none() || other.site == rule.site)
        };
        if dropped.iter().any(covers) {
            let error = reader.error(text.span, Code::Duplicate, format!("`{rule}` is dropped twice"));
            error.expected = "each rule once, with or without sites".to_owned();
            error.help = "remove the entry".to_owned();
        }
        dropped.push(rule);
    }
    dropped
}

/// Property names, each known and once; sorted only where the file must be sorted.
pub(super) fn properties(reader: &mut Reader<'_>, table: &Table<'_>, name: &str, names: &Names<'_>) -> Vec<At<String>> {
    let mut known: Vec<At<String>> = Vec::new();
    for property in reader.names(table, name, 64) {
        if !names.properties.contains(&property.value.as_str()) {
            let valid = names.properties.iter().copied();
            reader.unknown_name(property.span, "there is no property of this name", &property.value, valid);
        } else if known.iter().any(|other| other.value == property.value) {
            let error = reader.error(property.span, Code::Duplicate, format!("`{}` stands twice", property.value));
            error.help = "remove the entry".to_owned();
        } else {
            known.push(property);
        }
    }
    known
}

/// `[expect]`; `checked` are the properties of [check], all when empty.
pub(super) fn expect(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    names: &Names<'_>,
    checked: &[String],
) -> Option<Expect> {
    let verdict = reader.choice(table, "verdict", Verdict::from_name);
    let violates = properties(reader, table, "violates", names);
    let states = reader.integer(table, "states").map(|n| n.value);
    let states_all_rules = reader.integer(table, "states_all_rules").map(|n| n.value);
    for pair in violates.windows(2).filter(|pair| pair[0].value > pair[1].value) {
        let error = reader.error(pair[1].span.clone(), Code::OutOfBounds, "`expect.violates` is not sorted");
        error.expected = format!("`{}` before `{}`", pair[1].value, pair[0].value);
        error.help = "sort the list by name".to_owned();
    }
    for property in violates.iter().filter(|p| !checked.is_empty() && !checked.contains(&p.value)) {
        let what = format!("`{}` is expected to be violated and is not checked", property.value);
        let error = reader.error(property.span.clone(), Code::Conflict, what);
        error.expected = format!("one of {}", checked.join(", "));
        error.help = "add it to `check.properties`".to_owned();
    }
    let verdict = verdict?;
    let listed =
        reader.raw(table, "violates").and_then(|value| value.get_ref().as_array()).map_or(0, |list| list.len());
    if (verdict.value == Verdict::Holds) != (listed == 0) {
        let error = reader.error(verdict.span, Code::Conflict, "verdict and violations contradict each other");
        error.expected = "violations with \"violated\", none with \"holds\"".to_owned();
        error.found = format!("\"{}\" and {listed} in `violates`", verdict.value);
        error.help = "mend `verdict` or `violates`".to_owned();
    }
    let violates = violates.into_iter().map(|property| property.value).collect();
    Some(Expect { verdict: verdict.value, violates, states, states_all_rules })
}
