//! The two streams, for results and for notes.

use std::io::{ErrorKind, Write};

use crate::failure::Failure;

/// Writes a part of a result to standard output.
///
/// # Errors
/// [`Failure::Closed`] if nobody reads any more, else why it could not be written.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Output(error.to_string()),
    })
}

/// Writes a line for people to standard error. Where that fails there is nobody left to tell.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
