//! `kvweft redact`: an event log without the hashes and checksums that were computed from somebody's text, and a trace without
//! somebody's names.

mod trace;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::ExitCode;

use kvweft_trace::event::{Event, Line, SCHEMA};

use crate::args;
use crate::failure::Failure;
use crate::output;

/// Digits of the hash of a block, and of a checksum.
const WIDTHS: [usize; 2] = [32, 16];

/// Runs the command.
pub(crate) fn run(args: &args::Redact) -> Result<ExitCode, Failure> {
    let path = &args.log;
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, "read the log", &error))?;
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("kvweft-trace") {
        output::result(&trace::redacted(path, &text)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let header: serde_json::Value = serde_json::from_str(first).unwrap_or_default();
    if header["event"] != "run" {
        let message =
            "it begins neither as an event log nor as a trace\nhelp: `kvweft run --out DIR` writes DIR/events.jsonl, `kvweft check --out DIR` \
             writes traces"
                .to_owned();
        return Err(Failure::Trace { path: path.clone(), line: 1, message });
    }
    let mut out = redacted(&understood(path, &text)?);
    for (name, value) in [("run", "redacted"), ("device", "redacted")] {
        let was = serde_json::json!({ name: header[name] }).to_string();
        let is = serde_json::json!({ name: value }).to_string();
        out = out.replace(was.trim_matches(['{', '}']), is.trim_matches(['{', '}']));
    }
    output::result(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The lines of a log, as this version writes them: what it does not know is not passed on. A last line that was cut short is left
/// out.
///
/// # Errors
/// Which line is none of this version.
fn understood(path: &Path, text: &str) -> Result<String, Failure> {
    let mut out = String::new();
    for (at, line) in text.lines().enumerate() {
        match Line::parse(line) {
            Ok(Line { event: Event::Run(header), .. }) if header.schema != SCHEMA => {
                let message = format!("expected a log of schema {SCHEMA}, got {}", header.schema);
                return Err(Failure::Trace { path: path.to_owned(), line: at + 1, message });
            }
            Ok(line) => out += &(line.to_json() + "\n"),
            Err(_) if !text.ends_with('\n') && at + 1 == text.lines().count() => {
                output::note(&format!("{}:{}: the last line is cut short, and left out", path.display(), at + 1));
            }
            Err(message) => return Err(Failure::Trace { path: path.to_owned(), line: at + 1, message }),
        }
    }
    Ok(out)
}

/// Each hash and each checksum becomes its rank among its kind: equal ones stay equal, and their order stays, so that the log
/// conforms if it did.
fn redacted(text: &str) -> String {
    let is_hash = |word: &str| WIDTHS.contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words: BTreeSet<&str> = text.split('"').filter(|word| is_hash(word)).collect();
    let mut ranks: HashMap<&str, usize> = HashMap::new();
    for width in WIDTHS {
        let of_width = words.iter().filter(|word| word.len() == width);
        ranks.extend(of_width.enumerate().map(|(rank, word)| (*word, rank)));
    }
    let pieces: Vec<String> = text
        .split('"')
        .map(|word| {
            ranks.get(word).map_or_else(|| word.to_owned(), |rank| format!("{rank:0width$x}", width = word.len()))
        })
        .collect();
    pieces.join("\"")
}
