//! A search that was stopped and goes on is one search.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use kvweft_check::explore::{Checkpoint, CheckpointError, Options, Outcome, explore, explore_from};

use crate::graph::Graph;
use crate::two_phase_commit::{Action, TwoPhaseCommit};

/// A folder of a test's own, gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kvweft-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Folder(path)
    }

    /// One that is written at the end of every level.
    fn checkpoint(&self) -> Checkpoint {
        let path = self.0.join("search.checkpoint");
        Checkpoint { path, identity: "two-phase commit".to_owned(), every: Duration::ZERO }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn search(managers: u32, options: &Options, checkpoint: &Checkpoint) -> Result<Outcome<Action>, CheckpointError> {
    let system = TwoPhaseCommit { managers, aborts_after_prepared: true };
    explore_from(&system, options, &|_| (), checkpoint)
}

#[test]
fn a_search_that_stopped_anywhere_goes_on_to_the_outcome_of_one_run() {
    let base = Options { threads: 1, ..Options::default() };
    let ways = [
        base.clone(),
        Options { exact: true, ..base.clone() },
        Options { liveness: false, ..base.clone() },
        Options { expand_violating: true, ..base.clone() },
    ];
    for options in ways {
        let one_run = explore(&TwoPhaseCommit { managers: 5, aborts_after_prepared: true }, &options);
        assert!(one_run.exhausted && !one_run.traces.is_empty());
        for states_max in [1, 2, 100, 1_000, one_run.counts.states / 2, one_run.counts.states - 1] {
            let folder = Folder::new("goes-on");
            let checkpoint = folder.checkpoint();
            let stopped = search(5, &Options { states_max, ..options.clone() }, &checkpoint);
            assert!(!stopped.expect("it can be written").exhausted);
            assert!(!folder.0.join("search.unfinished").exists());
            let more = Options { threads: 3, ..options.clone() };
            assert_eq!(search(5, &more, &checkpoint).expect("it can be read"), one_run, "{states_max}, {options:?}");
            // And a search that was finished is finished at once.
            let again = search(5, &options, &checkpoint).expect("it can be read");
            assert_eq!(again, one_run, "{states_max}, {options:?}");
        }
    }
}

#[test]
fn a_checkpoint_that_is_cut_short_or_has_changed_is_refused() {
    let folder = Folder::new("damaged");
    let checkpoint = folder.checkpoint();
    search(3, &Options::default(), &checkpoint).expect("it can be written");
    let whole = fs::read(&checkpoint.path).expect("it was written");
    for length in (0..whole.len()).step_by(31).chain([whole.len() - 1]) {
        fs::write(&checkpoint.path, &whole[..length]).expect("as before");
        match search(3, &Options::default(), &checkpoint) {
            Err(CheckpointError::Foreign { .. }) => assert!(length < 16),
            Err(CheckpointError::Damaged { .. }) => assert!(length >= 16),
            other => panic!("{length} bytes of {}: {other:?}", whole.len()),
        }
    }
    for at in (0..whole.len()).step_by(37) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&checkpoint.path, changed).expect("as before");
        match search(3, &Options::default(), &checkpoint) {
            Err(CheckpointError::Foreign { .. }) => assert!(at < 16),
            Err(CheckpointError::Version { .. }) => assert!((16..20).contains(&at)),
            Err(CheckpointError::Damaged { .. }) => assert!(at >= 20),
            other => panic!("byte {at} of {}: {other:?}", whole.len()),
        }
    }
}

#[test]
fn a_checkpoint_of_another_search_is_refused() {
    let folder = Folder::new("another");
    let checkpoint = folder.checkpoint();
    search(3, &Options::default(), &checkpoint).expect("it can be written");
    let other_name = Checkpoint { identity: "three-phase commit".to_owned(), ..checkpoint.clone() };
    let other_options = Options { liveness: false, ..Options::default() };
    for refused in [search(3, &Options::default(), &other_name), search(3, &other_options, &checkpoint)] {
        let Err(CheckpointError::OtherSearch { expected, found, .. }) = refused else { panic!("{refused:?}") };
        assert_ne!(expected, found);
    }
    // The name is right and the system is another: its steps lead elsewhere.
    let stopped = Options { states_max: 400, ..Options::default() };
    fs::remove_file(&checkpoint.path).expect("it is there");
    search(4, &stopped, &checkpoint).expect("it can be written");
    let refused = search(3, &Options::default(), &checkpoint);
    assert!(matches!(refused, Err(CheckpointError::Damaged { .. })), "{refused:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = Folder::new("unwritable");
    let nowhere = Checkpoint { path: folder.0.join("missing").join("search.checkpoint"), ..folder.checkpoint() };
    let error = search(2, &Options::default(), &nowhere).expect_err("there is no such folder");
    assert!(error.to_string().contains("cannot write the checkpoint"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_leaves_the_former_checkpoint_whole() {
    let folder = Folder::new("full");
    let checkpoint = folder.checkpoint();
    let stopped = Options { states_max: 100, ..Options::default() };
    search(4, &stopped, &checkpoint).expect("it can be written");
    let former = fs::read(&checkpoint.path).expect("it was written");
    std::os::unix::fs::symlink("/dev/full", folder.0.join("search.unfinished")).expect("links can be made");
    let error = search(4, &Options::default(), &checkpoint).expect_err("the disk is full");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(fs::read(&checkpoint.path).expect("it is still there"), former);
    assert_eq!(
        search(4, &Options::default(), &checkpoint).expect("there is room again"),
        explore(&TwoPhaseCommit { managers: 4, aborts_after_prepared: true }, &Options::default())
    );
}

#[test]
fn a_system_that_has_changed_under_its_checkpoint_is_refused_though_every_step_is_still_possible() {
    let folder = Folder::new("changed");
    let checkpoint = folder.checkpoint();
    let by_way_of = |state| Graph::new().system("go", 0, state).system("go on", state, 9).done(9);
    let stopped = Options { states_max: 2, ..Options::default() };
    explore_from(&by_way_of(1), &stopped, &|_| (), &checkpoint).expect("it can be written");
    let refused = explore_from(&by_way_of(2), &Options::default(), &|_| (), &checkpoint);
    assert!(matches!(refused, Err(CheckpointError::Damaged { .. })), "{refused:?}");
    assert!(explore_from(&by_way_of(1), &Options::default(), &|_| (), &checkpoint).expect("it is its own").exhausted);
}
