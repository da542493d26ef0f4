//! Times of the same work in PyTorch, from a child process.

use std::io::Write;
use std::process::{Command, Stdio};

use kvweft_cuda::selftest::Work;
use serde::{Deserialize, Serialize};

const SCRIPT: &str = include_str!("beside_torch.py");

#[derive(Serialize)]
struct Request<'a> {
    device: usize,
    works: &'a [Work],
}

/// Times of one work, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Times {
    /// A call in a CUDA graph.
    pub(super) graph_ns: u64,
    /// A call that is launched by itself.
    pub(super) launched_ns: u64,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    /// One time for each work, in its order; none where memory was short.
    Timed {
        /// Of PyTorch.
        version: String,
        /// The times.
        times: Vec<Option<Times>>,
    },
    /// There is no PyTorch.
    Missing {
        /// What is missing.
        missing: String,
    },
}

/// Runs the script with `python3` on the GPU of this number.
pub(super) fn time(device: usize, works: &[Work]) -> Answer {
    run(device, works).unwrap_or_else(|missing| Answer::Missing { missing })
}

fn run(device: usize, works: &[Work]) -> Result<Answer, String> {
    let request = serde_json::to_string(&Request { device, works }).expect("it has no keys but texts");
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("python3 cannot be started: {error}"))?;
    let mut input = child.stdin.take().expect("it was asked for");
    // A child that ends early says so below; its input is closed when this is dropped.
    let written = input.write_all(request.as_bytes());
    drop(input);
    let output = child.wait_with_output().map_err(|error| format!("python3 cannot be waited for: {error}"))?;
    let answer = serde_json::from_slice(&output.stdout);
    match (written, answer) {
        (Ok(()), Ok(answer)) if output.status.success() => complete(answer, works.len()),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("the script ended with {}: {}", output.status, said.lines().last().unwrap_or("nothing said")))
        }
    }
}

fn complete(answer: Answer, expected: usize) -> Result<Answer, String> {
    match &answer {
        Answer::Timed { times, .. } if times.len() != expected => {
            Err(format!("expected {expected} times, got {}", times.len()))
        }
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_short_ones_refused() {
        let timed: Answer =
            serde_json::from_str(r#"{"version": "2.11", "times": [{"graph_ns": 5, "launched_ns": 7}, null]}"#)
                .expect("as the script writes it");
        let times = vec![Some(Times { graph_ns: 5, launched_ns: 7 }), None];
        assert_eq!(timed, Answer::Timed { version: "2.11".to_owned(), times });
        assert_eq!(complete(timed, 3), Err("expected 3 times, got 2".to_owned()));
        let missing: Answer = serde_json::from_str(r#"{"missing": "python3 has no torch"}"#).expect("likewise");
        assert_eq!(missing, Answer::Missing { missing: "python3 has no torch".to_owned() });
    }

    /// The script's first lines run wherever there is a python3; what it says without PyTorch or a GPU is an answer.
    #[test]
    fn without_a_gpu_the_script_says_what_is_missing() {
        match time(1000, &[Work::TopK { rows: 1, len: 4096, k: 512 }]) {
            Answer::Missing { missing } => {
                assert!(
                    ["python3 cannot be started", "python3 has no torch", "torch sees no such GPU"]
                        .iter()
                        .any(|expected| missing.starts_with(expected)),
                    "{missing}"
                );
            }
            timed => panic!("no machine has so many GPUs: {timed:?}"),
        }
    }
}
