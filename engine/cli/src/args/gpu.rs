//! The arguments that say how GPUs copy.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CopyBy {
    /// For each run of contiguous pages who was faster when that was measured, at the start.
    Auto,
    /// The ring kernel, page by page.
    Ring,
    /// The copy engine, run by run.
    Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// Directly, where both address each other's memory, and else through the host.
    Auto,
    /// Through pinned memory of the host.
    ThroughHost,
}
