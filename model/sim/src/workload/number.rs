//! Decimal numbers of logs as integers: nothing is rounded twice, and no float is used.

use serde_json::value::RawValue;

/// A JSON number such as `12.5`, times 10 to the power of `digits`; what is finer is cut off.
pub(super) fn scaled(value: &RawValue, digits: u32) -> Result<u64, String> {
    let text = value.get().trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| expected(text))?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut number: u64 = 0;
    let places = i64::from(digits) + i64::from(exponent) + whole.len() as i64;
    for (at, digit) in whole.bytes().chain(part.bytes()).chain(std::iter::repeat(b'0')).enumerate() {
        if !digit.is_ascii_digit() {
            return Err(expected(text));
        }
        if at as i64 >= places {
            break;
        }
        let next = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit - b'0')));
        number = next.ok_or_else(|| expected(text))?;
    }
    Ok(number)
}

fn expected(text: &str) -> String {
    format!("expected a number that is not negative and fits 64 bits of nanoseconds, got {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_become_integers_without_a_float() {
        let table = [
            ("0", 9, 0),
            ("12.5", 9, 12_500_000_000),
            ("0.1234567899", 9, 123_456_789),
            ("3e2", 3, 300_000),
            ("1.5E-3", 6, 1_500),
            ("7", 0, 7),
            ("1.5e-9", 3, 0),
        ];
        for (text, digits, number) in table {
            let value: Box<RawValue> = serde_json::from_str(text).expect("a number");
            assert_eq!(scaled(&value, digits), Ok(number), "{text}");
        }
        for text in ["-1", "\"a\"", "1e300"] {
            let value: Box<RawValue> = serde_json::from_str(text).expect("JSON");
            assert!(scaled(&value, 9).is_err(), "{text}");
        }
    }
}
