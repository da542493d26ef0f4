//! Running the binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The run ended with this exit code.
    #[track_caller]
    pub(crate) fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The run was refused: exit code 2, nothing on standard output, exactly this on standard error.
    #[track_caller]
    pub(crate) fn is_refused(&self, stderr: &str) {
        assert_eq!(self.stderr, stderr);
        assert_eq!((self.stdout.as_str(), self.code), ("", Some(2)));
    }
}

/// A folder of its own for a test, empty, and the working folder of what it runs.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// `name` is the test's own.
    pub(crate) fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).expect("the folder is the test's own");
        }
        std::fs::create_dir_all(&path).expect("cargo's folder for tests can be written");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and the folders that it lies in.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it can be made");
        std::fs::write(path, text).expect("it can be written");
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Every file below the folder `name` with its text, sorted.
    pub(crate) fn files(&self, name: &str) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let names = entries.map(|entry| entry.expect("it can be read").file_name().into_string().expect("UTF-8"));
        let mut files: Vec<_> = names.map(|file| (file.clone(), self.read(&format!("{name}/{file}")))).collect();
        files.sort();
        files
    }

    /// Runs kvweft here.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// Runs kvweft here with a standard input.
    pub(crate) fn run_with(&self, args: &[&str], stdin: impl AsRef<[u8]>) -> Ran {
        let mut command = kvweft(args);
        command.current_dir(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        let mut input = child.stdin.take().expect("it is a pipe");
        let stdin = stdin.as_ref().to_vec();
        let writer = std::thread::spawn(move || {
            // A program that ends before it has read everything closes the pipe.
            let _ = input.write_all(&stdin);
        });
        let output = child.wait_with_output().expect("it can be waited for");
        writer.join().expect("the writer does not panic");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("kvweft writes UTF-8");
        let ran = Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!ran.stderr.contains("panicked"), "kvweft {args:?} panicked:\n{}", ran.stderr);
        ran
    }

    /// Checks a built-in scenario and gives the path of the trace that breaks `property`.
    pub(crate) fn trace(&self, scenario: &str, property: &str) -> String {
        assert_ne!(self.run(&["check", scenario, "--out", "traces"]).code, Some(2));
        let path = format!("traces/{scenario}.{property}.trace");
        assert!(self.path(&path).exists(), "{path} was not written");
        path
    }
}

/// The command, not yet started.
pub(crate) fn kvweft(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvweft"));
    command.args(args).env_remove("RUST_BACKTRACE").env("COLUMNS", "100");
    command
}

/// A scenario file that holds.
pub(crate) const SMALL: &str = r#"format = 1
title = "One request"
source = "a test"

[model]
file = "dense"
layers = ["dense"]

[world]
device_pages = 2

[[request]]
name = "r1"
prompt = ["A"]
"#;

/// SplitMix64: the same numbers on every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}
