//! `step`, `list`, `completions`, `man`, `--help` and `--version`.

use crate::kvweft::Folder;

#[test]
fn a_world_is_walked_by_hand_and_says_why_something_waits() {
    let folder = Folder::new("step");
    let script = "memory\n1\nwhy\nmemory\nback\nwhy\nhelp\n\nend\n1\n";
    let ran = folder.run_with(&["step", "reload-before-prefill-read"], script);
    ran.ends_with(0);
    let help = "a number takes that action; `why` says what fences keep back; `memory` shows the pages; `back` takes \
                the\nlast step back; `end` stops\n";
    let expected = format!(
        "reload-before-prefill-read: The ragged prefill reads index keys of a reloaded page\n{help}\
         \x20 1  client     submit r1 [A]\n\
         \x20 no page has an owner\n\
         client submit r1 [A]\n  => p1; => s1 prefill r1 writes p1; => h1; => t1 offload p1 to h1\n\
         \x20 1  forward    s1 begin write layer 0\n\
         \x20 d2h t1 begin kv layer 0: waits for the end of s1 (store-waits-forward@offload)\n\
         \x20 h1: ix0 - kv0 -\n  p1: ix0 - kv0 -\n\
         \x20 1  client     submit r1 [A]\n\
         \x20 no fence keeps anything back\n{help}"
    );
    assert_eq!(ran.stdout, expected);
    assert_eq!(ran.stderr, "");
}

#[test]
fn words_that_are_no_command_are_answered_and_change_nothing() {
    let folder = Folder::new("step-garbage");
    let garbage: [&[u8]; 8] = [b"0", b"2", b"-1", b"99999999999999999999", b"1 1", b"WHY", b"\xff\xfe", b"\x00"];
    let script: Vec<u8> = garbage.iter().flat_map(|word| [word, b"\n".as_slice()].concat()).collect();
    let ran = folder.run_with(&["step", "reload-before-prefill-read"], script);
    ran.ends_with(0);
    let answers = ran
        .stdout
        .lines()
        .filter(|line| line.starts_with("expected a number from the list, or one of: why memory back end; found `"));
    assert_eq!(answers.count(), garbage.len(), "{}", ran.stdout);
    // `back` at the beginning stays there, and the end of the input is an end.
    let back = folder.run_with(&["step", "reload-before-prefill-read"], "back\nback");
    back.ends_with(0);
    assert!(back.stdout.ends_with("  1  client     submit r1 [A]\n"));
}

#[test]
fn a_walk_along_a_counterexample_shows_its_violation_and_a_finished_world_says_so() {
    let folder = Folder::new("step-violation");
    let trace = folder.read(&folder.trace("reload-before-prefill-read", "reads-see-own-content"));
    let rules = ["--all-rules", "--drop=index-read-waits-layer"];
    for (rule, found) in rules.into_iter().zip([false, true]) {
        // Follow the trace by choosing each step by its words.
        let mut script = String::new();
        for line in trace.lines().skip(4) {
            let words: Vec<&str> = line.trim().splitn(3, "  ").map(str::trim).collect();
            let [_, actor, action] = words[..] else { break };
            let action = action.split("  ").next().expect("it has one");
            let shown = folder.run_with(&["step", "reload-before-prefill-read", rule], &script).stdout;
            let choice = shown.lines().rev().find(|line| line.ends_with(action) && line.contains(actor));
            let Some(choice) = choice.filter(|line| line.starts_with("  ")) else { break };
            script += &format!("{}\n", choice.split_whitespace().next().expect("a number"));
        }
        let ran = folder.run_with(&["step", "reload-before-prefill-read", rule], &script);
        let violation = "  ! reads-see-own-content: r3 reads index-k of layer 0: expects A, finds -\n";
        assert_eq!(ran.stdout.contains(violation), found, "{}", ran.stdout);
    }
    let all_first = folder.run_with(&["step", "hold-and-wait"], "1\n".repeat(40));
    assert!(all_first.stdout.contains("nothing more can happen\n"), "{}", all_first.stdout);
}

#[test]
fn everything_that_there_is_can_be_listed() {
    let folder = Folder::new("list");
    let cases = [
        ("scenarios", kvweft_scenarios::SCENARIOS.len(), "reload-before-prefill-read"),
        ("rules", kvweft_core::RULES.len(), "index-read-waits-layer"),
        ("properties", kvweft_world::PROPERTIES.len(), "reads-see-own-content"),
        ("models", kvweft_scenarios::MODELS.len(), "deepseek-v4-flash"),
        ("cells", 0, "slot "),
    ];
    for (what, entries, one) in cases {
        let ran = folder.run(&["list", what]);
        ran.ends_with(0);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert!(entries == 0 && lines.len() > 10 || lines.len() == entries + 1, "{what}: {} lines", lines.len());
        assert!(lines.iter().any(|line| line.starts_with(one)), "{what}: no line begins with {one}");
        assert!(lines.iter().all(|line| line.trim_end() == *line));
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn completions_and_the_man_page_name_every_command() {
    let folder = Folder::new("meta");
    let commands = ["check", "replay", "shrink", "step", "render", "list", "completions", "man"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = folder.run(&["completions", shell]);
        ran.ends_with(0);
        for command in commands {
            assert!(ran.stdout.contains(command), "{shell}: {command} is missing");
        }
        assert!(ran.stdout.contains("--max-states") || ran.stdout.contains("max-states"), "{shell}");
    }
    let man = folder.run(&["man"]);
    man.ends_with(0);
    assert!(man.stdout.contains(".TH kvweft 1") && man.stdout.contains("Exit codes: 0 as expected"));
    for command in commands {
        assert!(man.stdout.contains(&format!("kvweft\\-{command}(1)")), "{command} is missing");
    }
}

#[test]
fn help_and_version_are_results_and_no_command_is_an_error() {
    let folder = Folder::new("help");
    let help = folder.run(&["--help"]);
    help.ends_with(0);
    assert!(help.stdout.starts_with("Model checker ") && help.stdout.contains("Usage: kvweft <COMMAND>"));
    assert_eq!(folder.run(&["help"]).stdout, help.stdout);
    let version = folder.run(&["--version"]);
    version.ends_with(0);
    assert_eq!(version.stdout, format!("kvweft {}\n", env!("CARGO_PKG_VERSION")));
    let none = folder.run(&[]);
    none.ends_with(2);
    assert!(none.stdout.is_empty() && none.stderr.contains("Usage: kvweft <COMMAND>"));
    // No output is ever coloured: there is nothing for NO_COLOR to switch off.
    for text in [&help.stdout, &none.stderr, &folder.run(&["check", "handover"]).stdout] {
        assert!(!text.contains('\u{1b}'));
    }
}
