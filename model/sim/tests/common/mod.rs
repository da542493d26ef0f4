//! Small machines and workloads.

use kvweft_core::{Dtype, Geometry, RuleSite};
use kvweft_sim::workload::Synthetic;
use kvweft_sim::{Arrival, Profile, Report, Settings, Workload, simulate};

pub(crate) fn profile() -> Profile {
    toml::from_str(include_str!("../../../../scenarios/profiles/h200x8.toml")).expect("a built-in profile is one")
}

/// Eight layers, and index keys in fp8.
pub(crate) fn settings(split: bool) -> Settings {
    let mut settings = Settings::new(profile(), Geometry::uniform(8, 64, Some(Dtype::Fp8)), 200, 4_000);
    settings.split = split;
    settings.chunk_pages = 16;
    settings.arrival = Arrival::Closed(12);
    settings
}

pub(crate) fn bf16() -> Geometry {
    Geometry::uniform(8, 64, Some(Dtype::Bf16))
}

/// Sessions that outgrow the device together, and not the host tier.
pub(crate) fn agents() -> Workload {
    AGENTS.workload()
}

pub(crate) fn small(sessions: u32) -> Workload {
    Synthetic { sessions, ..AGENTS }.workload()
}

pub(crate) const AGENTS: Synthetic = Synthetic {
    sessions: 30,
    rounds: 8,
    system_tokens: 512,
    first_tokens: 1_000,
    round_tokens: 200,
    answer_tokens: 70,
    think_ms: 2_000,
    arrival_ms: 100,
    seed: 3,
    block_tokens: 64,
};

pub(crate) fn when_dropping(at: RuleSite, settings: &Settings) -> Report {
    let mut settings = settings.clone();
    settings.rules = settings.rules.without(at);
    simulate(&agents(), &settings).expect("it can begin")
}
