//! Bad input, and results that cannot be written: a short message, and exit code 2.

use std::path::{Path, PathBuf};

use kvweft_check::explore::CheckpointError;
use kvweft_check::scenario::{Error, Errors, nearest};
use kvweft_core::{RULES, UnknownRule};
use kvweft_world::PROPERTIES;

/// Why a command cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Standard output was closed by its reader: nothing is wrong, and nothing more is wanted.
    #[error("standard output is closed")]
    Closed,
    #[error("error: standard output: cannot write the result: {0}")]
    Output(String),
    #[error("error: standard input: cannot read the next command: {0}")]
    Input(String),
    #[error("{}", .0.trim_end())]
    Usage(String),
    #[error("{0}")]
    Scenario(String),
    #[error(
        "error: two scenarios are called `{0}`, and --out and --checkpoint name files after them\nhelp: rename one file, or check them one after the other"
    )]
    SameName(String),
    #[error("error: no built-in scenario and no file is called `{name}`{}\nhelp: `kvweft list scenarios` names the built-in ones", meant(.nearest))]
    NoScenario { name: String, nearest: Option<String> },
    #[error("error: no scenario has the tag `{0}`\nhelp: `kvweft list scenarios` shows the tags")]
    NoTag(String),
    #[error("error: --drop `{text}`: {why}")]
    Rule { text: String, why: String },
    #[error("error: --{option}: {why}")]
    Option { option: String, why: String },
    #[error("error: {0}")]
    Checkpoint(CheckpointError),
    #[error("error: {0}")]
    Run(String),
    #[error("error: {scenario}: {why}\nhelp: `--drop RULE` names the rules in place of the scenario's own")]
    Repair { scenario: String, why: kvweft_check::repair::NoRepair },
    #[error("error: --only: {0}")]
    Property(String),
    #[error("error: {}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("error: --on cuda: {0}")]
    Gpu(kvweft_cuda::CudaError),
    #[error("error: the threads cannot follow the trace: {0}")]
    Threads(String),
    #[error("{}:{line}: error: {message}", path.display())]
    Trace { path: PathBuf, line: usize, message: String },
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Failure {
        Failure::Scenario(errors.render_plain().trim_end().to_owned())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Errors::from(error).into()
    }
}

impl Failure {
    /// A file that cannot be read or written.
    pub(crate) fn io(path: &Path, doing: &str, error: &std::io::Error) -> Failure {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
            std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
            std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
                "a file stands in its place".to_owned()
            }
            std::io::ErrorKind::IsADirectory => "a folder stands in its place".to_owned(),
            _ => error.to_string(),
        };
        Failure::File { path: path.to_owned(), why: format!("cannot {doing}: {why}") }
    }
}

/// Why a text names no rule that can be dropped.
pub(crate) fn why_no_rule(text: &str, why: &UnknownRule) -> String {
    let (name, site) = text.split_once('@').unwrap_or((text, ""));
    match why {
        UnknownRule::Rule => {
            let near = nearest(name, RULES.iter().map(|info| info.name)).map(str::to_owned);
            format!("there is no such rule{}\nhelp: `kvweft list rules` names them", meant(&near))
        }
        UnknownRule::Site(info) => {
            let sites: Vec<&str> = info.sites.iter().map(|site| site.name()).collect();
            let near = nearest(site, sites.iter().copied()).map(str::to_owned);
            format!("`{}` has no such site{}\nexpected: one of {}", info.name, meant(&near), sites.join(", "))
        }
        UnknownRule::NotModelled(info) => format!(
            "`{}` is not modelled yet: no world can show it\nhelp: `kvweft list rules` shows which rules have sites",
            info.name
        ),
    }
}

/// That there is no property of that name.
pub(crate) fn no_property(name: &str) -> String {
    let near = nearest(name, PROPERTIES.iter().map(|info| info.name)).map(str::to_owned);
    format!("there is no property `{name}`{}\nhelp: `kvweft list properties` names them", meant(&near))
}
