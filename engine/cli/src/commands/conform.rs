//! `kvweft conform`.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use kvweft_shell::conform::{Checked, NotConforming, conform};
use kvweft_trace::event::{Event, Line, SCHEMA};

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::{json, output};

/// The log is read as a whole.
const LOG_BYTES_MAX: u64 = 4 << 30;

/// Runs the command.
pub(crate) fn run(args: &args::Conform) -> Result<ExitCode, Failure> {
    let text = read(&args.log)?;
    let found = conform(&text);
    // What is wrong with the first line is wrong with all of it: nothing was checked.
    if let Err(wrong) = &found
        && (wrong.line == 1 || !begins_a_log(&text))
    {
        return Err(Failure::Trace { path: args.log.clone(), line: wrong.line, message: no_log(wrong) });
    }
    match args.format {
        Format::Text => output::result(&words(&args.log, &found))?,
        Format::Json => output::result(&json::conform(&args.log, &found))?,
    }
    Ok(match found {
        Ok(Checked { cut_off: false, .. }) => ExitCode::SUCCESS,
        Ok(Checked { cut_off: true, .. }) => ExitCode::from(3),
        Err(_) => ExitCode::from(1),
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::io(path, "read the event log", &error);
    if path.is_dir() {
        let why = "a folder stands where an event log was expected\nhelp: name the events.jsonl in it".to_owned();
        return Err(Failure::File { path: path.to_owned(), why });
    }
    let too_large = || Failure::File {
        path: path.to_owned(),
        why: format!(
            "cannot read the event log: it is larger than {} GiB\nhelp: let the run be shorter",
            LOG_BYTES_MAX >> 30
        ),
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > LOG_BYTES_MAX {
        return Err(too_large());
    }
    let mut text = String::new();
    let read = file.take(LOG_BYTES_MAX + 1).read_to_string(&mut text);
    if text.len() as u64 > LOG_BYTES_MAX {
        return Err(too_large());
    }
    read.map_err(failed)?;
    Ok(text)
}

/// Whether the first line is the header of a log that this version reads.
fn begins_a_log(text: &str) -> bool {
    let first = text.lines().find(|line| !line.is_empty()).map(Line::parse);
    matches!(first, Some(Ok(Line { event: Event::Run(header), .. })) if header.schema == SCHEMA)
}

fn no_log(wrong: &NotConforming) -> String {
    let shown = if wrong.what.is_empty() { String::new() } else { format!("\nfound: {}", wrong.what) };
    format!("no event log: {}{shown}", wrong.why)
}

fn words(path: &Path, found: &Result<Checked, NotConforming>) -> String {
    match found {
        Err(wrong) => format!("{}:{}: not allowed: {}\n  {}\n", path.display(), wrong.line, wrong.why, wrong.what),
        Ok(checked) => {
            let Checked { run, lines, inputs, operations, cells, cut_off } = checked;
            let counts =
                format!("run {run}, {lines} lines, {inputs} inputs, {operations} operations, {cells} cells compared");
            match cut_off {
                false => format!("conforms: {counts}\n"),
                true => format!("cut off, and conforms as far as it goes: {counts}\n"),
            }
        }
    }
}
