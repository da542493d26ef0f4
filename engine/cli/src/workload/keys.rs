//! What a workload may say: bounds, and values that are written in more than one way.

use std::ops::RangeInclusive;

use kvweft_check::scenario::Dtype;

use super::{Layers, Pool};

pub(crate) const SESSIONS: RangeInclusive<u64> = 1..=4096;
pub(crate) const ROUNDS: RangeInclusive<u64> = 1..=1000;
pub(crate) const CHUNK_PAGES: RangeInclusive<u64> = 0..=1_000_000;
/// The integers of TOML end there.
pub(crate) const SEED: RangeInclusive<u64> = 0..=i64::MAX as u64;
pub(crate) const HEADS: RangeInclusive<u64> = 1..=128;
pub(crate) const SYSTEM_TOKENS: RangeInclusive<u64> = 0..=1_000_000;
pub(crate) const FIRST_TOKENS: RangeInclusive<u64> = 1..=1_000_000;
pub(crate) const ROUND_TOKENS: RangeInclusive<u64> = 1..=1_000_000;
pub(crate) const PROMPT_TOKEN_US: RangeInclusive<u64> = 0..=1_000_000;
pub(crate) const TIMEOUT_MS: RangeInclusive<u64> = 1..=86_400_000;
pub(crate) const DEADLINE_MS: RangeInclusive<u64> = 1..=86_400_000;
const FORMAT: RangeInclusive<u64> = 1..=1;
const PAGES: RangeInclusive<u64> = 0..=10_000_000;
const PERCENT: RangeInclusive<u64> = 0..=1000;
const LAYERS: RangeInclusive<u64> = 1..=64;

/// The type of a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Integer(RangeInclusive<u64>),
    Flag,
    Title,
    Model,
    Layers,
    Dtype,
    Rules,
    Pages,
}

/// Every key of a workload file.
pub(super) const KEYS: &[(&str, Kind)] = &[
    ("format", Kind::Integer(FORMAT)),
    ("title", Kind::Title),
    ("sessions", Kind::Integer(SESSIONS)),
    ("rounds", Kind::Integer(ROUNDS)),
    ("model", Kind::Model),
    ("layers", Kind::Layers),
    ("index_k", Kind::Dtype),
    ("cache", Kind::Flag),
    ("split", Kind::Flag),
    ("drop", Kind::Rules),
    ("device_pages", Kind::Pages),
    ("host_pages", Kind::Pages),
    ("decode_pages", Kind::Pages),
    ("chunk_pages", Kind::Integer(CHUNK_PAGES)),
    ("seed", Kind::Integer(SEED)),
    ("heads", Kind::Integer(HEADS)),
    ("system_tokens", Kind::Integer(SYSTEM_TOKENS)),
    ("first_tokens", Kind::Integer(FIRST_TOKENS)),
    ("round_tokens", Kind::Integer(ROUND_TOKENS)),
    ("prompt_token_us", Kind::Integer(PROMPT_TOKEN_US)),
    ("timeout_ms", Kind::Integer(TIMEOUT_MS)),
    ("deadline_ms", Kind::Integer(DEADLINE_MS)),
];

impl Kind {
    /// What the key asks for, in words.
    pub(super) fn wanted(&self) -> String {
        let range = |range: &RangeInclusive<u64>| format!("an integer from {} to {}", range.start(), range.end());
        match self {
            Kind::Integer(bounds) if bounds.start() == bounds.end() => format!("the integer {}", bounds.start()),
            Kind::Integer(bounds) => range(bounds),
            Kind::Flag => "`true` or `false`".to_owned(),
            Kind::Title => "a text on one line, 1 to 120 characters".to_owned(),
            Kind::Model => "a text: a built-in model, or the path of a model file".to_owned(),
            Kind::Layers => format!("{} or a list of 1 to 64 layer kinds", range(&LAYERS)),
            Kind::Dtype => format!("one of {}", Dtype::NAMES.join(", ")),
            Kind::Rules => "a list of rules, `rule` or `rule@site`".to_owned(),
            Kind::Pages => {
                format!("{}, or a share from \"{}%\" to \"{}%\"", range(&PAGES), PERCENT.start(), PERCENT.end())
            }
        }
    }

    /// A value that would be right.
    pub(super) fn example(&self) -> String {
        match self {
            Kind::Integer(bounds) => bounds.start().to_string(),
            Kind::Flag => "true".to_owned(),
            Kind::Title => "\"..\"".to_owned(),
            Kind::Model => "\"deepseek-v3.2\"".to_owned(),
            Kind::Layers => "2".to_owned(),
            Kind::Dtype => "\"fp8\"".to_owned(),
            Kind::Rules => "[\"store-waits-forward\"]".to_owned(),
            Kind::Pages => "\"40%\"".to_owned(),
        }
    }
}

/// A number of layers.
pub(super) fn layer_count(count: u64) -> Option<Layers> {
    LAYERS.contains(&count).then_some(Layers::First(count as usize))
}

/// Some layer kinds.
pub(super) fn layer_kinds(kinds: Vec<String>) -> Option<Layers> {
    let fits = LAYERS.contains(&(kinds.len() as u64)) && kinds.iter().all(|kind| !kind.is_empty());
    fits.then_some(Layers::Kinds(kinds))
}

/// A number of pages.
pub(super) fn page_count(pages: u64) -> Option<Pool> {
    PAGES.contains(&pages).then_some(Pool::Pages(pages as u32))
}

/// A share such as `40%`.
pub(super) fn share(text: &str) -> Option<Pool> {
    let percent: u64 = text.strip_suffix('%')?.parse().ok()?;
    PERCENT.contains(&percent).then_some(Pool::Percent(percent as u32))
}

/// `--layers`.
pub(crate) fn layers(text: &str) -> Result<Layers, String> {
    let found = match text.parse() {
        Ok(count) => layer_count(count),
        Err(_) => layer_kinds(text.split(',').map(|kind| kind.trim().to_owned()).collect()),
    };
    found.ok_or_else(|| "expected a number from 1 to 64, or a list of layer kinds as in window,c4".to_owned())
}

/// `--device-pages` and its like.
pub(crate) fn pool(text: &str) -> Result<Pool, String> {
    let found = text.parse().ok().and_then(page_count).or_else(|| share(text));
    found.ok_or_else(|| "expected a number of pages, as in 200, or a share, as in 40%".to_owned())
}
