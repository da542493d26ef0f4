//! What the loader says about the form of a file: keys, types, bounds, syntax. The texts are compared as a whole.
#![cfg(feature = "scenario-files")]

mod scenario_common;

use scenario_common::{good_but, rendered};

/// Replaces a text of the good scenario and compares what the loader says.
#[track_caller]
fn says(from: &str, to: &str, expected: &str) {
    assert_eq!(rendered(&good_but(from, to)).trim_end(), expected.trim());
}

#[test]
fn a_key_that_does_not_exist_names_the_nearest_or_its_own_table() {
    says(
        "device_pages = 3",
        "device_pages = 3\ndevice_page = 3",
        r#"
case.toml:14:1: error: unknown key `device_page` in [world]
 14 | device_page = 3
    | ^^^^^^^^^^^
expected: one of roles, device_pages, host_pages, decode_pages, metadata_slots, event_slots, write_policy, prefix_cache, page_tokens, chunk_pages, max_batch, grain, deadlines
help: did you mean `device_pages`?
"#,
    );
    says(
        r#"tags = ["case"]"#,
        "prefix_cache = true",
        r#"
case.toml:4:1: error: unknown key `prefix_cache` at the top level
 4 | prefix_cache = true
   | ^^^^^^^^^^^^
expected: one of format, title, source, story, tags, model, world, request, requests, faults, drop, check, expect
help: `prefix_cache` belongs in [world]
"#,
    );
    says(
        "host_pages = 2",
        "colour = 2",
        r#"
case.toml:14:1: error: unknown key `colour` in [world]
 14 | colour = 2
    | ^^^^^^
expected: one of roles, device_pages, host_pages, decode_pages, metadata_slots, event_slots, write_policy, prefix_cache, page_tokens, chunk_pages, max_batch, grain, deadlines
help: remove it; docs/scenarios.md lists every key
"#,
    );
    says(
        r#"flush = { at = "prefill", times = 2 }"#,
        r#"flush = { on = "prefill" }"#,
        r#"
case.toml:32:11: error: unknown key `on` in [faults.flush]
 32 | flush = { on = "prefill" }
    |           ^^
expected: one of at, times
help: remove it; docs/scenarios.md lists every key
"#,
    );
    says(
        r#"tags = ["case"]"#,
        "	tag = [] # äö",
        r#"
case.toml:4:2: error: unknown key `tag` at the top level
 4 | 	tag = [] # äö
   | 	^^^
expected: one of format, title, source, story, tags, model, world, request, requests, faults, drop, check, expect
help: did you mean `tags`?
"#,
    );
}

#[test]
fn a_missing_key_points_at_its_table() {
    says(
        "device_pages = 3\n",
        "",
        r#"
case.toml:11:1: error: `device_pages` is missing in [world]
 11 | [world]
    | ^^^^^^^
expected: an integer from 1 to 64
help: add `device_pages = 1` in [world]
"#,
    );
    says(
        "decode_pages = 4\n",
        "",
        r#"
case.toml:11:1: error: `decode_pages` is missing in [world]
 11 | [world]
    | ^^^^^^^
expected: an integer from 1 to 64
help: add `decode_pages = 1` in [world]
"#,
    );
    says(
        r#"title = "A title"
"#,
        "",
        r#"
case.toml:1:1: error: `title` is missing at the top level
 1 | format = 1
   | ^
expected: a text on one line, 1 to 120 characters
help: add `title = ".."` at the top level
"#,
    );
    says(
        "[world]",
        "[wolrd]",
        r#"
case.toml:1:1: error: `world` is missing at the top level
 1 | format = 1
   | ^
expected: a table
help: add `[world]` as docs/scenarios.md shows

case.toml:11:2: error: unknown key `wolrd` at the top level
 11 | [wolrd]
    |  ^^^^^
expected: one of format, title, source, story, tags, model, world, request, requests, faults, drop, check, expect
help: did you mean `world`?
"#,
    );
}

#[test]
fn a_wrong_type_of_a_number_a_flag_or_a_text_says_what_came_and_how_to_write_it() {
    says(
        "device_pages = 3",
        r#"device_pages = "3""#,
        r#"
case.toml:13:16: error: `world.device_pages` has the wrong type
 13 | device_pages = "3"
    |                ^^^
expected: an integer from 1 to 64
found: the text "3"
help: write it as `device_pages = 1`
"#,
    );
    says(
        "deadlines = true",
        r#"deadlines = "yes""#,
        r#"
case.toml:16:13: error: `world.deadlines` has the wrong type
 16 | deadlines = "yes"
    |             ^^^^^
expected: `true` or `false`
found: the text "yes"
help: write it as `deadlines = true`
"#,
    );
    says(
        r#"title = "A title""#,
        "title = 3",
        r#"
case.toml:2:9: error: `title` has the wrong type
 2 | title = 3
   |         ^
expected: a text on one line, 1 to 120 characters
found: the integer 3
help: write it as `title = ".."`
"#,
    );
}

#[test]
fn a_wrong_type_of_a_list_or_its_element_does_too() {
    says(
        r#"preempt = ["r1"]"#,
        r#"preempt = "r1""#,
        r#"
case.toml:31:11: error: `faults.preempt` has the wrong type
 31 | preempt = "r1"
    |           ^^^^
expected: a list of 0 to 16 request names
found: the text "r1"
help: write it as `preempt = [".."]`
"#,
    );
    says(
        r#"output = ["X"]"#,
        "output = [3]",
        r#"
case.toml:21:11: error: an element of `request.output` has the wrong type
 21 | output = [3]
    |           ^
expected: a name of letters, digits, `-`, `_` and `.`, 1 to 16 characters
found: the integer 3
help: write it as `".."`
"#,
    );
    says(
        r#"flush = { at = "prefill", times = 2 }"#,
        "flush = true",
        r#"
case.toml:32:9: error: `faults.flush` has the wrong type
 32 | flush = true
    |         ^^^^
expected: an integer from 0 to 4 or a table `{ at, times }`
found: the flag true
help: write it as `flush = 1`
"#,
    );
}

#[test]
fn a_wrong_type_of_a_table_does_too() {
    says(
        "[world]",
        "[[world]]",
        r#"
case.toml:11:1: error: `world` has the wrong type
 11 | [[world]]
    | ^^^^^^^^^
expected: a table
found: a list of 1
help: write a table `[world]`
"#,
    );
    says(
        "[drop]\nrules =",
        "[drop]\nrules = 1.5\n[other]\nrules =",
        r#"
case.toml:36:9: error: `drop.rules` has the wrong type
 36 | rules = 1.5
    |         ^^^
expected: a list of 0 to 64 rules, `rule` or `rule@site`
found: the float 1.5
help: write it as `rules = [".."]`

case.toml:37:2: error: unknown key `other` at the top level
 37 | [other]
    |  ^^^^^
expected: one of format, title, source, story, tags, model, world, request, requests, faults, drop, check, expect
help: remove it; docs/scenarios.md lists every key
"#,
    );
}

#[test]
fn a_number_out_of_bounds_says_the_bounds() {
    says(
        "device_pages = 3",
        "device_pages = 0",
        r#"
case.toml:13:16: error: `world.device_pages` is out of bounds
 13 | device_pages = 0
    |                ^
expected: an integer from 1 to 64
found: 0
help: choose a value within the bounds
"#,
    );
    says(
        "device_pages = 3",
        "device_pages = 65",
        r#"
case.toml:13:16: error: `world.device_pages` is out of bounds
 13 | device_pages = 65
    |                ^^
expected: an integer from 1 to 64
found: 65
help: choose a value within the bounds
"#,
    );
    says(
        "host_pages = 2",
        "host_pages = -1",
        r#"
case.toml:14:14: error: `world.host_pages` is out of bounds
 14 | host_pages = -1
    |              ^^
expected: an integer from 0 to 64
found: -1
help: choose a value within the bounds
"#,
    );
    says(
        "max_states = 1000",
        "max_states = 99_999_999_999_999_999_999",
        r#"
case.toml:40:14: error: `check.max_states` is out of bounds
 40 | max_states = 99_999_999_999_999_999_999
    |              ^^^^^^^^^^^^^^^^^^^^^^^^^^
expected: an integer from 1 to 1000000000
found: 99_999_999_999_999_999_999
help: choose a value within the bounds
"#,
    );
}

#[test]
fn a_list_or_a_text_out_of_bounds_does_too() {
    says(
        r#"layers = ["c4", "c128"]"#,
        "layers = []",
        r#"
case.toml:8:10: error: `model.layers` is out of bounds
 8 | layers = []
   |          ^^
expected: a list of 1 to 8 layer kinds or layer indices
found: a list of 0
help: choose a value within the bounds
"#,
    );
    says(
        r#"output = ["X"]"#,
        r#"output = ["X Y"]"#,
        r#"
case.toml:21:11: error: an element of `request.output` is out of bounds
 21 | output = ["X Y"]
    |           ^^^^^
expected: a name of letters, digits, `-`, `_` and `.`, 1 to 16 characters
found: 3 characters, "X Y"
help: choose a value within the bounds
"#,
    );
    says(
        r#"title = "A title""#,
        r#"title = """#,
        r#"
case.toml:2:9: error: `title` is out of bounds
 2 | title = ""
   |         ^^
expected: a text on one line, 1 to 120 characters
found: 0 characters, ""
help: choose a value within the bounds
"#,
    );
}

#[test]
fn what_is_not_toml_is_shown_where_it_stops_being_toml() {
    says(
        "lose = 1",
        "lose = 1\nlose = 2",
        r#"
case.toml:34:1: error: duplicate key
 34 | lose = 2
    | ^^^^
found: `lose`
help: keep one of them
"#,
    );
    says(
        "lose = 1",
        "lose = \nslow 1",
        r#"
case.toml:33:8: error: string values must be quoted
 33 | lose = 
    |        ^
expected: literal string
help: check quotes, brackets and `=` here; the format is TOML 1.0

case.toml:34:6: error: key with no value
 34 | slow 1
    |      ^
expected: `=`
help: check quotes, brackets and `=` here; the format is TOML 1.0
"#,
    );
    says(
        "[faults]",
        "[faults",
        r#"
case.toml:29:8: error: unclosed table
 29 | [faults
    |        ^
expected: `]`
help: check quotes, brackets and `=` here; the format is TOML 1.0
"#,
    );
    says(
        r#"title = "A title""#,
        "title = 'a\u{1b}b'",
        r#"
case.toml:2:11: error: invalid literal string
 2 | title = 'a�b'
   |           ^
expected: non-single-quote visible characters
help: check quotes, brackets and `=` here; the format is TOML 1.0
"#,
    );
}
