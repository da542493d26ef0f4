//! The same bytes on every run, with any number of threads, from any folder.

use crate::kvweft::Folder;

#[test]
fn results_do_not_depend_on_threads_or_on_how_often_they_were_computed() {
    let folder = Folder::new("threads");
    for format in ["text", "json"] {
        let run = |threads: &str, out: &str| {
            let ran = folder.run(&["check", "--tag", "reload", "--threads", threads, "--format", format, "--out", out]);
            ran.ends_with(0);
            (ran.stdout.clone(), folder.files(out))
        };
        let first = run("1", "once");
        assert!(first.0.len() > 1000 && first.1.len() > 10);
        for (threads, out) in [("1", "again"), ("2", "two"), ("16", "sixteen")] {
            assert_eq!(run(threads, out), first, "{threads} threads");
        }
        for out in ["once", "again", "two", "sixteen"] {
            std::fs::remove_dir_all(folder.path(out)).expect("the test made it");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_folder_that_a_scenario_lies_in() {
    let text = include_str!("../../../../scenarios/reload-before-prefill-read.toml");
    let run = |name: &str| {
        let folder = Folder::new(name);
        folder.write("deeper/it.toml", text);
        let ran = folder.run(&["check", "deeper/it.toml", "--out", "out"]);
        ran.ends_with(0);
        let trace = "out/it.reads-see-own-content.trace";
        let replayed = folder.run(&["replay", trace, "--scenario", "deeper/it.toml"]);
        replayed.ends_with(0);
        (ran.stdout, folder.files("out"), replayed)
    };
    let first = run("here");
    assert_eq!(run("over there, in a folder with spaces and ümlauts"), first);
    // A file with a built-in scenario's meaning has its digest.
    let built_in = Folder::new("built-in");
    let trace = built_in.read(&built_in.trace("reload-before-prefill-read", "reads-see-own-content"));
    let own = &first.1.iter().find(|(name, _)| name == "it.reads-see-own-content.trace").expect("it was written").1;
    assert_eq!(own, &trace.replace("reload-before-prefill-read", "it"));
}
