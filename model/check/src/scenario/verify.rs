//! What no single key of a scenario can say: names, waiting requests, sizes.

use super::choices::Roles;
use super::error::Code;
use super::reader::Reader;
use super::requests::Placed;
use super::types::{Import, World};

/// Names are unique, and every request waits for known others that do not wait for it.
pub(super) fn requests(reader: &mut Reader<'_>, requests: &[Placed]) {
    for (i, placed) in requests.iter().enumerate() {
        let name = &placed.request.name;
        if requests[..i].iter().any(|other| other.request.name == *name) {
            let what = format!("a second request has the name \"{name}\"");
            let error = reader.error(placed.name_span.clone(), Code::Duplicate, what);
            error.expected = "a name of its own for each request".to_owned();
            error.help = "rename one of them".to_owned();
        }
        for (j, (after, span)) in placed.request.after.iter().zip(&placed.after_spans).enumerate() {
            if !requests.iter().any(|other| other.request.name == *after) {
                let names = requests.iter().map(|other| other.request.name.as_str()).filter(|other| other != name);
                reader.unknown_name(span.clone(), "there is no request of this name", after, names);
            } else if placed.request.after[..j].contains(after) {
                let error = reader.error(span.clone(), Code::Duplicate, format!("\"{after}\" stands twice"));
                error.help = "remove the entry".to_owned();
            }
        }
    }
    cycle(reader, requests);
}

/// Notes the first ring of requests that wait for each other.
fn cycle(reader: &mut Reader<'_>, requests: &[Placed]) {
    for placed in requests {
        let Some(ring) = ring(requests, &placed.request.name) else {
            continue;
        };
        let at = placed.after_spans.first().cloned().unwrap_or(placed.span.clone());
        let error = reader.error(at, Code::Cycle, "these requests wait for each other");
        error.expected = "requests that can all be submitted in some order".to_owned();
        error.found = ring.join(" after ");
        error.help = "remove one `after` of the ring".to_owned();
        return;
    }
}

/// A way from the request back to itself along `after`.
fn ring<'r>(requests: &'r [Placed], start: &'r str) -> Option<Vec<&'r str>> {
    let mut ways: Vec<Vec<&str>> = vec![vec![start]];
    let mut seen: Vec<&str> = Vec::new();
    while let Some(way) = ways.pop() {
        let last = way.last().copied()?;
        let Some(placed) = requests.iter().find(|placed| placed.request.name == last) else {
            continue;
        };
        for after in &placed.request.after {
            let mut longer = way.clone();
            longer.push(after);
            if after == start {
                return Some(longer);
            }
            if !seen.contains(&after.as_str()) {
                seen.push(after);
                ways.push(longer);
            }
        }
    }
    None
}

/// Each request alone fits the pools it goes through.
pub(super) fn sizes(reader: &mut Reader<'_>, world: &World, requests: &[Placed], import: Option<&Import>) {
    for placed in requests {
        let prompt = placed.request.prompt.len();
        let whole = prompt + placed.request.output.len();
        let pools: &[(&str, &str, usize, u32)] = match world.roles {
            Roles::Together => &[("device_pages", "prompt and output", whole, world.device_pages)],
            Roles::Split => &[
                ("device_pages", "prompt", prompt, world.device_pages),
                ("decode_pages", "prompt and output", whole, world.decode_pages),
            ],
        };
        for (pool, what, blocks, pages) in pools.iter().filter(|pool| pool.2 > pool.3 as usize) {
            let name = &placed.request.name;
            let error = reader.error(placed.span.clone(), Code::TooSmall, format!("request \"{name}\" can never fit"));
            error.expected = format!("at most {pages} blocks of {what}, since world.{pool} = {pages}");
            error.found = format!("{blocks} blocks");
            error.help = match import {
                Some(_) => {
                    format!("set `max_blocks` in `requests.from`, or raise `{pool}` to {blocks}")
                }
                None => format!("shorten the request, or raise `{pool}` to {blocks}"),
            };
        }
    }
}
