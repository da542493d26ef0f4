//! A text as a TOML tree.

use toml::Spanned;
use toml::de::DeTable;

use super::error::{Code, Error, SourceFile};
use super::words::shortened;

/// Scenario and model files are small: anything larger is another file.
pub(super) const FILE_BYTES_MAX: usize = 1 << 20;

/// Parses the text as TOML.
///
/// # Errors
/// All syntax errors; also a text that is empty or too large.
pub(super) fn document(source: &SourceFile) -> Result<Spanned<DeTable<'_>>, Vec<Error>> {
    let text = source.text();
    if text.len() > FILE_BYTES_MAX {
        let error = Error::whole(source.name(), Code::TooLarge, "the file is too large to be a scenario or model file")
            .expected(format!("at most {FILE_BYTES_MAX} bytes"))
            .found(format!("{} bytes", text.len()))
            .help("check the path");
        return Err(vec![error]);
    }
    let (tree, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| syntax_error(source, error)).collect());
    }
    if tree.get_ref().is_empty() {
        let error = Error::at(source, 0..0, Code::Empty, "the file has no content")
            .expected("`format = 1` and the keys of docs/scenarios.md")
            .found("nothing but white space and comments")
            .help("start from a copy of a built-in scenario or model file");
        return Err(vec![error]);
    }
    Ok(tree)
}

fn syntax_error(source: &SourceFile, error: &toml::de::Error) -> Error {
    let (what, expected) = match error.message().split_once(", expected ") {
        Some((what, expected)) => (what, expected),
        None => (error.message(), ""),
    };
    let (code, help) = if what == "duplicate key" {
        (Code::Duplicate, "keep one of them")
    } else {
        (Code::Syntax, "check quotes, brackets and `=` here; the format is TOML 1.0")
    };
    let span = error.span().unwrap_or(0..0);
    let found = source.text().get(span.clone()).unwrap_or("");
    let found = if found.is_empty() { String::new() } else { format!("`{}`", shortened(found)) };
    Error::at(source, span, code, what).expected(expected).found(found).help(help)
}
