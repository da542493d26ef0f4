//! `kvweft check --checkpoint`: a run that was killed and goes on is one run.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::kvweft::{Folder, kvweft};

const CHECK: [&str; 2] = ["check", "slow-handover"];

#[test]
fn a_run_that_is_killed_again_and_again_ends_like_one_that_was_left_alone() {
    let folder = Folder::new("killed");
    let alone = folder.run(&CHECK);
    let kept = [CHECK.as_slice(), &["--checkpoint", "kept", "--checkpoint-every", "0"]].concat();
    let mut killed = 0;
    for wait_ms in [60, 120, 180, 240] {
        let mut command = kvweft(&kept);
        command.current_dir(folder.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary was built for this test");
        let end = Instant::now() + Duration::from_millis(wait_ms);
        while Instant::now() < end && child.try_wait().expect("it can be asked").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        killed += u32::from(child.try_wait().expect("it can be asked").is_none());
        // As `kill -9` does, in the middle of whatever it was doing.
        child.kill().expect("it can be killed, or is gone");
        child.wait().expect("it can be waited for");
    }
    assert!(killed > 0, "the first run is over in less than 60 ms: take a longer one");
    let resumed = folder.run(&kept);
    resumed.ends_with(0);
    assert_eq!(resumed.stdout, alone.stdout);
    // What is finished is not searched again, and is told alike.
    assert_eq!(folder.run(&kept).stdout, alone.stdout);
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_in_words() {
    let folder = Folder::new("misfit-checkpoint");
    let check = |scenario: &'static str| vec!["check", scenario, "--checkpoint", "kept"];
    folder.run(&check("handover")).ends_with(0);
    let names = std::fs::read_dir(folder.path("kept")).expect("it was made").count();
    assert_eq!(names, 2, "one as written, one with every rule on");
    let path = "kept/handover.all-rules.checkpoint";
    let whole = std::fs::read(folder.path(path)).expect("it was written");
    folder.write(path, &whole[..whole.len() / 2]);
    folder.run(&check("handover")).is_refused(&format!(
        "error: {path}: the checkpoint is damaged: its checksum does not fit, so it is cut short or has changed; start again \
         without it\n"
    ));
    folder.write(path, "something else");
    folder
        .run(&check("handover"))
        .is_refused(&format!("error: {path}: expected a checkpoint of kvweft, got another file\n"));
    std::fs::write(folder.path(path), whole).expect("as before");
    folder.run(&[check("handover"), vec!["--grain", "finest"]].concat()).ends_with(2);
    folder.run(&check("handover")).ends_with(0);
}
