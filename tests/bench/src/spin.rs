//! Two-phase commit in SPIN: generated, compiled and run here.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::measure::Measured;

/// What is compiled: an exact search for safety, without partial-order reduction.
pub(crate) const FLAGS: [&str; 3] = ["-O3", "-DSAFETY", "-DNOREDUCE"];
/// How it is run: the depth, the size of the table in bits, and no list of what was not reached.
pub(crate) const ARGUMENTS: [&str; 3] = ["-m100000", "-w22", "-n"];

const MODEL: &str = include_str!("two_phase_commit.pml");

/// A compiled verifier.
pub(crate) struct Spin {
    folder: std::path::PathBuf,
}

impl Spin {
    /// Generates and compiles the verifier.
    ///
    /// # Errors
    /// In words, if `spin` or `gcc` is missing or fails.
    pub(crate) fn compiled() -> Result<Spin, String> {
        let folder = env::temp_dir().join(format!("kvweft-bench-{}", std::process::id()));
        let spin = Spin { folder };
        fs::create_dir_all(&spin.folder).map_err(|error| format!("{}: {error}", spin.folder.display()))?;
        let model = spin.folder.join("model.pml");
        fs::write(&model, MODEL).map_err(|error| format!("{}: {error}", model.display()))?;
        run(&spin.folder, "spin", &["-a", "model.pml"])?;
        run(&spin.folder, "gcc", &[FLAGS.as_slice(), &["-o", "pan", "pan.c"]].concat())?;
        Ok(spin)
    }

    /// Runs the verifier once.
    pub(crate) fn search(&self) -> Result<Measured, String> {
        let told = run(&self.folder, "./pan", &ARGUMENTS)?;
        let before = |what: &str| {
            let line = told.lines().find(|line| line.contains(what))?;
            line[..line.find(what)?].split_whitespace().next_back()?.parse::<f64>().ok()
        };
        let after = |what: &str| {
            let rest = &told[told.find(what)? + what.len()..];
            rest.split_whitespace().next()?.parse::<f64>().ok()
        };
        let numbers = || {
            let states = before("states, stored")?;
            let megabytes = before("total actual memory usage")?;
            Some(Measured {
                states: states as u64,
                seconds: after("elapsed time")?,
                bytes_per_state: Some(megabytes * 1048576.0 / states),
            })
        };
        if !told.contains("errors: 0") {
            return Err(format!("expected SPIN to find no error, got:\n{told}"));
        }
        numbers().ok_or_else(|| format!("expected SPIN's numbers, got:\n{told}"))
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let path = if program.starts_with("./") { folder.join(program) } else { program.into() };
    let output = Command::new(path).args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| format!("`{program}` cannot be run ({error})"))?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(told)
    } else {
        Err(format!("`{program}` failed: {told}{}", String::from_utf8_lossy(&output.stderr)))
    }
}
