//! The right answer to a transcript.

use super::chain::{Use, keyed, word};
use super::{MARK, Token};

/// Bytes of an answer of any model, at most.
pub const ANSWER_MAX: usize = 200;
/// Bytes that the answers of a model need: a tool call with any fact of an [`Agent`](super::Agent), and nothing around
/// it.
pub const ANSWER_MIN: usize = 96;
/// Nibbles of the longest answer.
pub(super) const NIBBLES: usize = 2 * ANSWER_MAX;
/// The byte that the model samples behind its answer.
pub const END: u8 = 0;

const SENTENCES: [&str; 4] =
    ["Looking it up.", "I will recall that.", "One moment, I will check.", "Let me fetch that value."];
/// Together with the longest sentence and the markup, they fit in [`ANSWER_MAX`].
const KEY_MAX: usize = 32;
const VALUE_MAX: usize = 64;

/// What was sampled up to the first [`END`].
pub fn text(sampled: &[u8]) -> &[u8] {
    sampled.split(|byte| *byte == END).next().unwrap_or(sampled)
}

/// The answer to a transcript that ends with a marker, whose prefix identity is `id`: at most `max` bytes. Where there
/// is no room for a sentence, there is none; a fact whose tool call does not fit counts as unknown.
pub(super) fn answer(tokens: &[Token], id: u64, max: usize) -> Vec<u8> {
    let key = keyed(id, Use::Text, 0);
    let known = recalled(tokens).map(|(name, value)| call(&name, &value)).filter(|call| call.len() <= max);
    let call = known.unwrap_or_else(|| {
        let (name, value) = (word(key, 1) & 0xff_ffff, word(key, 2) as u32);
        call(&format!("k-{name:06x}"), &format!("v-{value:08x}"))
    });
    let sentence = SENTENCES[(word(key, 0) % 4) as usize];
    let answer = if sentence.len() + 1 + call.len() <= max { format!("{sentence} {call}") } else { call };
    debug_assert!(answer.len() <= max);
    answer.into_bytes()
}

fn call(name: &str, value: &str) -> String {
    format!(r#"<tool_call>{{"name":"recall","arguments":{{"key":"{name}","value":"{value}"}}}}</tool_call>"#)
}

/// The key that the last user text asks for, and the value of its last fact.
fn recalled(tokens: &[Token]) -> Option<(String, String)> {
    let before = tokens.strip_suffix(&[MARK])?;
    let begin = before.iter().rposition(|token| *token == MARK).map_or(0, |at| at + 1);
    let name = asked(&bytes(&before[begin..]))?;
    let value = fact(&bytes(before), &name)?;
    Some((String::from_utf8(name).ok()?, String::from_utf8(value).ok()?))
}

/// Markers become a byte that is in no fact.
fn bytes(tokens: &[Token]) -> Vec<u8> {
    tokens.iter().map(|token| u8::try_from(*token).unwrap_or(END)).collect()
}

/// The key of the last `recall KEY?`.
fn asked(text: &[u8]) -> Option<Vec<u8>> {
    positions(text, b"recall ").rev().find_map(|at| {
        let rest = &text[at + 7..];
        let len = rest.iter().take(KEY_MAX + 1).position(|byte| *byte == b'?')?;
        let name = &rest[..len];
        (len > 0 && name.iter().all(|byte| is_key(*byte))).then(|| name.to_vec())
    })
}

/// The value of the last `fact KEY=VALUE;`.
fn fact(text: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let statement = [b"fact ", name, b"="].concat();
    positions(text, &statement).rev().find_map(|at| {
        let rest = &text[at + statement.len()..];
        let len = rest.iter().take(VALUE_MAX + 1).position(|byte| *byte == b';')?;
        let value = &rest[..len];
        value.iter().all(|byte| is_value(*byte)).then(|| value.to_vec())
    })
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Anything printable that needs no escape in a tool call.
fn is_value(byte: u8) -> bool {
    (byte.is_ascii_graphic() || byte == b' ') && !matches!(byte, b'"' | b'\\' | b'<' | b'>')
}

fn positions<'a>(text: &'a [u8], pattern: &'a [u8]) -> impl DoubleEndedIterator<Item = usize> + 'a {
    let windows = text.windows(pattern.len()).enumerate();
    windows.filter(move |(_, window)| *window == pattern).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        text.bytes().map(|byte| if byte == b'|' { MARK } else { byte.into() }).collect()
    }

    #[test]
    fn the_last_fact_of_the_last_question_is_recalled() {
        let (a, b) = (("a".to_owned(), "1 x".to_owned()), ("b-2".to_owned(), "2".to_owned()));
        let table = [
            ("fact a=0; fact a=1 x; recall a?|", Some(&a)),
            ("fact a=1 x; fact b-2=2; recall a? no, recall b-2?|", Some(&b)),
            ("fact a=0; recall a?|no, fact a=1 x; recall a?|", Some(&a)),
            ("fact b-2=2; recall a?|answer, recall b-2? now|", Some(&b)),
            ("fact a=0; recall a?|thanks|", None),
            ("fact a=0; recall b?|", None),
            ("fact a=\"; recall a?|", None),
            ("fact a=0; recall a?", None),
            ("|", None),
        ];
        for (text, expected) in table {
            assert_eq!(recalled(&tokens(text)).as_ref(), expected, "{text}");
        }
    }

    #[test]
    fn answers_fit_and_depend_on_the_prefix_if_nothing_is_asked() {
        let (name, value) = ("k".repeat(KEY_MAX), "v".repeat(VALUE_MAX));
        let text = tokens(&format!("fact {name}={value}; recall {name}?|"));
        for id in 0..16 {
            let long = answer(&text, id, ANSWER_MAX);
            assert!(long.len() <= ANSWER_MAX && String::from_utf8(long).unwrap().contains(&value));
            for max in [ANSWER_MIN, 128, ANSWER_MAX] {
                assert_ne!(answer(&tokens("|"), id, max), answer(&tokens("|"), id + 1, max));
            }
        }
    }

    #[test]
    fn answers_leave_out_what_does_not_fit() {
        let ask = |name: &str, value: &str| tokens(&format!("fact {name}={value}; recall {name}?|"));
        let (short, longer) = (("k9999-3-beef", "v-01234567"), ("k", "a value of some length"));
        for id in 0..16 {
            let alone = call(short.0, short.1);
            assert_eq!(answer(&ask(short.0, short.1), id, ANSWER_MIN), alone.as_bytes());
            let all = answer(&ask(short.0, short.1), id, alone.len() + 26);
            assert!(all.len() > alone.len() && all.ends_with(alone.as_bytes()));
            let (text, alone) = (ask(longer.0, longer.1), call(longer.0, longer.1));
            assert_eq!(answer(&text, id, alone.len()), alone.as_bytes());
            let unknown = answer(&text, id, alone.len() - 1);
            assert!(unknown.starts_with(call("k-", "").split("\",\"v").next().unwrap().as_bytes()));
        }
    }

    #[test]
    fn text_ends_before_the_first_end() {
        assert_eq!(text(b"ab\0c\0"), b"ab");
        assert_eq!(text(b"ab"), b"ab");
        assert_eq!(text(b""), b"");
    }
}
