//! Counterexamples are kept, replayed first, and let go of when they violate nothing any more.

use std::path::PathBuf;

use kvweft_check::explore::{Options, Verdict};

use crate::checker::{Lift, WHOLE, asked};

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("the folder is the test's own");
    }
    folder
}

/// So few states that a search finds nothing.
fn blind() -> Options {
    Options { states_max: 1, ..Options::default() }
}

#[test]
fn a_kept_counterexample_is_found_again_without_a_search() {
    for (at, broken) in
        [Lift { floors: 5, ..WHOLE }, Lift { stops_at: Some(1), ..WHOLE }, Lift { turns_back_at: Some(1), ..WHOLE }]
            .into_iter()
            .enumerate()
    {
        let folder = folder(&format!("kept-{at}"));
        let first = asked(broken).kept_in(&folder).check();
        let kept = first.keep().expect("it can be written");
        assert!(!kept.is_empty());
        let again = asked(broken).kept_in(&folder).options(blind()).check();
        assert_eq!(again.verdict, Verdict::Violated, "{at}");
        assert!(again.coverage.contains(" again") && again.coverage.contains(".trace"), "{}", again.coverage);
        assert_eq!(again.failures[0].lanes, first.failures[0].lanes);
        let mended = asked(WHOLE).kept_in(&folder).check();
        assert!(mended.holds(), "{}", mended.report());
        let other = asked(broken).named("another").kept_in(&folder).options(blind()).check();
        assert_ne!(other.verdict, Verdict::Violated, "a trace of another name is not replayed");
    }
}

#[test]
fn a_failure_says_what_is_broken_where_it_is_kept_and_what_to_type() {
    let folder = folder("told");
    let checked = asked(Lift { floors: 5, ..WHOLE }).kept_in(&folder).check();
    let panic = std::panic::catch_unwind(|| checked.assert_holds()).expect_err("it does not hold");
    let message = panic.downcast_ref::<String>().expect("a text");
    let path = folder.join("lift.below-the-roof.trace");
    assert!(message.starts_with("lift does not hold\n\nlift violates below-the-roof\n"), "{message}");
    assert!(message.contains(&format!("kept in {}\n", path.display())), "{message}");
    let command = "replay it with: cargo test -p kvweft-check -- --exact \
                   regressions::a_failure_says_what_is_broken_where_it_is_kept_and_what_to_type";
    assert!(message.ends_with(command), "{message}");
    let kept = std::fs::read_to_string(path).expect("it was kept");
    assert!(kept.starts_with("kvweft-trace 1\nscenario  lift\nviolates  below-the-roof\n"), "{kept}");
}

#[test]
fn a_file_that_is_no_trace_is_passed_over() {
    let folder = folder("damaged");
    std::fs::create_dir_all(&folder).expect("it can be made");
    for (name, text) in [("lift.a.trace", "kvweft-trace 9\n"), ("lift.b.trace", ""), ("lift.c.txt", "?")] {
        std::fs::write(folder.join(name), text).expect("it can be written");
    }
    assert!(asked(WHOLE).kept_in(&folder).check().holds());
}
