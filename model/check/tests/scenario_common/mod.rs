//! Names and a small scenario that the tests of scenario files share.
#![allow(dead_code, unreachable_pub)]

use kvweft_check::scenario::{Embedded, Errors, Names, RuleName, Scenario, parse};

/// A few rules and properties, as another crate would pass them in.
pub const NAMES: Names<'static> = Names {
    rules: &[
        RuleName { name: "index-read-waits-layer", sites: &["ragged-prefill", "paged-decode"] },
        RuleName { name: "kv-read-waits-layer", sites: &["ragged-prefill", "paged-decode"] },
        RuleName { name: "pin-until-stored", sites: &["finish", "abort"] },
        RuleName { name: "free-once", sites: &["abort"] },
        RuleName { name: "all-parts-settle", sites: &[] },
    ],
    properties: &["accounts-balance", "every-request-ends", "no-read-under-write", "reads-see-own-content"],
};

/// A correct scenario with something of every section; tests break it.
pub const GOOD: &str = r#"format = 1
title = "A title"
source = "the case"
tags = ["case"]

[model]
file = "deepseek-v4-flash"
layers = ["c4", "c128"]
index_k = "fp8"

[world]
roles = "split"
device_pages = 3
host_pages = 2
decode_pages = 4
deadlines = true

[[request]]
name = "r1"
prompt = ["A", "B"]
output = ["X"]
retries = 1

[[request]]
name = "r2"
prompt = ["A"]
after = ["r1"]

[faults]
abort = ["r1", { request = "r2", at = "prefill" }]
preempt = ["r1"]
flush = { at = "prefill", times = 2 }
lose = 1

[drop]
rules = ["index-read-waits-layer@ragged-prefill", "free-once"]

[check]
properties = ["reads-see-own-content", "every-request-ends"]
max_states = 1000

[expect]
verdict = "violated"
violates = ["reads-see-own-content"]
states = 12
"#;

/// Parses a text as `case.toml`.
pub fn parsed(text: &str) -> Result<Scenario, Errors> {
    parse("case.toml", text, &NAMES, &Embedded)
}

/// The good scenario with one text replaced.
pub fn good_but(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from:?} must stand once in the good scenario");
    GOOD.replace(from, to)
}

/// All errors of a text as plain text; empty when there is none.
pub fn rendered(text: &str) -> String {
    parsed(text).err().map_or(String::new(), |errors| errors.render_plain())
}
