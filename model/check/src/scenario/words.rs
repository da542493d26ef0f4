//! How keys and values are named in messages.

use super::schema::{Default, Key, Kind};

/// The first characters of a text, on one line.
pub(super) fn shortened(text: &str) -> String {
    let line: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > 40 { format!("{line}..") } else { line }
}

/// The key as it is named in messages: `world.device_pages`, or `title` at the top level.
pub(super) fn dotted(place: &str, name: &str) -> String {
    if is_top(place) { name.to_owned() } else { format!("{place}.{name}") }
}

pub(super) fn is_top(place: &str) -> bool {
    place == "scenario" || place == "model file"
}

/// Where a key of the table stands, in words.
pub(super) fn titled(place: &str) -> String {
    if is_top(place) { "at the top level".to_owned() } else { format!("in [{place}]") }
}

/// Whether the text has the form that the kind asks for.
pub(super) fn fits(kind: Kind, text: &str) -> bool {
    let chars = text.chars().count();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match kind {
        Kind::Name { chars_max } => (1..=chars_max).contains(&chars) && text.chars().all(plain),
        Kind::Line { chars_max } => {
            (1..=chars_max).contains(&chars) && !text.trim().is_empty() && !text.chars().any(char::is_control)
        }
        Kind::Text { chars_max } => chars <= chars_max,
        _ => false,
    }
}

/// The table that has a key of that name, when this one does not.
pub(super) fn elsewhere(place: &str, name: &str) -> Option<&'static str> {
    let model = |place: &str| matches!(place, "model file" | "layers" | "layout");
    let same_format = |other: &str| model(other) == model(place);
    super::schema::KEYS.iter().find(|key| key.name == name && same_format(key.place)).map(|key| key.place)
}

/// Whether the key describes an element of the declared list, not the list.
pub(super) fn is_element(key: &Key) -> bool {
    let declared = super::schema::key(key.place, key.name).kind;
    matches!(declared, Kind::List { .. }) && declared != key.kind
}

/// The value as it is named in messages.
pub(super) fn subject(key: &Key) -> String {
    let name = dotted(key.place, key.name);
    if is_element(key) { format!("an element of `{name}`") } else { format!("`{name}`") }
}

/// What the file format asks for.
pub(super) fn wanted(key: &Key) -> Kind {
    match super::schema::key(key.place, key.name).kind {
        either @ Kind::Either(_) => either,
        _ => key.kind,
    }
}

/// A line, or an element of a list, that would be right.
pub(super) fn example(key: &Key) -> String {
    let value = match (key.kind, key.default) {
        (Kind::Integer { .. }, Default::Integer(value)) => value.to_string(),
        (Kind::Integer { min, .. }, _) => min.to_string(),
        (Kind::Flag, _) => "true".to_owned(),
        (Kind::OneOf(names), _) => format!("\"{}\"", names[0]),
        (Kind::List { of: "row numbers", .. }, _) => "[0]".to_owned(),
        (Kind::List { .. }, _) => "[\"..\"]".to_owned(),
        (Kind::Section, _) => "{ .. }".to_owned(),
        (Kind::Line { .. } | Kind::Text { .. } | Kind::Name { .. }, _) => "\"..\"".to_owned(),
        (Kind::Either(_), _) => "1".to_owned(),
    };
    if is_element(key) { value } else { format!("{} = {value}", key.name) }
}
