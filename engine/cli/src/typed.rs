//! TOML files of a fixed form: a mistake is shown in its line, with the nearest key.

use std::ops::Range;

use kvweft_check::scenario::{Code, Error, SourceFile, nearest};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Reads a value out of the text of a file; `page` lists its keys.
///
/// # Errors
/// The first thing that is wrong with the text.
pub(crate) fn read<T: DeserializeOwned>(source: &SourceFile, page: &str) -> Result<T, Failure> {
    toml::from_str(source.text()).map_err(|error| mistake(source, &error, page).into())
}

/// The mistake that `error` speaks of, in the words of this program.
fn mistake(source: &SourceFile, error: &toml::de::Error, page: &str) -> Error {
    let (what, expected) = error.message().split_once(", expected ").unwrap_or((error.message(), ""));
    let given = what.split('`').nth(1).unwrap_or_default();
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let (code, what) = match what {
        _ if what.starts_with("unknown field") => (Code::UnknownKey, format!("unknown key `{given}`")),
        _ if what.starts_with("missing field") => (Code::MissingKey, format!("`{given}` is missing")),
        _ if what.starts_with("unknown variant") => (Code::UnknownName, format!("there is no `{given}`")),
        _ if what.starts_with("invalid type") => (Code::WrongType, what.to_owned()),
        _ if what.starts_with("invalid value") || what.starts_with("invalid length") => {
            (Code::OutOfBounds, what.to_owned())
        }
        "duplicate key" => (Code::Duplicate, what.to_owned()),
        _ => (Code::Syntax, what.to_owned()),
    };
    let help = match (nearest(given, known.iter().copied()), code) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, Code::Syntax) => "check quotes, brackets and `=` here; the format is TOML 1.0".to_owned(),
        (None, Code::Duplicate) => "keep one of them".to_owned(),
        (None, _) => format!("{page} lists every key"),
    };
    Error::at(source, error.span().unwrap_or(0..0), code, what).expected(expected).help(help)
}

/// A value that does not fit, in its line.
pub(crate) fn out_of_bounds(source: &SourceFile, span: Range<usize>, what: &str, expected: &str) -> Failure {
    let found = source.text().get(span.clone()).unwrap_or_default().lines().next().unwrap_or_default().to_owned();
    Error::at(source, span, Code::OutOfBounds, what)
        .expected(expected)
        .found(found)
        .help("choose a value within the bounds")
        .into()
}
