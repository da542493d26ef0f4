//! Bad input: a short message, and exit code 2.

use std::path::{Path, PathBuf};

use kvweft_check::scenario::{Errors, nearest};
use kvweft_core::{RULES, UnknownRule};

/// Why a command cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Scenario(String),
    #[error("error: no built-in scenario and no file is called `{name}`{}\nhelp: `kvweft list scenarios` names the built-in ones", meant(.nearest))]
    NoScenario { name: String, nearest: Option<String> },
    #[error("error: no scenario has the tag `{0}`\nhelp: `kvweft list scenarios` shows the tags")]
    NoTag(String),
    #[error("error: --drop {text}: {why}")]
    Rule { text: String, why: String },
    #[error("error: --only {name}: there is no such property{}\nhelp: `kvweft list properties` names them", meant(.nearest))]
    Property { name: String, nearest: Option<String> },
    #[error("error: {}: {why}", path.display())]
    File { path: PathBuf, why: String },
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

impl Failure {
    /// A file that cannot be read or written.
    pub(crate) fn io(path: &Path, doing: &str, error: &std::io::Error) -> Failure {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
            std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
            _ => error.to_string(),
        };
        Failure::File { path: path.to_owned(), why: format!("cannot {doing}: {why}") }
    }

    /// A text that names no rule that can be dropped.
    pub(crate) fn rule(text: String, why: &UnknownRule) -> Failure {
        let why = match why {
            UnknownRule::Rule => {
                let name = text.split('@').next().unwrap_or_default();
                let names = RULES.iter().map(|info| info.name);
                let near = nearest(name, names).map(str::to_owned);
                format!("there is no such rule{}\nhelp: `kvweft list rules` names them", meant(&near))
            }
            UnknownRule::Site(info) => {
                let sites: Vec<&str> = info.sites.iter().map(|site| site.name()).collect();
                format!("{} has no such site; it has {}", info.name, sites.join(", "))
            }
            UnknownRule::NotModelled(info) => format!("{} is not modelled yet", info.name),
        };
        Failure::Rule { text, why }
    }
}
