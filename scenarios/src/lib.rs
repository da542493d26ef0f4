//! The built-in scenarios, model geometries, workloads and heads of request logs of kvweft, embedded so that the binary
//! needs no checkout.
//!
//! This crate holds texts and parses none of them: `kvweft-check` does that. The lists are kept by hand; a test compares
//! them with the folders.

/// One embedded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// The name without a folder; all but data also without `.toml`.
    pub name: &'static str,
    /// The whole text.
    pub text: &'static str,
}

/// A sorted list of embedded files: `files!("folder/", "suffix"; "name", ..)`, the folder relative to the crate.
macro_rules! files {
    ($folder:literal, $suffix:literal; $($name:literal),* $(,)?) => {
        &[$(File { name: $name, text: include_str!(concat!("../", $folder, $name, $suffix)) }),*]
    };
}

/// `*.toml`: the built-in suite, sorted by name.
pub const SCENARIOS: &[File] = files!("", ".toml";
    "abort-at-prefill",
    "abort-before-compute",
    "abort-between-chunks",
    "abort-under-handover",
    "case-all-causes",
    "case-as-found",
    "case-copy-residual",
    "case-everything-on",
    "case-host-layout-fixed",
    "case-layer-wait-bf16-decode",
    "case-layer-wait-bf16-prefill",
    "case-layer-wait-fp8-decode",
    "case-layer-wait-fp8-prefill",
    "case-restart-after-wedge",
    "case-send-residual",
    "completion-at-deadline",
    "contended-cells",
    "contended-layers",
    "contended-queue",
    "contended-reload",
    "contended-sessions",
    "dense-handover",
    "duplicate-report",
    "early-hit-on-loading",
    "event-slot-reuse",
    "handover",
    "handover-in-chunks",
    "handover-of-a-loading-prefix",
    "handover-of-a-shared-prompt",
    "handover-queue",
    "head-of-line",
    "hold-and-wait",
    "late-abort",
    "late-failure-after-success",
    "layouts-differ",
    "lost-abort",
    "lost-message",
    "metadata-row-reuse",
    "offload-before-forward",
    "offload-outlives-request",
    "part-failure",
    "real-agent-session",
    "real-conversation",
    "real-synthetic",
    "reload-before-decode-read",
    "reload-before-prefill-read",
    "reload-source-evicted",
    "reload-under-forward",
    "reset-of-decode",
    "reset-under-copies",
    "shared-prompt-at-once",
    "slow-handover",
    "slow-queue",
    "split-under-copies",
    "split-under-lease",
    "status-of-former-life",
    "step-of-former-life",
    "write-back",
);

/// `models/*.toml`: model geometries, sorted by name.
pub const MODELS: &[File] = files!("models/", ".toml";
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "dense",
    "glm-5",
);

/// `data/*.jsonl`: heads of public request logs, sorted by name. `data/README.md` says where they come from.
pub const DATA: &[File] = files!("data/", "";
    "agentic-sessions-head.jsonl",
    "mooncake-conversation-head.jsonl",
    "mooncake-synthetic-head.jsonl",
);

/// `profiles/*.toml`: what things cost in `kvweft simulate`, sorted by name.
pub const PROFILES: &[File] = files!("profiles/", ".toml";
    "h200x8",
    "rtxpro6000x4",
);

/// `matrices/*.toml`: what `kvweft compare` puts side by side, sorted by name.
pub const MATRICES: &[File] = files!("matrices/", ".toml";
    "case",
    "handover",
);

/// `workloads/*.toml`: what `kvweft run` plays, sorted by name.
pub const WORKLOADS: &[File] = files!("workloads/", ".toml";
    "offload-and-reload",
);

/// The scenario of that name.
pub fn scenario(name: &str) -> Option<&'static str> {
    find(SCENARIOS, name)
}

/// The model file of that name.
pub fn model(name: &str) -> Option<&'static str> {
    find(MODELS, name)
}

/// The data file of that name.
pub fn data(name: &str) -> Option<&'static str> {
    find(DATA, name)
}

/// The workload of that name.
pub fn workload(name: &str) -> Option<&'static str> {
    find(WORKLOADS, name)
}

/// The matrix of that name.
pub fn matrix(name: &str) -> Option<&'static str> {
    find(MATRICES, name)
}

/// The profile of that name.
pub fn profile(name: &str) -> Option<&'static str> {
    find(PROFILES, name)
}

fn find(files: &[File], name: &str) -> Option<&'static str> {
    files.iter().find(|file| file.name == name).map(|file| file.text)
}
