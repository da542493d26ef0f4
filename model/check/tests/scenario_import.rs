//! The importer on the built-in heads, with exact foldings, and on broken lines.
#![cfg(feature = "scenario-files")]

mod scenario_common;

use kvweft_check::scenario::{Embedded, Imported, ModelSource, Pick, import};
use scenario_common::{GOOD, parsed, rendered};

fn mooncake(file: &str, rows: &[usize], blocks_max: Option<usize>) -> Imported {
    taken(file, &Pick::Mooncake { rows: rows.to_vec(), blocks_max })
}

fn sessions(skip: usize, sessions: usize, turns: usize) -> Imported {
    taken("agentic-sessions-head.jsonl", &Pick::Sessions { skip, sessions, turns, blocks_max: None })
}

fn taken(file: &str, pick: &Pick) -> Imported {
    let text = Embedded.data(file).expect("readable").expect("built in");
    import(&text.name, &text.text, pick).unwrap_or_else(|errors| panic!("{}", errors.render_plain()))
}

/// `name prompt -> output after others`, one request a line.
fn drawn(imported: &Imported) -> Vec<String> {
    let draw = |r: &kvweft_check::scenario::Request| {
        let after: String = r.after.iter().map(|other| format!(" after {other}")).collect();
        format!("{} {} -> {}{after}", r.name, r.prompt.concat(), r.output.concat())
    };
    imported.requests.iter().map(draw).collect()
}

const SYNTHETIC: &str = "mooncake-synthetic-head.jsonl";
const CONVERSATION: &str = "mooncake-conversation-head.jsonl";

#[test]
fn two_requests_with_a_long_common_prefix_become_three_blocks() {
    let imported = mooncake(SYNTHETIC, &[42, 49], None);
    assert_eq!(drawn(&imported), ["row42 AB -> out1", "row49 AC -> out2"]);
    let folding = &imported.folding;
    assert_eq!((folding.requests, folding.blocks_real, folding.blocks_folded), (2, 63, 3));
    assert_eq!(folding.tokens_real, 60_972);
    assert_eq!(folding.note, "2 requests, 63 real blocks of 512 tokens folded into 3");
}

#[test]
fn a_repeated_request_keeps_its_blocks() {
    let imported = mooncake(SYNTHETIC, &[15, 58, 74], None);
    assert_eq!(drawn(&imported), ["row15 AB -> out1", "row58 AC -> out2", "row74 AB -> out3"]);
    assert_eq!(imported.folding.blocks_real, 7);
}

#[test]
fn a_conversation_shares_a_system_prompt_and_returns_to_its_own_prefix() {
    let imported = mooncake(CONVERSATION, &[1, 3, 137], None);
    assert_eq!(drawn(&imported), ["row1 ABC -> out1", "row3 AD -> out2", "row137 ABE -> out3"]);
    assert_eq!(imported.folding.note, "3 requests, 21 real blocks of 512 tokens folded into 5");
    let cut = mooncake(CONVERSATION, &[1, 3, 137], Some(2));
    assert_eq!(drawn(&cut), ["row1 AB -> out1", "row3 AC -> out2", "row137 AB -> out3"]);
    let note =
        "3 requests, 21 real blocks of 512 tokens folded into 3; prompts cut: row1 from 3 to 2, row137 from 3 to 2";
    assert_eq!(cut.folding.note, note);
}

#[test]
fn a_request_that_makes_one_token_decodes_nothing() {
    assert_eq!(drawn(&mooncake(CONVERSATION, &[33], None)), ["row33 A -> "]);
}

#[test]
fn turns_of_a_session_wait_for_each_other_and_grow() {
    let expected = ["s0t0 A -> out1", "s0t1 AB -> out2 after s0t0", "s0t2 ABC -> out3 after s0t1"];
    let imported = sessions(0, 1, 3);
    assert_eq!(drawn(&imported), expected);
    assert_eq!(imported.folding.note, "3 requests, 313 real blocks of 64 tokens folded into 3");
}

#[test]
fn a_session_that_cuts_its_context_branches_off() {
    let expected = ["s1t0 AB -> out1", "s1t1 ABC -> out2 after s1t0", "s1t2 AD -> out3 after s1t1"];
    assert_eq!(drawn(&sessions(1, 1, 3)), expected);
}

#[test]
fn sessions_share_nothing_though_their_ids_are_equal() {
    let expected = ["s0t0 A -> out1", "s0t1 AB -> out2 after s0t0", "s1t0 C -> out3", "s1t1 CD -> out4 after s1t0"];
    assert_eq!(drawn(&sessions(0, 2, 2)), expected);
}

#[test]
fn sub_agents_between_turns_are_left_out_and_counted() {
    let line = r#"{"id":"x","block_size":64,"requests":[{"in":64,"out":5,"keep":0,"runs":[[1,1]]},
        {"subagent":"explore","requests":[{"in":64,"out":5,"keep":0,"runs":[[9,1]]}]},
        {"in":190,"out":0,"keep":1,"runs":[[2,1]]}]}"#;
    let pick = Pick::Sessions { skip: 0, sessions: 1, turns: 2, blocks_max: None };
    let imported = import("log.jsonl", &line.replace('\n', ""), &pick).expect("a good line");
    assert_eq!(drawn(&imported), ["s0t0 A -> out1", "s0t1 AB ->  after s0t0"]);
    assert_eq!(imported.folding.note, "2 requests, 2 real blocks of 64 tokens folded into 2; 1 sub-agent left out");
}

/// What the importer says of a log.
fn refused(text: &str, pick: &Pick) -> String {
    import("log.jsonl", text, pick).expect_err("the log is bad").render_plain()
}

const UNCHANGED: &str = "help: take the log unchanged from its source, or leave this line out\n";

#[test]
fn bad_rows_are_refused_with_line_and_reason() {
    let pick = Pick::Mooncake { rows: vec![0, 1], blocks_max: None };
    let log = "{\"timestamp\":5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\n\
               {\"timestamp\":4,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}\n\
               nonsense\n\n\
               {\"timestamp\":9,\"input_length\":513,\"output_length\":1,\"hash_ids\":[0]}\n";
    let expected = format!(
        "log.jsonl:2:1: error: the timestamp goes back\n \
         2 | {{\"timestamp\":4,\"input_length\":1,\"output_length\":1,\"hash_ids\":[0]}}\n   \
         | {}\nexpected: at least 5\nfound: 4\n{UNCHANGED}\n\
         log.jsonl:3:2: error: the line is not a row of this log: expected ident\n 3 | nonsense\n   |  ^\n{UNCHANGED}\n\
         log.jsonl:5:1: error: the number of hash_ids does not fit input_length\n \
         5 | {{\"timestamp\":9,\"input_length\":513,\"output_length\":1,\"hash_ids\":[0]}}\n   \
         | {}\nexpected: 2, one for each 512 of 513 tokens\nfound: 1\n{UNCHANGED}",
        "^".repeat(log.lines().nth(1).map_or(0, str::len)),
        "^".repeat(log.lines().nth(4).map_or(0, str::len)),
    );
    assert_eq!(refused(log, &pick), expected);
}

#[test]
fn an_id_that_stands_for_two_prefixes_is_refused() {
    let pick = Pick::Mooncake { rows: vec![0, 1], blocks_max: None };
    let log = "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[0,1]}\n\
               {\"timestamp\":4,\"input_length\":600,\"output_length\":1,\"hash_ids\":[2,1]}\n";
    let said = refused(log, &pick);
    assert!(said.starts_with("log.jsonl:2:1: error: block 1 does not stand for one prefix\n"), "{said}");
    assert!(said.contains("expected: behind block 0, as in row0\nfound: behind block 2\n"), "{said}");
}

#[test]
fn sessions_that_contradict_themselves_are_refused() {
    let pick = Pick::Sessions { skip: 0, sessions: 1, turns: 1, blocks_max: None };
    for (entry, reason) in [
        (r#"{"in":64,"out":1,"keep":1,"runs":[]}"#, "entry 0 keeps blocks that are not there"),
        (r#"{"in":64,"out":1,"keep":0,"runs":[[0,99999999999]]}"#, "entry 0 has blocks that do not fit its tokens"),
        (r#"{"in":64,"out":1,"keep":0,"runs":[[18446744073709551615,1]]}"#, "entry 0 has a range that overflows"),
        (r#"{"in":6,"out":1,"keep":0,"runs":[]}"#, "entry 0 has no full block"),
        (r#"{"in":64,"out":1}"#, "entry 0 is incomplete"),
    ] {
        let said = refused(&format!(r#"{{"id":"x","block_size":64,"requests":[{entry}]}}"#), &pick);
        assert!(said.starts_with(&format!("log.jsonl:1:1: error: session x: {reason}\n")), "{said}");
    }
}

/// The good scenario with its requests taken from a log.
fn from_log(from: &str) -> String {
    let (before, rest) = GOOD.split_once("[[request]]").expect("requests");
    let (_, drop) = rest.split_once("[drop]").expect("rules");
    format!("{before}[requests]\nfrom = {from}\n\n[drop]{drop}")
}

#[test]
fn a_scenario_takes_its_requests_from_a_log() {
    let text = from_log(r#"{ file = "mooncake-synthetic-head.jsonl", format = "mooncake", rows = [42, 49] }"#);
    let scenario = parsed(&text).unwrap_or_else(|errors| panic!("{}", errors.render_plain()));
    assert_eq!(scenario.requests.len(), 2);
    let note = "2 requests, 63 real blocks of 512 tokens folded into 3";
    assert_eq!(scenario.import.map(|import| import.folding.note).as_deref(), Some(note));
}

#[test]
fn what_a_log_cannot_give_is_an_error_of_the_scenario() {
    let said = rendered(&from_log(r#"{ file = "mooncake-synthetik-head.jsonl", format = "mooncake", rows = [0] }"#));
    assert!(said.contains("help: did you mean \"mooncake-synthetic-head.jsonl\"?"), "{said}");
    let said = rendered(&from_log(r#"{ file = "x", format = "sessions", rows = [0] }"#));
    assert!(said.contains("`turns` is missing in [requests.from]"), "{said}");
    assert!(said.contains("`requests.from.rows` has no meaning for the format \"sessions\""), "{said}");
    let said = rendered(&from_log(r#"{ file = "mooncake-synthetic-head.jsonl", format = "mooncake", rows = [80] }"#));
    assert!(said.contains("the log has no such row") && said.contains("found: row 80"), "{said}");
    let said =
        rendered(&from_log(r#"{ file = "agentic-sessions-head.jsonl", format = "sessions", turns = 8, skip = 2 }"#));
    assert!(said.contains("help: set `max_blocks` in `requests.from`, or raise `device_pages` to 4"), "{said}");
}
