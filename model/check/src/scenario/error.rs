//! What is wrong with a file: where, what was expected, what came, what to do.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// Source lines are shown up to this many characters.
const SHOWN_CHARS_MAX: usize = 160;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// The kind of an [`Error`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $variant),+ }

        impl Code {
            /// The stable name, for instance `unknown-key`.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $text),+ }
            }
        }
    };
}

codes! {
    /// Nothing but white space and comments.
    Empty = "empty",
    /// The file or folder cannot be read.
    Unreadable = "unreadable",
    /// The bytes are not UTF-8.
    NotUtf8 = "not-utf8",
    /// Larger than any file of its kind should be.
    TooLarge = "too-large",
    /// Not TOML.
    Syntax = "syntax",
    /// Written for a later version of this program.
    NewerFormat = "newer-format",
    /// A key that the format does not have.
    UnknownKey = "unknown-key",
    /// A required key is absent.
    MissingKey = "missing-key",
    /// A value of the wrong type.
    WrongType = "wrong-type",
    /// A value that does not fit its bounds or its form.
    OutOfBounds = "out-of-bounds",
    /// A name that refers to nothing.
    UnknownName = "unknown-name",
    /// The same thing twice.
    Duplicate = "duplicate",
    /// Two keys that cannot both hold.
    Conflict = "conflict",
    /// Requests that wait for each other.
    Cycle = "cycle",
    /// A request that can never fit its pool.
    TooSmall = "too-small",
    /// A line of a request log that is not what the log's format says.
    BadRow = "bad-row",
}

/// A text and the name it is shown under.
#[derive(Clone, Debug)]
pub struct SourceFile {
    name: Arc<str>,
    text: Arc<str>,
}

impl SourceFile {
    /// A text under the name that diagnostics show.
    pub fn new(name: &str, text: &str) -> SourceFile {
        SourceFile { name: name.into(), text: text.into() }
    }

    /// The name that diagnostics show.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of the byte `at`, both from 1; columns count characters.
    fn position(&self, at: usize) -> (u32, u32) {
        let before = &self.text[..self.floor(at)];
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[start..].chars().filter(|c| *c != '\u{feff}').count() + 1;
        (line as u32, column as u32)
    }

    /// The line around the byte `at`, without its end.
    fn line(&self, at: usize) -> &str {
        let at = self.floor(at);
        let start = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let end = self.text[at..].find('\n').map_or(self.text.len(), |len| at + len);
        self.text[start..end].trim_end_matches('\r').trim_start_matches('\u{feff}')
    }

    /// The greatest character boundary that is not after `at`.
    fn floor(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        (0..=at).rev().find(|i| self.text.is_char_boundary(*i)).unwrap_or(0)
    }
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug)]
pub struct Error {
    /// The kind.
    pub code: Code,
    /// The file, as it was named to the loader.
    pub file: String,
    /// The line, from 1; 0 when the error is about the file as a whole.
    pub line: u32,
    /// The column in characters, from 1; 0 when the error is about the file as a whole.
    pub column: u32,
    /// Bytes of the text that are to blame.
    pub span: Range<usize>,
    /// The line that is to blame.
    pub source_line: String,
    /// What is wrong, in one line.
    pub what: String,
    /// What was expected; empty when `what` says it.
    pub expected: String,
    /// What came instead; empty when `what` says it.
    pub found: String,
    /// What to do.
    pub help: String,
    source: Option<NamedSource<Arc<str>>>,
}

impl Error {
    /// An error about the bytes `span` of a text.
    pub fn at(file: &SourceFile, span: Range<usize>, code: Code, what: impl Into<String>) -> Error {
        let span = file.floor(span.start)..file.floor(span.end.max(span.start));
        let (line, column) = file.position(span.start);
        Error {
            code,
            file: file.name().to_owned(),
            line,
            column,
            source_line: file.line(span.start).to_owned(),
            span,
            what: what.into(),
            expected: String::new(),
            found: String::new(),
            help: String::new(),
            source: Some(NamedSource::new(file.name(), Arc::clone(&file.text))),
        }
    }

    /// An error about a file or folder as a whole.
    pub fn whole(file: &str, code: Code, what: impl Into<String>) -> Error {
        Error {
            code,
            file: file.to_owned(),
            line: 0,
            column: 0,
            span: 0..0,
            source_line: String::new(),
            what: what.into(),
            expected: String::new(),
            found: String::new(),
            help: String::new(),
            source: None,
        }
    }

    /// States what was expected.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Error {
        self.expected = expected.into();
        self
    }

    /// States what came.
    #[must_use]
    pub fn found(mut self, found: impl Into<String>) -> Error {
        self.found = found.into();
        self
    }

    /// States what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = help.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match (self.expected.is_empty(), self.found.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => write!(f, ": expected {}", self.expected),
            (true, false) => write!(f, ": found {}", self.found),
            (false, false) => write!(f, ": expected {}, found {}", self.expected, self.found),
        }
    }
}

impl std::error::Error for Error {}

impl Diagnostic for Error {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(format!("kvweft::{}", self.code.name())))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.help.is_empty()).then(|| Box::new(&self.help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        let label = if self.found.is_empty() { "here".to_owned() } else { format!("found {}", self.found) };
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some(label), self.span.clone()))))
    }
}

/// Everything that is wrong with the files of one call; never empty.
#[derive(Clone, Debug)]
pub struct Errors {
    errors: Vec<Error>,
}

impl Errors {
    /// The errors, ordered by file, position and kind. `None` when there is none.
    pub fn new(mut errors: Vec<Error>) -> Option<Errors> {
        errors.sort_by(|a, b| (&a.file, a.span.start, a.code, &a.what).cmp(&(&b.file, b.span.start, b.code, &b.what)));
        (!errors.is_empty()).then_some(Errors { errors })
    }

    /// The errors in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.errors.iter()
    }

    /// The errors as a list.
    pub fn into_vec(self) -> Vec<Error> {
        self.errors
    }

    /// All errors as [`render_plain`] shows them, with an empty line between.
    pub fn render_plain(&self) -> String {
        self.errors.iter().map(render_plain).collect::<Vec<_>>().join("\n")
    }
}

impl From<Error> for Errors {
    fn from(error: Error) -> Errors {
        Errors { errors: vec![error] }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.as_slice() {
            [only] => only.fmt(f),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len()),
            [] => f.write_str("no error"),
        }
    }
}

impl std::error::Error for Errors {}

impl Diagnostic for Errors {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.errors.iter().map(|error| error as &dyn Diagnostic)))
    }
}

/// The error as stable plain text: position and cause, the line with a caret, expected and found, help.
pub fn render_plain(error: &Error) -> String {
    use fmt::Write as _;
    let mut out = String::new();
    if error.line == 0 {
        let _ = writeln!(out, "{}: error: {}", error.file, error.what);
    } else {
        let _ = writeln!(out, "{}:{}:{}: error: {}", error.file, error.line, error.column, error.what);
        let number = error.line.to_string();
        let (shown, caret) = shown_line(error);
        let _ = writeln!(out, " {number} | {shown}");
        let _ = writeln!(out, " {} | {caret}", " ".repeat(number.len()));
    }
    for (label, text) in [("expected", &error.expected), ("found", &error.found), ("help", &error.help)] {
        if !text.is_empty() {
            let _ = writeln!(out, "{label}: {text}");
        }
    }
    out
}

/// The part of the source line around the column, and the line of carets below it.
fn shown_line(error: &Error) -> (String, String) {
    let column = error.column as usize - 1;
    let skipped = if column >= SHOWN_CHARS_MAX { column - SHOWN_CHARS_MAX / 2 } else { 0 };
    let printable = |c: char| {
        if c.is_control() && c != '\t' { '\u{fffd}' } else { c }
    };
    let shown: String = error.source_line.chars().skip(skipped).take(SHOWN_CHARS_MAX).map(printable).collect();
    let before = shown.chars().take(column - skipped);
    let mut caret: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    // A span may go on over several lines or beyond what is shown: the carets end with the line.
    let rest = shown.chars().count().saturating_sub(column - skipped);
    let marked = match &error.source {
        Some(source) => source.inner().get(error.span.clone()).map_or(0, |text| text.chars().count()),
        None => 0,
    };
    caret.push_str(&"^".repeat(marked.min(rest).max(1)));
    (shown, caret)
}
