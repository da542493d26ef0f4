//! The text of a trace file.
//!
//! ```text
//! kvweft-trace 1
//! scenario  index-k-reload  digest 0123456789abcdef  drops index-read-waits-layer@ragged-prefill
//! violates  reads-see-own-content
//! 1  client   submit r1 [A]
//! 2  forward  s1 read index-k layer 0  -> expects A, finds -  <- violation
//! ```

use std::fmt;

/// The version of the format that this crate writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// One step of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLine {
    /// Who acts: `client`, `sched`, `forward`, `h2d`, `d2h`, `nic`, `net`, `timer`; with `p.` or `d.` in split worlds.
    pub actor: String,
    /// What it does, in small operations joined by `; `.
    pub action: String,
    /// What came of it. For the reader: replay does not compare it.
    pub result: String,
    /// A mark behind the step: `violation`, `dooming step`, `loop`.
    pub mark: String,
}

/// A whole trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// The scenario by name.
    pub scenario: String,
    /// The digest of the scenario's text.
    pub digest: String,
    /// The rules that were dropped.
    pub drops: Vec<String>,
    /// The property that the last step, or the end, violates.
    pub violates: String,
    /// What exactly was violated.
    pub detail: String,
    /// The steps.
    pub steps: Vec<StepLine>,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What was expected, and what came.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

fn error<T>(line: usize, message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { line, message: message.into() })
}

impl fmt::Display for TraceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kvweft-trace {VERSION}")?;
        write!(f, "scenario  {}  digest {}", self.scenario, self.digest)?;
        if !self.drops.is_empty() {
            write!(f, "  drops {}", self.drops.join(" "))?;
        }
        writeln!(f, "\nviolates  {}", self.violates)?;
        if !self.detail.is_empty() {
            writeln!(f, "because   {}", self.detail)?;
        }
        let number_width = self.steps.len().to_string().len();
        let actor_width = self.steps.iter().map(|step| step.actor.len()).max().unwrap_or(0);
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "{:>number_width$}  {:<actor_width$}  {}", i + 1, step.actor, step.action)?;
            if !step.result.is_empty() {
                write!(f, "  -> {}", step.result)?;
            }
            if !step.mark.is_empty() {
                write!(f, "  <- {}", step.mark)?;
            }
            writeln!(f)?;
        }
        writeln!(f, "end  {} steps", self.steps.len())
    }
}

impl TraceFile {
    /// Reads a trace.
    ///
    /// # Errors
    /// With the line and what was expected there.
    pub fn parse(text: &str) -> Result<TraceFile, ParseError> {
        let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end()));
        let Some((_, first)) = lines.next() else { return error(1, "expected `kvweft-trace 1`, the file is empty") };
        check_version(first)?;
        let mut trace = TraceFile {
            scenario: String::new(),
            digest: String::new(),
            drops: Vec::new(),
            violates: String::new(),
            detail: String::new(),
            steps: Vec::new(),
        };
        let mut last = 1;
        let mut ended = false;
        for (number, line) in lines {
            last = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if ended {
                return error(number, format!("expected nothing behind the `end` line, found `{line}`"));
            }
            match line.split_whitespace().next().unwrap_or_default() {
                "scenario" => trace.read_scenario(number, line)?,
                "violates" => trace.violates = line["violates".len()..].trim().to_owned(),
                "because" => trace.detail = line["because".len()..].trim().to_owned(),
                "end" => {
                    trace.read_end(number, line)?;
                    ended = true;
                }
                _ => trace.read_step(number, line)?,
            }
        }
        if trace.scenario.is_empty() {
            return error(last, "expected a line `scenario NAME  digest HEX`, found none");
        }
        if trace.violates.is_empty() {
            return error(last, "expected a line `violates PROPERTY`, found none");
        }
        if !ended {
            return error(last, "expected a last line `end  N steps`: the trace is cut short");
        }
        Ok(trace)
    }

    fn read_scenario(&mut self, number: usize, line: &str) -> Result<(), ParseError> {
        let mut words = line.split_whitespace().skip(1);
        let Some(name) = words.next() else { return error(number, "expected the scenario's name behind `scenario`") };
        self.scenario = name.to_owned();
        while let Some(word) = words.next() {
            match word {
                "digest" => match words.next() {
                    Some(digest) => self.digest = digest.to_owned(),
                    None => return error(number, "expected 16 hexadecimal digits behind `digest`"),
                },
                "drops" => self.drops.extend(words.by_ref().map(str::to_owned)),
                other => return error(number, format!("expected `digest` or `drops`, found `{other}`")),
            }
        }
        Ok(())
    }

    fn read_end(&self, number: usize, line: &str) -> Result<(), ParseError> {
        let count = line.split_whitespace().nth(1).and_then(|word| word.parse::<usize>().ok());
        if count != Some(self.steps.len()) {
            return error(number, format!("expected `end  {} steps`, found `{line}`", self.steps.len()));
        }
        Ok(())
    }

    fn read_step(&mut self, number: usize, line: &str) -> Result<(), ParseError> {
        let expected = self.steps.len() + 1;
        let line = line.trim_start();
        let Some((count, rest)) = line.split_once("  ") else {
            return error(number, format!("expected step {expected} as `{expected}  ACTOR  ACTION`, found `{line}`"));
        };
        if count.parse::<usize>() != Ok(expected) {
            return error(number, format!("expected step {expected}, found `{count}`"));
        }
        let Some((actor, rest)) = rest.trim_start().split_once("  ") else {
            return error(number, format!("expected two spaces between actor and action in `{line}`"));
        };
        let (rest, mark) = rest.rsplit_once("  <- ").unwrap_or((rest, ""));
        let (action, result) = rest.split_once("  -> ").unwrap_or((rest, ""));
        self.steps.push(StepLine {
            actor: actor.trim().to_owned(),
            action: action.trim().to_owned(),
            result: result.trim().to_owned(),
            mark: mark.trim().to_owned(),
        });
        Ok(())
    }
}

fn check_version(first: &str) -> Result<(), ParseError> {
    let Some(version) = first.strip_prefix("kvweft-trace ") else {
        return error(
            1,
            format!("expected `kvweft-trace {VERSION}`, found `{}`", first.chars().take(60).collect::<String>()),
        );
    };
    match version.trim().parse::<u32>() {
        Ok(version) if version == VERSION => Ok(()),
        Ok(version) => {
            error(1, format!("the trace is of format {version}, this kvweft reads up to {VERSION}: use a newer one"))
        }
        Err(_) => error(1, format!("expected a number behind `kvweft-trace`, found `{version}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "kvweft-trace 1
scenario  s  digest 0011223344556677  drops a@b c@d
violates  reads-see-own-content
because   expects A
1  client   submit r1 [A]  -> t1
2  forward  s1 read kv layer 0  -> finds -  <- violation
end  2 steps
";

    #[test]
    fn a_trace_is_written_as_it_is_read() {
        let trace = TraceFile::parse(TRACE).unwrap();
        assert_eq!(trace.drops, ["a@b", "c@d"]);
        assert_eq!(trace.steps[1].mark, "violation");
        assert_eq!(trace.to_string(), TRACE);
    }

    #[test]
    fn bad_traces_name_the_line_and_what_was_expected() {
        let cases = [
            ("", "line 1: expected `kvweft-trace 1`, the file is empty"),
            ("kvweft-trace 9", "line 1: the trace is of format 9, this kvweft reads up to 1: use a newer one"),
            ("hello", "line 1: expected `kvweft-trace 1`, found `hello`"),
            ("kvweft-trace 1\n", "line 1: expected a line `scenario NAME  digest HEX`, found none"),
            ("kvweft-trace 1\nscenario s\nviolates p\n2  client  x", "line 4: expected step 1, found `2`"),
            (
                "kvweft-trace 1\nscenario s\nviolates p\n1  client  x",
                "line 4: expected a last line `end  N steps`: the trace is cut short",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(TraceFile::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
