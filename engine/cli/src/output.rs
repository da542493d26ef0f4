//! Where results and notes go: the two streams, and files that the user names.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

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

/// Writes a result under a name that the user gave; `what` is it in a word or two, for the error.
///
/// A regular file is replaced as a whole or not at all, where a symlink leads to. Anything else that stands there, such as a
/// pipe or a device, is written through.
///
/// # Errors
/// If it cannot be written; nothing new is left then.
pub(crate) fn to_file(path: &Path, what: &str, text: &str) -> Result<(), Failure> {
    let written = match replaced(path) {
        Ok(Some(target)) => replace(&target, text),
        Ok(None) => std::fs::write(path, text),
        Err(error) => Err(error),
    };
    written.map_err(|error| Failure::io(path, &format!("write {what}"), &error))
}

/// Makes a folder where none is, and keeps every other run of this program out of it until what is returned is dropped.
///
/// # Errors
/// If it cannot be made, or another run has it.
pub(crate) fn claim_folder(folder: &Path) -> Result<Option<File>, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the folder", &error))?;
    // Where folders cannot be opened or locked, nobody is kept out.
    let Ok(handle) = File::open(folder) else { return Ok(None) };
    match handle.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let why = "another run of kvweft writes into this folder\nhelp: wait for it, or name another folder";
            Err(Failure::File { path: folder.to_owned(), why: why.to_owned() })
        }
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(handle)),
    }
}

/// The file that a new one takes the place of, if it is one that can be replaced.
fn replaced(path: &Path) -> io::Result<Option<PathBuf>> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) => found.is_file().then(|| path.canonicalize()).transpose(),
        // A symlink to nothing makes what it leads to.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok((!path.is_symlink()).then(|| path.to_owned())),
        Err(error) => Err(error),
    }
}

/// Writes beside it, by the process's number so that no two mix, and renames.
fn replace(target: &Path, text: &str) -> io::Result<()> {
    let mut partial = target.to_owned().into_os_string();
    partial.push(format!(".{}.partial", std::process::id()));
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, target));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&partial);
    })
}
