//! What a trace is made of: contents of cells, local names, and the text of a trace file.
#![forbid(unsafe_code)]

mod content;
#[cfg(feature = "event-log")]
pub mod event;
mod file;
mod names;

pub use content::Content;
pub use file::{ParseError, StepLine, TraceFile, VERSION};
pub use names::{LocalNames, PageSet};
