//! `kvweft sweep` and `kvweft merge`: any order, any division, the same bytes.

use std::process::Command;

use crate::json::each_fits;
use crate::kvweft::Folder;

const SWEEP: [&str; 4] = ["sweep", "handover", "write-back", "--each-rule"];

fn shards(folder: &Folder, count: usize) -> Vec<String> {
    let files: Vec<String> = (1..=count).map(|k| format!("{k}-of-{count}.jsonl")).collect();
    for (k, file) in files.iter().enumerate() {
        let shard = format!("{}/{count}", k + 1);
        let args = [SWEEP.as_slice(), &["--shard", &shard, "--out", file]].concat();
        assert_ne!(folder.run(&args).code, Some(2));
    }
    files
}

fn merge(folder: &Folder, files: &[&str]) -> crate::kvweft::Ran {
    folder.run(&[["merge"].as_slice(), files].concat())
}

#[test]
fn shards_merge_in_any_order_to_the_bytes_of_one_run() {
    let folder = Folder::new("sweep");
    let whole = folder.run(&SWEEP);
    whole.ends_with(0);
    each_fits("sweep.schema.json", whole.stdout.lines());
    let threads = folder.run(&[SWEEP.as_slice(), &["--threads", "3"]].concat());
    assert_eq!(threads.stdout, whole.stdout);
    for count in [2, 5] {
        let files = shards(&folder, count);
        let mut order: Vec<&str> = files.iter().map(String::as_str).collect();
        order.reverse();
        let merged = merge(&folder, &order);
        assert_eq!((merged.stdout.as_str(), merged.code), (whole.stdout.as_str(), Some(0)), "{count}");
        order.rotate_left(1);
        let twice = [order.as_slice(), &[order[0]]].concat();
        assert_eq!(merge(&folder, &twice).stdout, whole.stdout, "a shard that ran twice changes nothing");
    }
}

#[test]
fn a_part_of_a_sweep_says_what_is_missing_and_can_be_merged_again() {
    let folder = Folder::new("sweep-part");
    let files = shards(&folder, 3);
    let part = folder.run(&["merge", &files[2], &files[0], "--out", "part.jsonl"]);
    part.ends_with(3);
    assert!(
        part.stderr.ends_with(
            " cells are missing: 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46, 49, 52, \
                                   55, 58, ..\n"
        ),
        "{}",
        part.stderr
    );
    let whole = merge(&folder, &["part.jsonl", &files[1]]);
    assert_eq!((whole.stdout.as_str(), whole.code), (folder.run(&SWEEP).stdout.as_str(), Some(0)));
}

#[test]
fn walks_are_swept_over_seeds() {
    let folder = Folder::new("sweep-walks");
    let args = ["sweep", "handover", "--walk", "random", "--walks", "20", "--seeds", "3", "--seed", "5"];
    let ran = folder.run(&args);
    let lines = each_fits("sweep.schema.json", ran.stdout.lines());
    let seeds: Vec<u64> = lines[1..].iter().map(|line| line["seed"].as_u64().expect("a seed")).collect();
    assert_eq!((seeds.as_slice(), ran.code), ([5, 6, 7].as_slice(), Some(0)));
    let nothing = folder.run(&[args.as_slice(), &["--drop", "free-once"]].concat());
    nothing.ends_with(3);
}

#[test]
fn a_defect_with_every_rule_on_is_unexpected() {
    let folder = Folder::new("sweep-unexpected");
    // A file that expects nothing to break, and drops a rule.
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/handover.toml"));
    let text = text.expect("it is there");
    let (head, _) = text.split_once("[expect]").expect("it expects something");
    folder.write("holds.toml", format!("{head}[expect]\nverdict = \"holds\"\n"));
    let ran = folder.run(&["sweep", "holds.toml"]);
    ran.ends_with(1);
    assert!(ran.stdout.contains("\"unexpected\":true"), "{}", ran.stdout);
}

#[test]
fn results_that_do_not_belong_together_are_refused() {
    let folder = Folder::new("sweep-refused");
    let files = shards(&folder, 2);
    folder.run(&["sweep", "handover", "--out", "other.jsonl"]).ends_with(0);
    let refused = merge(&folder, &[&files[0], "other.jsonl"]);
    refused.is_refused(&format!(
        "error: other.jsonl: it is of another work than {}: they differ in cells, drops, scenarios\n",
        files[0]
    ));
    let changed = folder.read(&files[0]).replacen("\"states\":230", "\"states\":231", 1);
    folder.write("changed.jsonl", changed);
    assert!(merge(&folder, &[&files[0], "changed.jsonl"]).stderr.starts_with(
        "error: changed.jsonl: cell 0 came out otherwise before, and the results of a cell are always the same\nhelp: "
    ));
    let head = "expected the header of results of a sweep or of seeds\nhelp: `kvweft sweep --out FILE` and `kvweft simulate --out \
                FILE` write such files\n";
    for text in ["", "not JSON\n", "{}\n", "{\"format\":\"kvweft-check\"}\n"] {
        folder.write("damaged.jsonl", text);
        merge(&folder, &["damaged.jsonl"]).is_refused(&format!("damaged.jsonl:1: error: {head}"));
    }
    let first = folder.read(&files[0]);
    let (header, rest) = first.split_once('\n').expect("it has lines");
    let line = rest.lines().next().expect("it has a cell");
    let newer = header.replace("\"version\":1", "\"version\":2");
    for (text, line_number, why) in [
        (format!("{newer}\n"), 1, "expected version 1 of the results, got 2"),
        (format!("{header}\n{line}\n{line}\n"), 3, "cell 0 comes a second time"),
        (
            format!("{header}\n{}\n", &line[..line.len() - 4]),
            2,
            "expected a line of JSON; this one is cut short or damaged",
        ),
        (format!("{header}\n{{\"cell\":134}}\n"), 2, "expected a cell below 134"),
    ] {
        folder.write("damaged.jsonl", text);
        let ran = merge(&folder, &["damaged.jsonl"]);
        assert_eq!(ran.code, Some(2), "{why}");
        assert!(ran.stderr.starts_with(&format!("damaged.jsonl:{line_number}: error: {why}\n")), "{}", ran.stderr);
    }
    assert_eq!(merge(&folder, &["missing.jsonl"]).code, Some(2));
}

#[cfg(unix)]
#[test]
fn what_stands_at_the_name_of_the_results_is_written_through() {
    let folder = Folder::new("sweep-out");
    let sweep = |out: &str| folder.run(&["sweep", "handover", "--out", out]);
    let wanted = folder.run(&["sweep", "handover"]).stdout;
    folder.write("there.jsonl", "old");
    for (link, target) in [("link.jsonl", "there.jsonl"), ("dangling.jsonl", "new.jsonl")] {
        std::os::unix::fs::symlink(target, folder.path(link)).expect("a link can be made");
        sweep(link).ends_with(0);
        assert!(folder.path(link).is_symlink(), "{link}");
        assert_eq!(folder.read(target), wanted, "{link}");
    }
    let fifo = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is there").success());
    // Opened for both directions, neither side waits for the other, and what was written waits for the reader.
    let both = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).expect("it is there");
    sweep("pipe").ends_with(0);
    let mut read = vec![0; wanted.len()];
    assert!(!fifo.is_file(), "the pipe has become a file");
    std::io::Read::read_exact(&mut &both, &mut read).expect("it was written");
    assert_eq!(read, wanted.as_bytes());
    drop(both);
    std::fs::create_dir(folder.path("folder")).expect("it can be made");
    let refused = sweep("folder");
    refused.ends_with(2);
    assert!(
        refused.stderr.ends_with("error: folder: cannot write the results: a folder stands in its place\n"),
        "{}",
        refused.stderr
    );
    let left = std::fs::read_dir(folder.path("")).expect("it is there").map(|entry| entry.expect("it is there").path());
    assert_eq!(left.filter(|path| path.extension().is_some_and(|end| end == "partial")).count(), 0);
}

#[test]
fn wrong_shards_and_rules_are_refused() {
    let folder = Folder::new("sweep-arguments");
    for shard in ["0/2", "3/2", "1", "a/b", "1/0", "1/1000001"] {
        let ran = folder.run(&["sweep", "handover", "--shard", shard]);
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)), "{shard}");
        assert!(ran.stderr.contains("expected K/N with 1 <= K <= N <= 1000000, as in 3/16"), "{}", ran.stderr);
    }
    for args in [
        ["--drop", "no-such-rule"].as_slice(),
        &["--seeds", "3"],
        &["--each-rule", "--drop", "free-once"],
        &["--out", "no/such/folder.jsonl"],
    ] {
        let ran = folder.run(&[["sweep", "handover"].as_slice(), args].concat());
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_sweep_on_hyperqueue_with_two_workers_gives_the_same_bytes() {
    let python = std::env::var("KVWEFT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python).args(["-c", "import hyperqueue"]).output().is_ok_and(|run| run.status.success());
    if !there {
        eprintln!("SKIPPED: `{python}` has no package `hyperqueue`; KVWEFT_PYTHON names another Python");
        return;
    }
    let folder = Folder::new("hyperqueue");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/hyperqueue_sweep.py");
    let results = folder.path("results");
    let mut command = Command::new(&python);
    command.arg(script).arg(env!("CARGO_BIN_EXE_kvweft")).arg(&results).args(["4"]).args(&SWEEP[1..]);
    let ran = command.output().expect("Python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(folder.read("results/merged.jsonl"), folder.run(&SWEEP).stdout);
}
