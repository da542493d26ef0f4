//! The canonical form of a scenario, and its digest.
//!
//! It holds what decides which states there are: model layers, world, requests, faults, dropped rules, properties. It
//! leaves out prose, tags, expectations, limits and how it is searched, so that a trace survives new prose and new counts. A key that is
//! added to the format later must stand in it only where it differs from its default: old digests then stay valid.

use std::fmt::Write as _;

use super::model::Layout;
use super::types::{Layer, Scenario};

impl Scenario {
    /// The canonical form: one `name value` a line, in a fixed order. Names and blocks hold no white space.
    pub fn canonical(&self) -> String {
        let mut out = String::from("kvweft-scenario 1\n");
        for layer in &self.model.layers {
            layer_lines(&mut out, self.model.geometry.page_tokens, layer);
        }
        let w = &self.world;
        line(&mut out, "roles", w.roles);
        line(&mut out, "device_pages", w.device_pages);
        line(&mut out, "host_pages", w.host_pages);
        line(&mut out, "decode_pages", w.decode_pages);
        line(&mut out, "metadata_slots", w.metadata_slots);
        line(&mut out, "event_slots", w.event_slots);
        line(&mut out, "write_policy", w.write_policy);
        line(&mut out, "prefix_cache", w.prefix_cache);
        line(&mut out, "page_tokens", w.page_tokens);
        line(&mut out, "chunk_pages", w.chunk_pages);
        line(&mut out, "max_batch", w.batch_max);
        line(&mut out, "grain", w.grain);
        line(&mut out, "deadlines", w.deadlines);
        for r in &self.requests {
            let lists = [&r.prompt, &r.output, &r.after].map(|list| list.join(","));
            let [prompt, output, after] = &lists;
            line(
                &mut out,
                "request",
                format_args!("{} [{prompt}] [{output}] [{after}] {} {}", r.name, r.retries, r.priority),
            );
        }
        let f = &self.faults;
        for abort in &f.abort {
            line(&mut out, "abort", format_args!("{} {}", abort.request, abort.at.map_or("-", |at| at.name())));
        }
        for request in &f.preempt {
            line(&mut out, "preempt", request);
        }
        let at = f.flush.at.map_or("-", |at| at.name());
        line(&mut out, "flush", format_args!("{} {at}", f.flush.times));
        for (name, times) in [
            ("lose", f.lose),
            ("duplicate", f.duplicate),
            ("reorder", f.reorder),
            ("slow", f.slow),
            ("fail_part", f.fail_part),
        ] {
            line(&mut out, name, times);
        }
        let mut dropped = self.drop.clone();
        dropped.sort();
        for rule in dropped {
            line(&mut out, "drop", rule);
        }
        for property in &self.properties {
            line(&mut out, "property", property);
        }
        out
    }

    /// 64-bit FNV-1a over the canonical form, as 16 hexadecimal digits.
    pub fn digest(&self) -> String {
        format!("{:016x}", fnv1a(self.canonical().as_bytes()))
    }
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name} {value}");
}

fn layer_lines(out: &mut String, page_tokens: u32, layer: &Layer) {
    line(out, "layer", format_args!("{} {}", layer.index, layer.kind));
    let parts = [
        ("kv", Some(&layer.kv)),
        ("index-k", layer.index_k.as_ref()),
        ("decode-index-k", layer.decode_index_k.as_ref()),
    ];
    for (name, layout) in parts {
        let Some(layout) = layout else { continue };
        let Layout { dtype, bytes_per_entry, tokens_per_entry, scale, scale_bytes_per_entry, page_align, .. } = layout;
        let retained = layout.retained_tokens.unwrap_or(0);
        line(
            out,
            name,
            format_args!(
                "{dtype} {page_tokens}/{tokens_per_entry} {bytes_per_entry}+{scale_bytes_per_entry} {scale} {page_align} {retained}"
            ),
        );
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn fnv1a_agrees_with_its_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
