//! `kvweft compare` and `kvweft exposure`.

use serde_json::Value;

use crate::json::fits;
use crate::kvweft::Folder;

/// Two configurations of a machine so slow that the missing wait shows.
const SMALL: &str = r#"format = 1
title = "A wait"
notes = ["a note"]
seeds = 2
scenario = "case-layer-wait-bf16-prefill"

[simulate]
profile = "slow.toml"
model = "deepseek-v4-flash"
split = true
device_pages = 24
host_pages = 2000
decode_pages = 200
chunk_pages = 4
sessions = 6
concurrency = 6
rounds = 3
system_tokens = 256
first_tokens = 2000
round_tokens = 500
answer_tokens = 20
think_ms = 1000

[[row]]
name = "kept"
title = "all rules"
group = "The wait"
choice = "B"
simulate.index_k = "bf16"

[[row]]
name = "dropped"
title = "no wait"
group = "The wait"
choice = "A"
reported = "1 of 6"
simulate.index_k = "bf16"
simulate.drop = ["index-read-waits-layer@ragged-prefill"]

[exposure]
drop = "index-read-waits-layer@ragged-prefill"
index_k = ["fp8", "bf16"]
concurrency = [6]
load_mb_per_s = [50_000, 20]
seeds = 1
"#;

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    let profile = kvweft_scenarios::profile("rtxpro6000x4").expect("it is built in");
    let slow = profile.replace("load_mb_per_s = { value = 50_000", "load_mb_per_s = { value = 20");
    assert_ne!(slow, profile);
    folder.write("slow.toml", slow).write("small.toml", SMALL);
    folder
}

#[test]
fn the_explorer_and_the_simulator_stand_side_by_side() {
    let folder = folder("compare-small");
    let ran = folder.run(&["compare", "small.toml", "--format", "json"]);
    ran.ends_with(0);
    let document = fits("compare.schema.json", &ran.stdout);
    let [kept, dropped] = [0, 1].map(|at| &document["rows"][at]);
    assert_eq!((&kept["explored"]["verdict"], &dropped["explored"]["verdict"]), (&"holds".into(), &"violated".into()));
    assert_eq!(kept["simulated"]["corrupt"]["count"], 0);
    assert_eq!(kept["simulated"]["runs_without_corruption"], 2);
    assert!(dropped["simulated"]["corrupt"]["count"].as_u64() > Some(0), "{dropped}");
    let text = folder.run(&["compare", "small.toml"]);
    text.ends_with(0);
    for piece in
        ["VIOLATED in 60 steps, reads-see-own-content", "0 of 12, 0.0-24.2 %", "The choices", "1 of 6", "a note"]
    {
        assert!(text.stdout.contains(piece), "no `{piece}` in\n{}", text.stdout);
    }
    let choices = text.stdout.split("The choices").nth(1).expect("it is there");
    assert!(choices.find(" A") < choices.find(" B"), "{choices}");
}

#[test]
fn threads_change_no_byte() {
    let folder = folder("compare-threads");
    for command in ["compare", "exposure"] {
        let run = |threads: &str| folder.run(&[command, "small.toml", "--threads", threads]).stdout;
        assert_eq!(run("1"), run("7"), "{command}");
    }
}

#[test]
fn a_slow_link_exposes_a_missing_wait_and_a_fast_one_hides_it() {
    let folder = folder("exposure-small");
    let ran = folder.run(&["exposure", "small.toml", "--format", "json", "--plot", "it.svg"]);
    ran.ends_with(0);
    let document = fits("exposure.schema.json", &ran.stdout);
    let points = document["points"].as_array().expect("a list");
    assert_eq!(points.len(), 4);
    for point in points {
        let slow = point["load_mb_per_s"] == 20;
        assert_eq!(point["corrupt"]["count"].as_u64() > Some(0), slow, "{point}");
        assert_eq!(point["sessions_to_see"] == Value::Null, !slow, "{point}");
        assert_eq!(point["window_p50_ns"].as_u64() > Some(0), slow, "{point}");
    }
    let layers = points[0]["races_lost_by_layer"].as_array().expect("a list");
    assert_eq!(layers[..2], [Value::from(0), Value::from(0)], "these layers have no index keys");
    let drawn = folder.read("it.svg");
    assert!(drawn.starts_with("<svg ") && drawn.matches("<path class=\"line\"").count() == 4, "{drawn}");
}

#[test]
fn a_matrix_that_says_something_else_is_refused() {
    let folder = folder("compare-refused");
    let refused = |from: &str, to: &str, args: &[&str], expected: &str| {
        folder.write("bad.toml", SMALL.replacen(from, to, 1));
        let ran = folder.run(&[&["compare", "bad.toml"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "no `{expected}` in {}", ran.stderr);
    };
    refused("seeds = 2", "seed = 2", &[], "bad.toml:4:1: error: unknown key `seed`");
    refused("seeds = 2", "seed = 2", &[], "did you mean `seeds`?");
    refused(
        "seeds = 2",
        "seeds = 0",
        &[],
        "bad.toml:4:9: error: `seeds`\n 4 | seeds = 0\n   |         ^\nexpected: 1 to 10000\n",
    );
    refused("seeds = 2", "seeds = \"2\"", &[], "invalid type: string \"2\"");
    refused("device_pages", "device_page", &[], "error: row `kept`: unexpected argument '--device-page'");
    refused("device_pages", "device_page", &[], "a similar argument exists: '--device-pages'");
    refused("device_pages = 24", "device_pages = 1.5", &[], "expected a text, an integer");
    refused("device_pages = 24", "threads = 2", &[], "`threads` says how it is run");
    refused("name = \"dropped\"", "name = \"kept\"", &[], "two rows are called `kept`");
    refused("name = \"dropped\"", "name = \"\"", &[], "the name of a row");
    let after = |sessions: &str| format!("name = \"dropped\"\nafter = {{ sessions = {sessions}, reset_ms = 10 }}");
    refused("name = \"dropped\"", &after("0"), &[], "error: sessions of a run before\n");
    refused("name = \"dropped\"", &after("1048577"), &[], "error: sessions of a run before\n");
    refused("format = 1", "format = 2", &[], "expected: 1\nfound: 2\n");
    refused("ragged-prefill\"]", "ragged-prefil\"]", &[], "has no such site; did you mean `ragged-prefill`?");
    refused("", "", &["--run", "kep=x"], "there is no row `kep`; did you mean `kept`?");
    refused("", "", &["--run", "kept=x"], "cannot read the report");
    refused("", "", &["--run", "kept=x", "--run", "kept=y"], "two runs are named for the row `kept`");
    let ran = folder.run(&["compare", "cas"]);
    ran.ends_with(2);
    assert!(ran.stderr.contains("did you mean `case`?"), "{}", ran.stderr);
}

#[test]
fn a_run_is_shown_beside_its_row_and_refused_beside_another() {
    let folder = folder("compare-measured");
    folder.run(&["run", "--sessions", "2", "--rounds", "1", "--prompt-token-us", "0", "--out", "on"]).ends_with(0);
    let ran = folder.run(&["compare", "small.toml", "--run", "kept=on", "--format", "json"]);
    ran.ends_with(0);
    let document = fits("compare.schema.json", &ran.stdout);
    assert_eq!(document["rows"][0]["measured"]["corrupt"]["of"], 2);
    assert_eq!(document["rows"][1]["measured"], Value::Null);
    let ran = folder.run(&["compare", "small.toml", "--run", "dropped=on"]);
    ran.ends_with(2);
    assert!(ran.stderr.contains("it is no run of row `dropped`"), "{}", ran.stderr);
}

#[test]
fn the_exit_code_says_whether_the_instruments_agree() {
    let folder = folder("compare-codes");
    // A world without a reload cannot show what a missing wait for one does; the simulated machine does.
    let blind = SMALL.replace("case-layer-wait-bf16-prefill", "handover");
    folder.write("blind.toml", &blind);
    let ran = folder.run(&["compare", "blind.toml", "--format", "json"]);
    ran.ends_with(1);
    let document = fits("compare.schema.json", &ran.stdout);
    assert_eq!(
        (&document["rows"][0]["contradicts"], &document["rows"][1]["contradicts"]),
        (&false.into(), &true.into())
    );
    let (world, _) =
        include_str!("../../../../scenarios/handover.toml").split_once("[expect]").expect("it expects something");
    folder.write("cut.toml", format!("{world}[check]\nmax_states = 10\n"));
    folder.write("inconclusive.toml", SMALL.replace("case-layer-wait-bf16-prefill", "cut.toml"));
    folder.run(&["compare", "inconclusive.toml"]).ends_with(3);
}

#[test]
fn every_seed_is_a_run_of_its_own() {
    let folder = folder("compare-seeds");
    let rate = |seeds: &str| {
        let ran = folder.run(&["compare", "small.toml", "--seeds", seeds, "--format", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        document["rows"][0]["simulated"]["answer_tokens_per_1000_s"].clone()
    };
    assert_ne!(rate("1"), rate("2"), "the second run took as long as the first");
}

#[test]
fn faults_show_what_a_dropped_rule_of_the_handover_leaves_behind_and_a_kept_one_does_not() {
    let ran = Folder::new("compare-handover").run(&["compare", "handover", "--format", "json"]);
    ran.ends_with(0);
    let document = fits("compare.schema.json", &ran.stdout);
    let row = |name: &str| {
        let rows = document["rows"].as_array().expect("a list");
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name}"))["simulated"].clone()
    };
    for (kept, dropped, field) in [
        ("leave-kept", "leave-hold", "/corrupt/count"),
        ("leave-kept", "leave-told", "/lost_pages"),
        ("lose-kept", "lose-status", "/timeout"),
        ("fail-kept", "fail-all-parts", "/corrupt/count"),
    ] {
        let count = |name: &str| row(name).pointer(field).and_then(Value::as_u64).expect(field);
        assert!(count(dropped) > count(kept), "{dropped}: {} and {}", row(dropped), row(kept));
        assert!(count(kept) <= 1 && row(kept)["stuck"] == 0, "{kept}: {}", row(kept));
    }
}
