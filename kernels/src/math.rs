//! The exponential and the logarithm, from additions and multiplications only: the platform's library may round
//! otherwise on another machine, and a reference must not.

use core::f64::consts::{LN_2, LOG2_E};

/// The high and the low part of ln 2: multiples of the first by small integers are exact.
const LN_2_HIGH: f64 = f64::from_bits(LN_2.to_bits() & !0xffff_ffff);
const LN_2_LOW: f64 = (LN_2 - LN_2_HIGH) + 2.319_046_813_846_299_6e-17;

/// Reciprocals of factorials up to 13: the next term is below 2^-53 where the sum is used.
const COEFFICIENTS: [f64; 14] = coefficients();

const fn coefficients() -> [f64; 14] {
    let mut table = [1.0; 14];
    let (mut i, mut factorial) = (1, 1u64);
    while i < 14 {
        factorial *= i as u64;
        table[i] = 1.0 / factorial as f64;
        i += 1;
    }
    table
}

/// `e^x`, within a few units in the last place; 0 below -745, infinity above 709, NaN for NaN.
pub(crate) fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < -745.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    let exponent = (x * LOG2_E + 0.5).floor();
    let rest = (x - exponent * LN_2_HIGH) - exponent * LN_2_LOW;
    let sum = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * rest + coefficient);
    // In two steps, because a subnormal result has no factor of its own.
    let exponent = exponent as i64;
    let half = exponent / 2;
    sum * power_of_two(half) * power_of_two(exponent - half)
}

/// `ln x` of a finite `x >= 1`, within a few units in the last place of max(1, ln x); NaN for NaN.
pub(crate) fn ln(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let exponent = (x.to_bits() >> 52) as i64 - 1023;
    let mantissa = x * power_of_two(-exponent);
    // Newton's method for e^y = mantissa, from within 0.06: the error is squared each time.
    let mut y = (mantissa - 1.0) * LN_2;
    for _ in 0..5 {
        y += mantissa * exp(-y) - 1.0;
    }
    exponent as f64 * LN_2 + y
}

/// For exponents from -1022 to 1023.
fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_agree_with_the_platform_to_many_digits() {
        let mut x = -744.0;
        while x < 709.0 {
            let (own, other) = (exp(x), x.exp());
            // Subnormal results have an absolute error.
            assert!((own - other).abs() <= 2e-15 * other + 5e-324, "e^{x}: {own:e} and {other:e}");
            x += 0.0371;
        }
        let mut x = 1.0;
        while x < 1e12 {
            let (own, other) = (ln(x), x.ln());
            assert!((own - other).abs() <= 2e-15 * other.max(1.0), "ln {x}: {own:e} and {other:e}");
            x *= 1.0371;
        }
    }

    #[test]
    fn edges_are_exact() {
        assert_eq!((exp(0.0), exp(f64::NEG_INFINITY), exp(f64::INFINITY)), (1.0, 0.0, f64::INFINITY));
        assert_eq!((ln(1.0), ln(2.0)), (0.0, LN_2));
        assert!(exp(f64::NAN).is_nan() && ln(f64::NAN).is_nan());
    }
}
