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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFile {
    /// The scenario by name.
    pub scenario: String,
    /// The digest of the scenario's meaning; empty if it was not recorded.
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
        write!(f, "scenario  {}", self.scenario)?;
        if !self.digest.is_empty() {
            write!(f, "  digest {}", self.digest)?;
        }
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
    /// Reads a trace: the header, in its order, then the steps, then the `end` line. Empty lines and lines that begin
    /// with `#` may stand anywhere but first.
    ///
    /// # Errors
    /// With the line and what was expected there.
    pub fn parse(text: &str) -> Result<TraceFile, ParseError> {
        let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end()));
        let Some((_, first)) = lines.next() else {
            return error(1, format!("expected `kvweft-trace {VERSION}`, the file is empty"));
        };
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
        let mut next = Part::Scenario;
        for (number, line) in lines {
            last = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            next = match (next, word) {
                (Part::Scenario, "scenario") => trace.read_scenario(number, rest)?,
                (Part::Violates, "violates") => trace.read_violates(number, rest)?,
                (Part::Because, "because") => {
                    trace.detail = rest.trim().to_owned();
                    Part::Steps
                }
                (Part::Because | Part::Steps, "end") => trace.read_end(number, line)?,
                (Part::Because | Part::Steps, _) => trace.read_step(number, line)?,
                (Part::Scenario | Part::Violates | Part::Nothing, _) => {
                    return error(number, format!("expected {}, found `{}`", next.what(), head(line)));
                }
            };
        }
        match next {
            Part::Nothing => Ok(trace),
            Part::Scenario | Part::Violates => error(last, format!("expected {}, found the end", next.what())),
            Part::Because | Part::Steps => {
                let steps = trace.steps.len();
                error(last, format!("the trace is cut short: expected a last line `end  N steps`, found {steps} steps"))
            }
        }
    }

    fn read_scenario(&mut self, number: usize, line: &str) -> Result<Part, ParseError> {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { return error(number, "expected the scenario's name behind `scenario`") };
        self.scenario = name.to_owned();
        while let Some(word) = words.next() {
            match word {
                "digest" => self.digest = digest(number, words.next().unwrap_or_default())?,
                "drops" => self.drops.extend(words.by_ref().map(str::to_owned)),
                other => return error(number, format!("expected `digest` or `drops`, found `{}`", head(other))),
            }
        }
        Ok(Part::Violates)
    }

    fn read_violates(&mut self, number: usize, line: &str) -> Result<Part, ParseError> {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some(property), None) => {
                self.violates = property.to_owned();
                Ok(Part::Because)
            }
            _ => error(number, format!("expected the name of one property behind `violates`, found `{}`", head(line))),
        }
    }

    fn read_end(&self, number: usize, line: &str) -> Result<Part, ParseError> {
        let count = self.steps.len().to_string();
        if line.split_whitespace().eq(["end", &count, "steps"]) {
            return Ok(Part::Nothing);
        }
        error(number, format!("expected `end  {count} steps`, found `{}`: the trace was cut or changed", head(line)))
    }

    fn read_step(&mut self, number: usize, line: &str) -> Result<Part, ParseError> {
        let expected = self.steps.len() + 1;
        let line = line.trim_start();
        let shape = || error(number, format!("expected `{expected}  ACTOR  ACTION`, found `{}`", head(line)));
        let Some((count, rest)) = line.split_once("  ") else { return shape() };
        if count.parse::<usize>() != Ok(expected) {
            return error(number, format!("expected step {expected}, found `{}`", head(count)));
        }
        let Some((actor, rest)) = rest.trim_start().split_once("  ") else { return shape() };
        let (rest, mark) = rest.rsplit_once("  <- ").unwrap_or((rest, ""));
        let (action, result) = rest.split_once("  -> ").unwrap_or((rest, ""));
        if action.trim().is_empty() || action.trim_start().starts_with(['-', '<']) {
            return shape();
        }
        self.steps.push(StepLine {
            actor: actor.trim().to_owned(),
            action: action.trim().to_owned(),
            result: result.trim().to_owned(),
            mark: mark.trim().to_owned(),
        });
        Ok(Part::Steps)
    }
}

/// What a trace may go on with.
#[derive(Clone, Copy)]
enum Part {
    /// The line `scenario`.
    Scenario,
    /// The line `violates`.
    Violates,
    /// The line `because`, or a step, or the end.
    Because,
    /// A step, or the end.
    Steps,
    /// Nothing: the trace has ended.
    Nothing,
}

impl Part {
    fn what(self) -> &'static str {
        match self {
            Part::Scenario => "a line `scenario  NAME  digest HEX`",
            Part::Violates => "a line `violates  PROPERTY`",
            Part::Because | Part::Steps => "a step, or `end  N steps`",
            Part::Nothing => "nothing behind the `end` line",
        }
    }
}

/// The beginning of a text, short enough for a message.
fn head(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut head: String = text.trim().chars().take(CHARS_MAX).map(printable).collect();
    if text.trim().chars().nth(CHARS_MAX).is_some() {
        head.push_str("..");
    }
    head
}

fn digest(number: usize, word: &str) -> Result<String, ParseError> {
    if (1..=16).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(word.to_owned());
    }
    error(number, format!("expected up to 16 hexadecimal digits behind `digest`, found `{}`", head(word)))
}

fn check_version(first: &str) -> Result<(), ParseError> {
    let Some(version) = first.strip_prefix("kvweft-trace ") else {
        return error(1, format!("expected `kvweft-trace {VERSION}`, found `{}`", head(first)));
    };
    match version.trim().parse::<u32>() {
        Ok(VERSION) => Ok(()),
        Ok(version) if version > VERSION => {
            error(1, format!("the trace is of format {version}, this kvweft reads up to {VERSION}: use a newer one"))
        }
        _ => error(1, format!("expected `kvweft-trace {VERSION}`, found `{}`", head(first))),
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
    fn comments_and_empty_lines_may_stand_between_the_lines() {
        let spaced = TRACE.replace('\n', "\n\n# a word\n").replace("\n1  ", "\r\n  1  ");
        assert_eq!(TraceFile::parse(&spaced), TraceFile::parse(TRACE));
    }

    #[test]
    fn bad_traces_name_the_line_and_what_was_expected() {
        let cases = [
            ("", "line 1: expected `kvweft-trace 1`, the file is empty"),
            ("kvweft-trace 9", "line 1: the trace is of format 9, this kvweft reads up to 1: use a newer one"),
            ("kvweft-trace 0", "line 1: expected `kvweft-trace 1`, found `kvweft-trace 0`"),
            ("kvweft-trace one", "line 1: expected `kvweft-trace 1`, found `kvweft-trace one`"),
            ("hello", "line 1: expected `kvweft-trace 1`, found `hello`"),
            ("kvweft-trace 1\n", "line 1: expected a line `scenario  NAME  digest HEX`, found the end"),
            ("kvweft-trace 1\nviolates p", "line 2: expected a line `scenario  NAME  digest HEX`, found `violates p`"),
            ("kvweft-trace 1\nscenario", "line 2: expected the scenario's name behind `scenario`"),
            ("kvweft-trace 1\nscenario s dig", "line 2: expected `digest` or `drops`, found `dig`"),
            (
                "kvweft-trace 1\nscenario s digest xyz",
                "line 2: expected up to 16 hexadecimal digits behind `digest`, found `xyz`",
            ),
            ("kvweft-trace 1\nscenario s\n", "line 2: expected a line `violates  PROPERTY`, found the end"),
            (
                "kvweft-trace 1\nscenario s\nscenario s\n",
                "line 3: expected a line `violates  PROPERTY`, found `scenario s`",
            ),
            (
                "kvweft-trace 1\nscenario s\nviolates p q\n",
                "line 3: expected the name of one property behind `violates`, found `p q`",
            ),
            ("kvweft-trace 1\nscenario s\nviolates p\n2  client  x", "line 4: expected step 1, found `2`"),
            (
                "kvweft-trace 1\nscenario s\nviolates p\n1  client x",
                "line 4: expected `1  ACTOR  ACTION`, found `1  client x`",
            ),
            (
                "kvweft-trace 1\nscenario s\nviolates p\n1  client  x",
                "line 4: the trace is cut short: expected a last line `end  N steps`, found 1 steps",
            ),
            (
                "kvweft-trace 1\nscenario s\nviolates p\nend  0 ste",
                "line 4: expected `end  0 steps`, found `end  0 ste`: the trace was cut or changed",
            ),
            (
                "kvweft-trace 1\nscenario s\nviolates p\nend  0 steps\n1  client  x",
                "line 5: expected nothing behind the `end` line, found `1  client  x`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(TraceFile::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
