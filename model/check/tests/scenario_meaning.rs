//! What the loader says about the meaning of a file: names, sizes, contradictions. The texts are compared as a whole.
#![cfg(feature = "scenario-files")]

mod scenario_common;

use scenario_common::{good_but, rendered};

/// Replaces a text of the good scenario and compares what the loader says.
#[track_caller]
fn says(from: &str, to: &str, expected: &str) {
    assert_eq!(rendered(&good_but(from, to)).trim_end(), expected.trim());
}

#[test]
fn an_unknown_request_or_value_suggests_the_nearest() {
    says(
        r#"roles = "split""#,
        r#"roles = "splitt""#,
        r#"
case.toml:12:9: error: `world.roles` has no value of this name
 12 | roles = "splitt"
    |         ^^^^^^^^
expected: one of together, split
found: "splitt"
help: did you mean "split"?
"#,
    );
    says(
        r#"after = ["r1"]"#,
        r#"after = ["r11"]"#,
        r#"
case.toml:27:10: error: there is no request of this name
 27 | after = ["r11"]
    |          ^^^^^
expected: one of r1
found: "r11"
help: did you mean "r1"?
"#,
    );
    says(
        r#"preempt = ["r1"]"#,
        r#"preempt = ["r3"]"#,
        r#"
case.toml:31:12: error: there is no request of this name
 31 | preempt = ["r3"]
    |            ^^^^
expected: one of r1, r2
found: "r3"
help: did you mean "r1"?
"#,
    );
}

#[test]
fn an_unknown_rule_site_or_property_suggests_the_nearest() {
    says(
        "free-once",
        "free-twice",
        r#"
case.toml:36:51: error: there is no rule of this name
 36 | rules = ["index-read-waits-layer@ragged-prefill", "free-twice"]
    |                                                   ^^^^^^^^^^^^
expected: one of index-read-waits-layer, kv-read-waits-layer, pin-until-stored, free-once, all-parts-settle
found: "free-twice"
help: did you mean "free-once"?
"#,
    );
    says(
        "@ragged-prefill",
        "@ragged-prefil",
        r#"
case.toml:36:10: error: the rule `index-read-waits-layer` has no site of this name
 36 | rules = ["index-read-waits-layer@ragged-prefil", "free-once"]
    |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
expected: one of ragged-prefill, paged-decode
found: "ragged-prefil"
help: did you mean "ragged-prefill"?
"#,
    );
    says(
        r#""free-once""#,
        r#""all-parts-settle""#,
        r#"
case.toml:36:51: error: `all-parts-settle` is not modelled yet: no world can show it
 36 | rules = ["index-read-waits-layer@ragged-prefill", "all-parts-settle"]
    |                                                   ^^^^^^^^^^^^^^^^^^
expected: a rule that has sites
help: `kvweft list rules` shows which rules have sites
"#,
    );
    says(
        r#"["reads-see-own-content", "every-request-ends"]"#,
        r#"["reads-see-own-content", "every-request-end"]"#,
        r#"
case.toml:39:40: error: there is no property of this name
 39 | properties = ["reads-see-own-content", "every-request-end"]
    |                                        ^^^^^^^^^^^^^^^^^^^
expected: one of accounts-balance, every-request-ends, no-read-under-write, reads-see-own-content
found: "every-request-end"
help: did you mean "every-request-ends"?
"#,
    );
}

#[test]
fn an_unknown_model_or_layer_kind_suggests_the_nearest() {
    says(
        r#"file = "deepseek-v4-flash""#,
        r#"file = "deepseek-v4-flush""#,
        r#"
case.toml:7:8: error: there is no model file of this name
 7 | file = "deepseek-v4-flush"
   |        ^^^^^^^^^^^^^^^^^^^
expected: one of deepseek-v3.2, deepseek-v4-flash, dense, glm-5
found: "deepseek-v4-flush"
help: did you mean "deepseek-v4-flash"?
"#,
    );
    says(
        r#"layers = ["c4", "c128"]"#,
        r#"layers = ["c5", 43]"#,
        r#"
case.toml:8:11: error: the model deepseek-v4-flash has no layers of this kind
 8 | layers = ["c5", 43]
   |           ^^^^
expected: one of window, c4, c128
found: "c5"
help: did you mean "c4"?

case.toml:8:17: error: an element of `model.layers` is out of bounds
 8 | layers = ["c5", 43]
   |                 ^^
expected: an integer from 0 to 42
found: 43
help: choose a value within the bounds
"#,
    );
}

#[test]
fn requests_have_names_of_their_own_and_wait_in_no_ring() {
    says(
        r#"name = "r2""#,
        r#"name = "r1""#,
        r#"
case.toml:25:8: error: a second request has the name "r1"
 25 | name = "r1"
    |        ^^^^
expected: a name of its own for each request
help: rename one of them

case.toml:30:28: error: there is no request of this name
 30 | abort = ["r1", { request = "r2", at = "prefill" }]
    |                            ^^^^
expected: one of r1, r1
found: "r2"
help: did you mean "r1"?
"#,
    );
    says(
        r#"after = ["r1"]"#,
        r#"after = ["r2"]"#,
        r#"
case.toml:27:10: error: these requests wait for each other
 27 | after = ["r2"]
    |          ^^^^
expected: requests that can all be submitted in some order
found: r2 after r2
help: remove one `after` of the ring
"#,
    );
    says(
        "retries = 1",
        r#"after = ["r2"]
retries = 1"#,
        r#"
case.toml:22:10: error: these requests wait for each other
 22 | after = ["r2"]
    |          ^^^^
expected: requests that can all be submitted in some order
found: r1 after r2 after r1
help: remove one `after` of the ring
"#,
    );
    says(
        r#"after = ["r1"]"#,
        r#"after = ["r1", "r1"]"#,
        r#"
case.toml:27:16: error: "r1" stands twice
 27 | after = ["r1", "r1"]
    |                ^^^^
help: remove the entry
"#,
    );
}

#[test]
fn a_request_larger_than_its_pool_is_impossible() {
    says(
        "device_pages = 3",
        "device_pages = 1",
        r#"
case.toml:18:1: error: request "r1" can never fit
 18 | [[request]]
    | ^^^^^^^^^^^
expected: at most 1 blocks of prompt, since world.device_pages = 1
found: 2 blocks
help: shorten the request, or raise `device_pages` to 2
"#,
    );
    says(
        "decode_pages = 4",
        "decode_pages = 2",
        r#"
case.toml:18:1: error: request "r1" can never fit
 18 | [[request]]
    | ^^^^^^^^^^^
expected: at most 2 blocks of prompt and output, since world.decode_pages = 2
found: 3 blocks
help: shorten the request, or raise `decode_pages` to 3
"#,
    );
}

#[test]
fn keys_of_a_split_world_need_one() {
    says(
        r#"roles = "split"
"#,
        "",
        r#"
case.toml:14:1: error: `world.decode_pages` needs a split world
 14 | decode_pages = 4
    | ^^^^^^^^^^^^
expected: `roles = "split"`
found: `roles = "together"`
help: remove `decode_pages`, or set `roles = "split"` in [world]

case.toml:15:1: error: `world.deadlines` needs a split world
 15 | deadlines = true
    | ^^^^^^^^^
expected: `roles = "split"`
found: `roles = "together"`
help: remove `deadlines`, or set `roles = "split"` in [world]

case.toml:29:34: error: `faults.abort.at` needs a split world
 29 | abort = ["r1", { request = "r2", at = "prefill" }]
    |                                  ^^
expected: `roles = "split"`
found: `roles = "together"`
help: remove `at`, or set `roles = "split"` in [world]

case.toml:31:11: error: `faults.flush.at` needs a split world
 31 | flush = { at = "prefill", times = 2 }
    |           ^^
expected: `roles = "split"`
found: `roles = "together"`
help: remove `at`, or set `roles = "split"` in [world]
"#,
    );
}

#[test]
fn sizes_and_layers_that_cannot_hold_together_are_a_conflict() {
    says(
        "host_pages = 2",
        r#"write_policy = "back""#,
        r#"
case.toml:14:16: error: a write policy without a host tier
 14 | write_policy = "back"
    |                ^^^^^^
expected: "off" while host_pages = 0
found: "back"
help: set host_pages, or remove write_policy
"#,
    );
    says(
        "[faults]",
        r#"[requests]
from = { file = "x", format = "mooncake", rows = [1] }

[faults]"#,
        r#"
case.toml:29:2: error: both `[[request]]` and `[requests]`
 29 | [requests]
    |  ^^^^^^^^
expected: one of them
help: write the requests out, or take them from a log
"#,
    );
    says(
        r#"layers = ["c4", "c128"]"#,
        r#"layers = [3, "c4", 2]"#,
        r#"
case.toml:8:20: error: no such layer is left behind the ones before
 8 | layers = [3, "c4", 2]
   |                    ^
expected: layers in the model's order, each once, from 5 on
help: sort the list as the model's layers are, and take each layer once
"#,
    );
    says(
        r#"layers = ["c4", "c128"]"#,
        r#"layers = ["c128"]"#,
        r#"
case.toml:9:11: error: no layer taken from deepseek-v4-flash has index-K
 9 | index_k = "fp8"
   |           ^^^^^
found: "fp8"
help: take a layer that has an indexer, or remove the key
"#,
    );
}

#[test]
fn rules_and_faults_that_stand_twice_are_refused() {
    says(
        r#""free-once""#,
        r#""index-read-waits-layer""#,
        r#"
case.toml:36:51: error: `index-read-waits-layer` is dropped twice
 36 | rules = ["index-read-waits-layer@ragged-prefill", "index-read-waits-layer"]
    |                                                   ^^^^^^^^^^^^^^^^^^^^^^^^
expected: each rule once, with or without sites
help: remove the entry
"#,
    );
    says(
        r#"abort = ["r1", "#,
        r#"abort = ["r1", "r1", "r1", "#,
        r#"
case.toml:30:22: error: more aborts of "r1" than it has lives
 30 | abort = ["r1", "r1", "r1", { request = "r2", at = "prefill" }]
    |                      ^^^^
expected: at most 2, since retries = 1
help: remove the entry, or raise the request's retries
"#,
    );
}

#[test]
fn expectations_that_contradict_the_check_or_each_other_are_refused() {
    says(
        r#"violates = ["reads-see-own-content"]
"#,
        "",
        r#"
case.toml:43:11: error: verdict and violations contradict each other
 43 | verdict = "violated"
    |           ^^^^^^^^^^
expected: violations with "violated", none with "holds"
found: "violated" and 0 in `violates`
help: mend `verdict` or `violates`
"#,
    );
    says(
        r#"violates = ["reads-see-own-content"]"#,
        r#"violates = ["reads-see-own-content", "accounts-balance"]"#,
        r#"
case.toml:44:38: error: `expect.violates` is not sorted
 44 | violates = ["reads-see-own-content", "accounts-balance"]
    |                                      ^^^^^^^^^^^^^^^^^^
expected: `accounts-balance` before `reads-see-own-content`
help: sort the list by name

case.toml:44:38: error: `accounts-balance` is expected to be violated and is not checked
 44 | violates = ["reads-see-own-content", "accounts-balance"]
    |                                      ^^^^^^^^^^^^^^^^^^
expected: one of every-request-ends, reads-see-own-content
help: add it to `check.properties`
"#,
    );
}

#[test]
fn a_later_format_is_refused_without_guessing_at_its_keys() {
    says(
        "format = 1",
        "format = 2\ncolour = 1",
        r#"
case.toml:1:10: error: the file is written for a later kvweft
 1 | format = 2
   |          ^
expected: format 1
found: format 2
help: use a later kvweft for this file
"#,
    );
}

#[test]
fn several_errors_of_one_file_come_together_in_order() {
    says(
        "device_pages = 3\nhost_pages = 2\ndecode_pages = 4\ndeadlines = true",
        r#"device_pages = 0
host_pages = "2"
decode_page = 4"#,
        r#"
case.toml:11:1: error: `decode_pages` is missing in [world]
 11 | [world]
    | ^^^^^^^
expected: an integer from 1 to 64
help: add `decode_pages = 1` in [world]

case.toml:13:16: error: `world.device_pages` is out of bounds
 13 | device_pages = 0
    |                ^
expected: an integer from 1 to 64
found: 0
help: choose a value within the bounds

case.toml:14:14: error: `world.host_pages` has the wrong type
 14 | host_pages = "2"
    |              ^^^
expected: an integer from 0 to 64
found: the text "2"
help: write it as `host_pages = 0`

case.toml:15:1: error: unknown key `decode_page` in [world]
 15 | decode_page = 4
    | ^^^^^^^^^^^
expected: one of roles, device_pages, host_pages, decode_pages, metadata_slots, event_slots, write_policy, prefix_cache, page_tokens, chunk_pages, max_batch, grain, deadlines
help: did you mean `decode_pages`?
"#,
    );
}
