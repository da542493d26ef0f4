//! Runs of sessions on host threads: what they print, what they write, and how they end.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::json::{each_fits, fits};
use crate::kvweft::{Folder, Ran, kvweft};

/// Long enough that nobody sees its end.
const ENDLESS: &[&str] = &["run", "--sessions", "8", "--rounds", "60", "--layers", "1", "--out", "out"];

/// Plays few sessions and holds what was written to its schemas and to the world.
#[track_caller]
fn small(name: &str, more: &[&str]) -> (Folder, Ran, Value) {
    let folder = Folder::new(name);
    let ran = folder.run(&[&["run", "--sessions", "8", "--rounds", "2", "--out", "out"], more].concat());
    ran.ends_with(0);
    let report = fits("run.schema.json", &folder.read("out/run.json"));
    assert_eq!((&report["state"], &report["sessions"]["ok"]), (&Value::from("complete"), &Value::from(8)));
    let log = folder.read("out/events.jsonl");
    // Lines are alike: the first and some of the others stand for all.
    let some = log.lines().enumerate().filter(|(at, _)| at % 5 == 0 || *at < 100).map(|(_, line)| line);
    let lines = each_fits("event-log.schema.json", some);
    assert_eq!(lines[0]["run"], report["run"], "the log is of the same run");
    let conforms = folder.run(&["conform", "out/events.jsonl"]);
    conforms.ends_with(0);
    let name = report["run"].as_str().expect("a text");
    assert!(conforms.stdout.starts_with(&format!("conforms: run {name}, ")), "{}", conforms.stdout);
    (folder, ran, report)
}

fn count(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("there is no number {path}"))
}

#[test]
fn sessions_on_one_engine_are_all_ok_and_their_log_conforms() {
    let (folder, ran, report) = small("run-together", &[]);
    assert_eq!(count(&report, "/tokens/reused"), count(&report, "/tokens/reusable"));
    assert_eq!((count(&report, "/requests/finished"), count(&report, "/sessions/open")), (16, 0));
    let names: Vec<String> = folder.files("out").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["events.jsonl", "run.json"]);
    for said in
        ["8 sessions of 2 rounds, seed 1", "deepseek-v3.2, 2 layers (dsa dsa), index keys fp8", "rules dropped: none"]
    {
        assert!(ran.stderr.contains(said), "{said} is missing in:\n{}", ran.stderr);
    }
}

#[test]
fn a_small_device_pool_offloads_and_reloads() {
    let (_, _, report) = small("run-reload", &["--index-k", "bf16", "--device-pages", "30%"]);
    assert!(count(&report, "/pages/offloaded") > 0);
    assert_eq!(count(&report, "/workload/device_pages") * 10, count(&report, "/workload/host_pages") * 3);
}

#[test]
fn engines_that_are_split_send_pages() {
    let (_, _, report) = small("run-split", &["--split", "--chunk-pages", "3", "--decode-pages", "50%"]);
    assert!(count(&report, "/pages/sent") > 0);
    assert_eq!(count(&report, "/workload/chunk_pages"), 3);
}

#[test]
fn without_a_cache_nothing_is_reused() {
    let (_, ran, report) = small("run-no-cache", &["--cache", "off", "--index-k", "fp4"]);
    assert_eq!((count(&report, "/tokens/reused"), count(&report, "/pages/offloaded")), (0, 0));
    assert!(ran.stderr.contains("host none, the cache is off"), "{}", ran.stderr);
}

#[test]
fn layers_are_taken_by_kind_and_models_from_everywhere() {
    small("run-kinds", &["--model", "deepseek-v4-flash", "--layers", "window,c4,c128"]);
    small("run-entries", &["--model", "deepseek-v4-flash", "--layers", "c4"]);
    small("run-dense", &["--model", "dense", "--layers", "1"]);
}

/// Digits become `#`, and what stands between columns a single space.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words = line.split_whitespace().map(|word| match word.trim_end_matches([',', '%']).parse::<f64>() {
            Ok(_) => "#",
            Err(_) if word.starts_with("run-") => "RUN",
            Err(_) => word,
        });
        out += &(words.collect::<Vec<_>>().join(" ") + "\n");
    }
    out
}

#[test]
fn the_table_says_what_happened() {
    let (_, ran, report) = small("run-table", &[]);
    let expected = "\
RUN on host: complete after # s

sessions ok leak no_tool wrong error timeout corrupt
# # # # # # # # %

requests that ended with an answer # of #
decodes running at the peak #
requests seen waiting for input #
requests aborted by their clients #
requests past a deadline #
stuck transfers #
reusable tokens reused # of # # %
pages reloaded #
pages offloaded #
pages sent #
answer tokens a second #
prompt tokens computed a second #

time p50 p90 p99 max
to the first token, ms # # # #
per token, ms # # # #
";
    let found = masked(&ran.stdout);
    assert_eq!(found, expected, "{}", ran.stdout);
    let peak = count(&report, "/requests/decodes_peak");
    assert!(ran.stdout.contains(&format!("decodes running at the peak         {peak}\n")), "{}", ran.stdout);
}

#[test]
fn json_is_what_run_json_has_and_no_log_writes_none() {
    let (folder, ran, report) = small("run-json", &["--format", "json"]);
    assert_eq!(ran.stdout, folder.read("out/run.json"));
    // A log of the run before would be taken for one of this run.
    folder.run(&["run", "--sessions", "2", "--rounds", "1", "--out", "out", "--no-log", "--force"]).ends_with(0);
    let again = fits("run.schema.json", &folder.read("out/run.json"));
    assert_ne!(again["run"], report["run"], "a restart has a name of its own");
    assert!(!folder.path("out/events.jsonl").exists());
    // Without a folder nothing is written.
    let ran = folder.run(&["run", "--sessions", "2", "--rounds", "1", "--format", "json"]);
    assert_eq!(fits("run.schema.json", &ran.ends_with(0).stdout)["sessions"]["ok"], 2);
    assert_eq!(folder.files("out").len(), 1);
}

#[test]
fn what_goes_wrong_in_sessions_is_counted_and_ends_with_1() {
    let folder = Folder::new("run-timeouts");
    let ran = folder.run(&[
        "run",
        "--sessions",
        "6",
        "--rounds",
        "2",
        "--timeout-ms",
        "1",
        "--out",
        "out",
        "--format",
        "json",
    ]);
    ran.ends_with(1);
    let report = fits("run.schema.json", &ran.stdout);
    assert!(count(&report, "/sessions/timeout") > 0, "{}", ran.stdout);
    assert_eq!((&report["state"], count(&report, "/sessions/open")), (&Value::from("complete"), 0));
    folder.run(&["conform", "out/events.jsonl"]).ends_with(0);
}

#[test]
fn dropped_rules_are_written_down() {
    let folder = Folder::new("run-drop");
    let args = ["run", "--sessions", "4", "--rounds", "1", "--drop", "index-read-waits-layer@paged-decode"];
    let ran = folder.run(&[&args[..], &["--drop", "store-waits-forward", "--out", "out"]].concat());
    let dropped = "index-read-waits-layer@paged-decode store-waits-forward@offload";
    assert!(ran.stderr.contains(&format!("rules dropped: {dropped}")), "{}", ran.stderr);
    let report = fits("run.schema.json", &folder.read("out/run.json"));
    let written: Vec<&str> =
        report["workload"]["dropped"].as_array().expect("a list").iter().flat_map(Value::as_str).collect();
    assert_eq!(written.join(" "), dropped);
}

#[test]
fn a_complete_run_is_written_over_only_with_force() {
    let (folder, _, report) = small("run-again", &[]);
    let before = folder.files("out");
    let run = report["run"].as_str().expect("a text");
    let args = ["run", "--sessions", "2", "--rounds", "1", "--out", "out"];
    folder.run(&args).is_refused(&format!(
        "error: out/run.json: the folder holds a complete run, {run}\n\
         help: name another folder, or write over it with --force\n"
    ));
    assert!(folder.files("out") == before, "nothing has changed");
    folder.run(&[&args[..], &["--force"]].concat()).ends_with(0);
    // A run that was killed may be started again in its folder; something else may not be written over.
    let running = folder.read("out/run.json").replace("\"complete\"", "\"running\"");
    folder.write("out/run.json", running);
    folder.run(&args).ends_with(0);
    folder.write("out/run.json", "{}");
    folder.run(&args).is_refused(
        "error: out/run.json: the folder holds something that is no report of this version\n\
         help: name another folder, or write over it with --force\n",
    );
    assert_eq!(folder.read("out/run.json"), "{}");
}

#[test]
fn folders_that_cannot_be_written_are_refused_before_the_run() {
    let folder = Folder::new("run-folders");
    folder.write("file", "").write("taken/run.json/it", "");
    let run = |out: &str| folder.run(&["run", "--sessions", "2", "--rounds", "1", "--out", out]);
    run("file").is_refused("error: file: cannot make the folder: a file stands in its place\n");
    run("file/below").is_refused("error: file/below: cannot make the folder: a file stands in its place\n");
    run("taken")
        .is_refused("error: taken/run.json: cannot read the report of an earlier run: a folder stands in its place\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        folder.write("closed/keep", "");
        let closed = |mode| std::fs::set_permissions(folder.path("closed"), std::fs::Permissions::from_mode(mode));
        closed(0o555).expect("the folder is the test's own");
        // Nobody keeps root out.
        if std::fs::write(folder.path("closed/probe"), "").is_err() {
            run("closed")
                .is_refused("error: closed/run.json: cannot write the report: Permission denied (os error 13)\n");
        }
        closed(0o755).expect("as above");
    }
}

#[cfg(unix)]
#[test]
fn a_log_that_cannot_be_written_to_its_end_does_not_end_the_run() {
    let folder = Folder::new("run-full");
    let binary = env!("CARGO_BIN_EXE_kvweft");
    // Files end at 64 blocks, and the signal that says so is not heard: writing fails as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 64; exec '{binary}' run --sessions 4 --rounds 2 --out out");
    let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path("")).output().expect("sh is there");
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(2), "{stdout}{stderr}");
    assert!(stdout.contains("complete after"), "{stdout}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: out/events.jsonl: cannot write the event log: "), "{stderr}");
    assert_eq!(fits("run.schema.json", &folder.read("out/run.json"))["state"], "complete");
    folder.run(&["conform", "out/events.jsonl"]).ends_with(3);
}

/// Starts a long run and waits until its report says that some requests have ended.
fn started(folder: &Folder) -> Child {
    let mut command = kvweft(ENDLESS);
    command.current_dir(folder.path("")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary was built for this test");
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let text = std::fs::read_to_string(folder.path("out/run.json")).unwrap_or_default();
        // It is there or not, and never half written.
        if !text.is_empty() && count(&fits("run.schema.json", &text), "/requests/finished") > 0 {
            return child;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().and_then(|()| child.wait()).expect("it runs");
    panic!("no request has ended");
}

#[test]
fn a_run_that_is_killed_leaves_a_report_and_a_log_that_conforms_as_far_as_it_goes() {
    let folder = Folder::new("run-killed");
    let mut child = started(&folder);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let report = fits("run.schema.json", &folder.read("out/run.json"));
    assert_eq!(report["state"], "running");
    let conforms = folder.run(&["conform", "out/events.jsonl"]);
    conforms.ends_with(3);
    assert!(conforms.stdout.starts_with("cut off, and conforms as far as it goes: run run-"), "{}", conforms.stdout);
    let json = folder.run(&["conform", "out/events.jsonl", "--format", "json"]);
    let json = fits("conform.schema.json", &json.ends_with(3).stdout);
    assert_eq!((&json["run"], &json["cut_off"]), (&report["run"], &Value::Bool(true)));
}

#[cfg(unix)]
#[test]
fn a_run_that_is_interrupted_winds_down_and_says_how_far_it_came() {
    for signal in ["-INT", "-TERM"] {
        let folder = Folder::new(&format!("run-interrupted{signal}"));
        let child = started(&folder);
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
        let asked = Instant::now();
        let ended = child.wait_with_output().expect("it can be waited for");
        assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?} to wind down", asked.elapsed());
        let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(130), "{stdout}{stderr}");
        assert!(stderr.contains("interrupted: the run winds down; once more ends it at once"), "{stderr}");
        assert!(stdout.contains(" on host: interrupted after ") && stdout.contains(" open "), "{stdout}");
        let report = fits("run.schema.json", &folder.read("out/run.json"));
        assert_eq!(report["state"], "interrupted");
        let code = folder.run(&["conform", "out/events.jsonl"]).code;
        assert!(matches!(code, Some(0 | 3)), "conform ends with {code:?}");
    }
}

#[test]
fn a_run_stands_beside_another_one_in_ratios() {
    let (folder, _, report) = small("run-beside", &[]);
    let run = report["run"].as_str().expect("a text");
    let args = ["run", "--sessions", "2", "--rounds", "2", "--cache", "off", "--beside"];
    let ran = folder.run(&[&args[..], &["out"]].concat());
    let stdout = &ran.ends_with(0).stdout;
    assert!(stdout.contains(&format!("beside {run}, which differs in: cache")), "{stdout}");
    assert!(stdout.contains("to the first token  "), "{stdout}");
    folder.write("other.json", "{}");
    let refused = folder.run(&[&args[..], &["other.json"]].concat());
    assert!(refused.ends_with(2).stderr.starts_with("error: other.json: it is no report of a run: "));
}

#[test]
fn a_read_that_does_not_wait_is_what_conform_names() {
    let folder = Folder::new("run-race");
    // One race in hundreds of reads would do; there are many, and each garbles an answer.
    let args = ["run", "--sessions", "8", "--rounds", "4", "--layers", "1", "--device-pages", "35%"];
    let more = ["--prompt-token-us", "0", "--drop", "index-read-waits-layer@ragged-prefill", "--out", "out", "--force"];
    let ran = folder.run(&[&args[..], &more].concat());
    let conforms = folder.run(&["conform", "out/events.jsonl"]);
    if ran.code == Some(1) {
        let stdout = &conforms.ends_with(1).stdout;
        assert!(stdout.contains("not allowed: ") && stdout.contains("index-k of layer 0"), "{stdout}");
    } else {
        // Every copy was in time, by luck.
        ran.ends_with(0);
        conforms.ends_with(0);
    }
}
