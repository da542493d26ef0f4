//! The arguments of `kvweft import` and `kvweft redact`.

use std::path::PathBuf;

use clap::ValueEnum;

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The log: JSON, an object or an array a line.
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    /// What the log is; docs/import.md says what is read of it.
    #[arg(long, value_name = "FORM")]
    pub(crate) format: LogForm,
    /// Call blocks by their hashes under this secret text, so that logs imported apart share what they share. Without it blocks
    /// are numbered, and nobody can say what other log has them.
    #[arg(long, value_name = "TEXT")]
    pub(crate) salt: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// Request traces of Dynamo, with sequence hashes.
    DynamoRequestTrace,
    /// Requests of an OpenAI-compatible endpoint, with their messages.
    OpenaiJsonl,
    /// KV events of vLLM.
    VllmEvents,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Redact {
    /// The event log of a run (events.jsonl), or a trace.
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
}
