//! What is said where there is no GPU.

use crate::kvweft::Folder;

#[test]
fn without_a_gpu_each_command_says_what_is_missing() {
    let folder = Folder::new("no-gpu");
    let missing =
        "error: --on cuda: no CUDA driver: libcuda.so was not found; install NVIDIA's driver, or run without a GPU\n";
    let first = folder.run(&["selftest", "--checks-only", "--max-device-memory", "512M"]);
    if first.stderr != missing {
        eprintln!("skipped: there is a CUDA driver on this machine ({:?})", first.code);
        return;
    }
    folder.run(&["check", "reload-before-prefill-read", "--out", "out"]).ends_with(0);
    let trace = "out/reload-before-prefill-read.reads-see-own-content.trace";
    for args in [
        &["selftest"][..],
        &["selftest", "--small"],
        &["bench", "--beside", "torch"],
        &["run", "--on", "cuda"],
        &["run", "--on", "cuda", "--split", "--device", "0,0", "--peer", "through-host", "--copy-by", "engine"],
        &["replay", trace, "--on", "cuda", "--copy-by", "ring"],
    ] {
        folder.run(args).is_refused(missing);
    }
}

#[test]
fn gpus_that_make_no_sense_are_refused_before_any_is_opened() {
    let folder = Folder::new("gpus");
    let refused = |args: &[&str], why: &str| {
        folder.run(&[&["run", "--on", "cuda"], args].concat()).is_refused(&format!("error: --device: {why}\n"));
    };
    refused(&["--device", "0,1"], "two GPUs are for two engines, and there is one\nhelp: add --split");
    refused(
        &["--device", "1,1", "--split"],
        "expected two different GPUs, got one twice\nhelp: add --peer through-host",
    );
    refused(
        &["--device", "1,1", "--peer", "through-host"],
        "two GPUs are for two engines, and there is one\nhelp: add --split",
    );
    refused(&["--device", "0,1,2", "--split"], "expected one GPU or two");
}
