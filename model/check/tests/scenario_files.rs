//! Loading: files, folders, built-in scenarios, defaults, layers, digests, diagnostics as values.
#![cfg(feature = "scenario-files")]

mod scenario_common;

use std::path::{Path, PathBuf};

use kvweft_check::scenario::{
    Code, Names, Scenario, Side, WritePolicy, load, load_embedded, load_embedded_one, load_folder, render_plain,
};
use scenario_common::{GOOD, NAMES, good_but, parsed, rendered};

/// A fresh folder under the target folder with those files.
fn folder(name: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a writable target folder");
    for (file, bytes) in files {
        std::fs::write(path.join(file), bytes).expect("a writable target folder");
    }
    path
}

fn good() -> Scenario {
    parsed(GOOD).unwrap_or_else(|errors| panic!("{}", errors.render_plain()))
}

/// What the errors say, with the folder's path left out.
fn without_path(text: &str, folder: &Path) -> String {
    text.replace(&folder.display().to_string(), "FOLDER")
}

#[test]
fn defaults_follow_the_roles_and_the_host_tier() {
    let split = good();
    assert_eq!((split.world.metadata_slots, split.world.write_policy), (1, WritePolicy::Through));
    assert_eq!(split.faults.abort.iter().map(|a| a.at).collect::<Vec<_>>(), [Some(Side::Decode), Some(Side::Prefill)]);
    assert_eq!(split.properties, ["every-request-ends", "reads-see-own-content"]);
    let text = "format = 1\ntitle = 't'\nsource = 's'\nmodel = { file = 'dense', layers = [1] }\n\
                world = { device_pages = 1 }\nrequest = [{ name = 'r', prompt = ['A'] }]\n[faults]\nabort = ['r']\nflush = 1\n";
    let small = parsed(text).unwrap_or_else(|errors| panic!("{}", errors.render_plain()));
    assert_eq!((small.world.decode_pages, small.world.metadata_slots, small.world.deadlines), (0, 0, false));
    assert_eq!((small.world.write_policy, small.world.batch_max), (WritePolicy::Off, 2));
    assert_eq!((small.faults.abort[0].at, small.faults.flush.at, small.faults.flush.times), (None, None, 1));
    assert_eq!((small.states_max, small.expect, small.model.index_k()), (2_000_000, None, None));
}

#[test]
fn layers_are_taken_in_the_order_of_the_model() {
    let picked = |layers: &str| {
        let text = good_but(r#"layers = ["c4", "c128"]"#, &format!("layers = {layers}"));
        let scenario = parsed(&text).unwrap_or_else(|errors| panic!("{}", errors.render_plain()));
        scenario.model.layers.iter().map(|layer| layer.index).collect::<Vec<_>>()
    };
    assert_eq!(picked(r#"["c4", "c128"]"#), [2, 3]);
    assert_eq!(picked(r#"["c128", "c4", "c4"]"#), [3, 4, 6]);
    assert_eq!(picked(r#"["window", 40, "c128", "c4"]"#), [0, 40, 41, 42]);
}

#[test]
fn a_decode_engine_may_store_index_keys_otherwise() {
    let text = good_but(r#"index_k = "fp8""#, "index_k = 'fp8'\ndecode_index_k = 'bf16'");
    let scenario = parsed(&text).expect("a good scenario");
    let layer = &scenario.model.layers[0];
    let bytes = |layout: &Option<kvweft_check::scenario::Layout>| layout.as_ref().map(|l| l.page_bytes(256));
    assert_eq!((bytes(&layer.index_k), bytes(&layer.decode_index_k)), (Some(8_448), Some(16_384)));
    assert_eq!(scenario.model.layers[1].index_k, None);
}

#[test]
fn the_digest_sees_what_decides_the_states_and_nothing_else() {
    let digest = |text: &str| parsed(text).unwrap_or_else(|errors| panic!("{}", errors.render_plain())).digest();
    let good = digest(GOOD);
    assert_eq!(good, "5a530e62e68fdeb2");
    let reordered = good_but("lose = 1\n", "").replace("[faults]", "# a comment\n[faults]\nlose   =   1");
    for same in [
        reordered,
        good_but(r#"title = "A title""#, r#"title = "Another""#),
        good_but("states = 12", "states = 13"),
        good_but("max_states = 1000", "max_states = 1001"),
        good_but("deadlines = true", "deadlines = true\nevent_slots = 2"),
    ] {
        assert_eq!(digest(&same), good);
    }
    for other in [
        good_but("device_pages = 3", "device_pages = 4"),
        good_but(r#"index_k = "fp8""#, r#"index_k = "bf16""#),
        good_but(r#"output = ["X"]"#, r#"output = ["Y"]"#),
        good_but(r#", "free-once""#, ""),
        good_but("lose = 1", "slow = 1"),
    ] {
        assert_ne!(digest(&other), good);
    }
}

#[test]
fn built_in_scenarios_lack_nothing_but_names_of_other_crates() {
    let none = Names { rules: &[], properties: &[] };
    if let Err(errors) = load_embedded(&none) {
        let others: Vec<String> = errors.iter().filter(|e| e.code != Code::UnknownName).map(render_plain).collect();
        assert_eq!(others, Vec::<String>::new());
    }
    assert!(load_embedded_one("no-such", &none).is_none());
}

#[test]
fn a_folder_is_loaded_in_the_order_of_names_and_all_its_errors_come_together() {
    let two = folder("two", &[("b.toml", GOOD.as_bytes()), ("a.toml", GOOD.as_bytes()), ("notes.txt", b"no")]);
    let names: Vec<String> = load_folder(&two, &NAMES).expect("good").into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["a", "b"]);
    let bad = folder("bad", &[("a.toml", b"format = 2"), ("b.toml", GOOD.as_bytes()), ("c.toml", b"")]);
    let errors = load_folder(&bad, &NAMES).expect_err("two files are bad");
    assert_eq!(errors.iter().map(|error| error.code).collect::<Vec<_>>(), [Code::NewerFormat, Code::Empty]);
}

#[test]
fn what_cannot_be_read_says_why() {
    let at = folder("odd", &[("latin.toml", b"format = 1\ntitle = \"caf\xe9\"\n"), ("blank.toml", b" # only\n")]);
    let empty = folder("empty", &[]);
    let say = |result: Result<_, kvweft_check::scenario::Errors>| match result {
        Ok(_) => String::new(),
        Err(errors) => without_path(&without_path(&errors.render_plain(), &at), &empty),
    };
    assert_eq!(
        say(load(&at.join("latin.toml"), &NAMES).map(drop)),
        "FOLDER/latin.toml:2:13: error: the file is not UTF-8\n 2 | title = \"caf\u{fffd}\"\n   |             ^\n\
         expected: UTF-8 text\nfound: the byte 0xe9\nhelp: save the file as UTF-8\n"
    );
    assert_eq!(
        say(load(&at.join("blank.toml"), &NAMES).map(drop)),
        "FOLDER/blank.toml:1:1: error: the file has no content\n 1 |  # only\n   | ^\n\
         expected: `format = 1` and the keys of docs/scenarios.md\nfound: nothing but white space and comments\n\
         help: start from a copy of a built-in scenario or model file\n"
    );
    assert_eq!(
        say(load(&at.join("none.toml"), &NAMES).map(drop)),
        "FOLDER/none.toml: error: the file cannot be read: there is no such file\n\
         help: check the path and its permissions\n"
    );
    assert_eq!(
        say(load(&at, &NAMES).map(drop)),
        "FOLDER: error: a folder stands where a file was expected\nhelp: name a file in it\n"
    );
    assert_eq!(
        say(load_folder(&empty, &NAMES).map(drop)),
        "FOLDER: error: the folder has no scenario\nexpected: files whose names end in .toml\n\
         help: name another folder, or a scenario file\n"
    );
    assert_eq!(
        say(load_folder(&at.join("none"), &NAMES).map(drop)),
        "FOLDER/none: error: there is no such folder\nhelp: check the path and its permissions\n"
    );
}

#[test]
fn model_files_and_logs_are_found_beside_the_scenario() {
    let model = kvweft_scenarios::model("dense").expect("built in").replace("512", "1");
    let scenario = good_but(r#"file = "deepseek-v4-flash""#, r#"file = "own.toml""#)
        .replace(r#"["c4", "c128"]"#, r#"["dense"]"#)
        .replace("index_k = \"fp8\"\n", "");
    let missing = folder("missing", &[("s.toml", scenario.as_bytes())]);
    let errors = load(&missing.join("s.toml"), &NAMES).expect_err("the model file is missing").render_plain();
    assert_eq!(
        without_path(&errors, &missing),
        "FOLDER/s.toml:7:8: error: the file cannot be read: there is no such file\n 7 | file = \"own.toml\"\n   \
         |        ^^^^^^^^^^\nfound: FOLDER/own.toml\nhelp: check the path and its permissions\n"
    );
    let there = folder("there", &[("s.toml", scenario.as_bytes()), ("own.toml", model.as_bytes())]);
    let loaded = load(&there.join("s.toml"), &NAMES).unwrap_or_else(|errors| panic!("{}", errors.render_plain()));
    assert_eq!(loaded.model.layers[0].kv.entry_bytes(), 1);
    let faulty = folder("faulty", &[("s.toml", scenario.as_bytes()), ("own.toml", b"format = 1\n")]);
    let errors = load(&faulty.join("s.toml"), &NAMES).expect_err("the model file is faulty");
    assert!(errors.iter().all(|error| error.file.ends_with("own.toml") && error.code == Code::MissingKey));
}

#[test]
fn errors_are_diagnostics_with_a_span_into_the_text() {
    use miette::Diagnostic as _;
    let text = good_but("device_pages = 3", "device_pages = 0");
    let errors = parsed(&text).expect_err("a page too few");
    let error = errors.iter().next().expect("one error");
    assert_eq!(&text[error.span.clone()], "0");
    let label = error.labels().and_then(|mut labels| labels.next()).expect("a label");
    assert_eq!((label.offset(), label.len()), (error.span.start, 1));
    let source = error.source_code().expect("a source");
    let seen = source.read_span(label.inner(), 0, 0).expect("the span is in the text");
    assert_eq!((seen.name(), seen.line()), (Some("case.toml"), 12));
    assert_eq!(error.code().map(|code| code.to_string()).as_deref(), Some("kvweft::out-of-bounds"));
    assert_eq!(error.to_string(), "`world.device_pages` is out of bounds: expected an integer from 1 to 64, found 0");
    assert_eq!(errors.related().map(Iterator::count), Some(1));
}

#[test]
fn nine_requests_are_one_too_many() {
    let more: String = (0..7).map(|i| format!("[[request]]\nname = \"q{i}\"\nprompt = [\"A\"]\n")).collect();
    let text = good_but("[faults]", &format!("{more}[faults]"));
    let expected = "case.toml:47:1: error: too many requests\n 47 | [[request]]\n    | ^^^^^^^^^^^\nexpected: at most 8\n\
                    found: 9\nhelp: a world of this size cannot be explored: use fewer requests\n";
    assert_eq!(rendered(&text), expected);
}

#[test]
fn a_huge_text_and_a_byte_order_mark_are_no_trouble() {
    assert!(parsed(&format!("\u{feff}{GOOD}")).is_ok());
    assert!(rendered(&"x".repeat(2 << 20)).starts_with("case.toml: error: the file is too large"));
    assert!(rendered(&format!("a = {}", "[".repeat(100_000))).contains("error"));
}
