//! Every key of scenario and model files: type, bounds and default, in one place.
//!
//! The reader takes bounds and defaults from here, and `docs/scenarios.md` is compared with it by a test.

use std::fmt;

use super::choices::{Component, Dtype, Grain, LogFormat, Roles, Scale, Side, Verdict, WritePolicy};

/// The type of a value, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer from `min` to `max`, both included.
    Integer {
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// A text on one line.
    Line {
        /// The greatest length in characters.
        chars_max: usize,
    },
    /// A text of several lines.
    Text {
        /// The greatest length in characters.
        chars_max: usize,
    },
    /// A name of ASCII letters, digits, `-`, `_` and `.`.
    Name {
        /// The greatest length in characters.
        chars_max: usize,
    },
    /// `true` or `false`.
    Flag,
    /// One of a few names.
    OneOf(&'static [&'static str]),
    /// A list.
    List {
        /// What its elements are.
        of: &'static str,
        /// The least number of elements.
        min: usize,
        /// The greatest number of elements.
        max: usize,
    },
    /// A table, or a list of tables, with keys of its own.
    Section,
    /// More than one type; the text says which.
    Either(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Integer { min, max } if min == max => write!(f, "the integer {min}"),
            Kind::Integer { min, max } => write!(f, "an integer from {min} to {max}"),
            Kind::Line { chars_max } => {
                write!(f, "a text on one line, 1 to {chars_max} characters")
            }
            Kind::Text { chars_max } => write!(f, "a text, at most {chars_max} characters"),
            Kind::Name { chars_max } => {
                write!(f, "a name of letters, digits, `-`, `_` and `.`, 1 to {chars_max} characters")
            }
            Kind::Flag => f.write_str("`true` or `false`"),
            Kind::OneOf(names) => {
                for (i, name) in names.iter().enumerate() {
                    let joint = match i {
                        0 => "",
                        _ if i + 1 == names.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{joint}\"{name}\"")?;
                }
                Ok(())
            }
            Kind::List { of, min, max } => write!(f, "a list of {min} to {max} {of}"),
            Kind::Section => f.write_str("a table"),
            Kind::Either(text) => f.write_str(text),
        }
    }
}

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// The key must be there.
    Required,
    /// An integer.
    Integer(u64),
    /// A flag.
    Flag(bool),
    /// A name.
    Name(&'static str),
    /// An empty list.
    Empty,
    /// Nothing, or what the text says.
    Absent(&'static str),
}

impl fmt::Display for Default {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Default::Required => f.write_str("required"),
            Default::Integer(value) => write!(f, "{value}"),
            Default::Flag(value) => write!(f, "{value}"),
            Default::Name(name) => write!(f, "\"{name}\""),
            Default::Empty => f.write_str("[]"),
            Default::Absent(text) => f.write_str(text),
        }
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The table it stands in; `scenario` and `model file` are the top levels.
    pub place: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// What holds without it.
    pub default: Default,
}

/// The keys of one table, in the order of the documentation.
pub fn keys_of(place: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.place == place)
}

/// The key of that name; the code that reads files asks for declared keys only.
pub(super) fn key(place: &str, name: &str) -> &'static Key {
    let found = keys_of(place).find(|key| key.name == name);
    found.unwrap_or_else(|| panic!("`{name}` is not declared in the schema of {place}"))
}

const fn required(place: &'static str, name: &'static str, kind: Kind) -> Key {
    Key { place, name, kind, default: Default::Required }
}

const fn optional(place: &'static str, name: &'static str, kind: Kind, default: Default) -> Key {
    Key { place, name, kind, default }
}

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

const fn list(of: &'static str, min: usize, max: usize) -> Kind {
    Kind::List { of, min, max }
}

const NAME: Kind = Kind::Name { chars_max: 64 };
const SHORT_NAME: Kind = Kind::Name { chars_max: 24 };
const LINE: Kind = Kind::Line { chars_max: 400 };

/// Every key of both file formats.
pub const KEYS: &[Key] = &[
    required("scenario", "format", integer(1, 1)),
    required("scenario", "title", Kind::Line { chars_max: 120 }),
    required("scenario", "source", LINE),
    optional("scenario", "story", Kind::Text { chars_max: 4000 }, Default::Absent("none")),
    optional("scenario", "tags", list("names", 0, 16), Default::Empty),
    required("scenario", "model", Kind::Section),
    required("scenario", "world", Kind::Section),
    optional("scenario", "request", Kind::Section, Default::Absent("this or `requests`")),
    optional("scenario", "requests", Kind::Section, Default::Absent("this or `request`")),
    optional("scenario", "faults", Kind::Section, Default::Absent("no fault")),
    optional("scenario", "drop", Kind::Section, Default::Absent("every rule is kept")),
    optional("scenario", "check", Kind::Section, Default::Absent("all properties")),
    optional("scenario", "expect", Kind::Section, Default::Absent("nothing is asserted")),
    required("model", "file", Kind::Line { chars_max: 200 }),
    required("model", "layers", list("layer kinds or layer indices", 1, 8)),
    optional("model", "index_k", Kind::OneOf(Dtype::NAMES), Default::Absent("the model file's")),
    optional("model", "decode_index_k", Kind::OneOf(Dtype::NAMES), Default::Absent("as `index_k`")),
    optional("world", "roles", Kind::OneOf(Roles::NAMES), Default::Name("together")),
    required("world", "device_pages", integer(1, 64)),
    optional("world", "host_pages", integer(0, 64), Default::Integer(0)),
    optional("world", "decode_pages", integer(1, 64), Default::Absent("required when split")),
    optional("world", "metadata_slots", integer(1, 8), Default::Absent("1 when split")),
    optional("world", "event_slots", integer(1, 8), Default::Integer(2)),
    optional(
        "world",
        "write_policy",
        Kind::OneOf(WritePolicy::NAMES),
        Default::Absent("\"through\" with a host tier, else \"off\""),
    ),
    optional("world", "prefix_cache", Kind::Flag, Default::Flag(true)),
    optional("world", "page_tokens", integer(1, 256), Default::Integer(1)),
    optional("world", "chunk_pages", integer(0, 64), Default::Integer(0)),
    optional("world", "max_batch", integer(1, 8), Default::Integer(2)),
    optional("world", "grain", Kind::OneOf(Grain::NAMES), Default::Name("default")),
    optional("world", "deadlines", Kind::Flag, Default::Absent("true when split, else false")),
    required("request", "name", SHORT_NAME),
    required("request", "prompt", list("block names", 1, 64)),
    optional("request", "output", list("block names", 0, 64), Default::Empty),
    optional("request", "after", list("request names", 0, 8), Default::Empty),
    optional("request", "retries", integer(0, 4), Default::Integer(0)),
    optional("request", "priority", integer(0, 9), Default::Integer(0)),
    required("requests", "from", Kind::Section),
    required("requests.from", "file", Kind::Line { chars_max: 200 }),
    required("requests.from", "format", Kind::OneOf(LogFormat::NAMES)),
    optional("requests.from", "rows", list("row numbers", 1, 8), Default::Absent("required for mooncake")),
    optional("requests.from", "sessions", integer(1, 8), Default::Integer(1)),
    optional("requests.from", "skip", integer(0, 1_000_000), Default::Integer(0)),
    optional("requests.from", "turns", integer(1, 8), Default::Absent("required for sessions")),
    optional("requests.from", "max_blocks", integer(1, 64), Default::Absent("no limit")),
    optional("faults", "abort", list("request names or `{ request, at }` tables", 0, 16), Default::Empty),
    optional("faults", "preempt", list("request names", 0, 16), Default::Empty),
    optional("faults", "flush", Kind::Either("an integer from 0 to 4 or a table `{ at, times }`"), Default::Integer(0)),
    optional("faults", "lose", integer(0, 4), Default::Integer(0)),
    optional("faults", "duplicate", integer(0, 4), Default::Integer(0)),
    optional("faults", "reorder", integer(0, 4), Default::Integer(0)),
    optional("faults", "slow", integer(0, 4), Default::Integer(0)),
    optional("faults", "fail_part", integer(0, 4), Default::Integer(0)),
    required("faults.abort", "request", SHORT_NAME),
    optional("faults.abort", "at", Kind::OneOf(Side::NAMES), Default::Name("decode")),
    optional("faults.flush", "at", Kind::OneOf(Side::NAMES), Default::Name("decode")),
    optional("faults.flush", "times", integer(0, 4), Default::Integer(1)),
    required("drop", "rules", list("rules, `rule` or `rule@site`", 0, 64)),
    optional("check", "properties", list("property names", 1, 64), Default::Absent("all")),
    optional("check", "max_states", integer(1, 1_000_000_000), Default::Integer(2_000_000)),
    optional("check", "reduce", Kind::Flag, Default::Flag(false)),
    required("expect", "verdict", Kind::OneOf(Verdict::NAMES)),
    optional("expect", "violates", list("property names, sorted", 0, 64), Default::Empty),
    optional("expect", "states", integer(1, 1_000_000_000_000), Default::Absent("not asserted")),
    optional("expect", "states_all_rules", integer(1, 1_000_000_000_000), Default::Absent("not asserted")),
    required("model file", "format", integer(1, 1)),
    required("model file", "name", NAME),
    required("model file", "title", Kind::Line { chars_max: 120 }),
    required("model file", "source", LINE),
    required("model file", "page_tokens", integer(1, 4096)),
    required("model file", "kv_dtype", Kind::OneOf(Dtype::NAMES)),
    optional("model file", "index_k_dtype", Kind::OneOf(Dtype::NAMES), Default::Absent("no index-K")),
    required("model file", "layers", Kind::Section),
    required("model file", "layout", Kind::Section),
    required("layers", "kinds", list("layer kinds", 1, 256)),
    optional("layers", "times", integer(1, 256), Default::Integer(1)),
    required("layout", "component", Kind::OneOf(Component::NAMES)),
    required("layout", "kinds", list("layer kinds", 1, 16)),
    required("layout", "dtype", Kind::OneOf(Dtype::NAMES)),
    required("layout", "bytes_per_entry", integer(1, 65_535)),
    optional("layout", "tokens_per_entry", integer(1, 4096), Default::Integer(1)),
    optional("layout", "scale", Kind::OneOf(Scale::NAMES), Default::Name("none")),
    optional("layout", "scale_bytes_per_entry", integer(0, 65_535), Default::Integer(0)),
    optional("layout", "page_align", integer(1, 65_536), Default::Integer(1)),
    optional("layout", "retained_tokens", integer(1, 1_000_000), Default::Absent("all tokens")),
];
