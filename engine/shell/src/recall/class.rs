//! What a sampled answer turned out to be.

use serde_json::Value;

const OPEN: &[u8] = b"<tool_call>";
const CLOSE: &[u8] = b"</tool_call>";

/// How an answer differs from the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// It does not.
    Ok,
    /// Markup of a tool call is left in the text, because the call does not parse: the user sees it.
    Leak,
    /// No tool call is left, nor a trace of one: nothing is executed.
    NoTool,
    /// A well-formed tool call, but another one or with other text around it: the wrong thing may be executed.
    Wrong,
    /// The request failed.
    Error,
    /// The request did not end in time.
    Timeout,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 6] = [Class::Ok, Class::Leak, Class::NoTool, Class::Wrong, Class::Error, Class::Timeout];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Ok => "ok",
            Class::Leak => "leak",
            Class::NoTool => "no_tool",
            Class::Wrong => "wrong",
            Class::Error => "error",
            Class::Timeout => "timeout",
        }
    }
}

/// Compares a sampled answer with the right one. Never [`Class::Error`] or [`Class::Timeout`]: those have no answer.
pub fn classify(expected: &[u8], got: &[u8]) -> Class {
    if expected == got {
        return Class::Ok;
    }
    let (rest, called) = without_calls(got);
    if has_markup(&rest) {
        Class::Leak
    } else if called {
        Class::Wrong
    } else {
        Class::NoTool
    }
}

/// Takes all well-formed tool calls out of a text.
fn without_calls(text: &[u8]) -> (Vec<u8>, bool) {
    let (mut kept, mut rest, mut called) = (Vec::new(), text, false);
    while let Some(begin) = find(rest, OPEN) {
        let (before, inner) = (&rest[..begin], &rest[begin + OPEN.len()..]);
        kept.extend_from_slice(before);
        match find(inner, CLOSE).filter(|len| is_call(&inner[..*len])) {
            Some(len) => {
                called = true;
                rest = &inner[len + CLOSE.len()..];
            }
            None => {
                kept.extend_from_slice(OPEN);
                rest = inner;
            }
        }
    }
    kept.extend_from_slice(rest);
    (kept, called)
}

/// `{"name": string, "arguments": object}`.
fn is_call(json: &[u8]) -> bool {
    let Ok(Value::Object(call)) = serde_json::from_slice(json) else { return false };
    call.get("name").is_some_and(Value::is_string) && call.get("arguments").is_some_and(Value::is_object)
}

fn has_markup(text: &[u8]) -> bool {
    [&b"<tool_call"[..], b"</tool_call", b"tool_call>"].iter().any(|markup| find(text, markup).is_some())
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let right = r#"Hm. <tool_call>{"name":"recall","arguments":{"key":"a","value":"1"}}</tool_call>"#;
        let table = [
            (right.to_owned(), Class::Ok),
            (right.replace('1', "2"), Class::Wrong),
            (right.replace("Hm", "Hn"), Class::Wrong),
            (right.replace("\"recall", "recall"), Class::Leak),
            (right.replace("<tool_call>", "<tool_cbll>"), Class::Leak),
            (right.replace("</tool_call>", "</tool_cal"), Class::Leak),
            (right.replace("\"name\"", "\"nome\""), Class::Leak),
            (format!("{right}{right}"), Class::Wrong),
            (format!("{right}<tool_call"), Class::Leak),
            (right.replace("tool_call", "tool"), Class::NoTool),
            ("nothing".to_owned(), Class::NoTool),
            (String::new(), Class::NoTool),
        ];
        for (got, expected) in table {
            assert_eq!(classify(right.as_bytes(), got.as_bytes()), expected, "{got}");
        }
        assert!(Class::ALL.is_sorted());
    }
}
