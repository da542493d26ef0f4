//! How a block of values gets its scale, and the 8-bit scales of 4-bit keys.

use crate::float4::E2M1_MAX;
use crate::float8::E4M3_MAX;

/// How the scale of a block of 8-bit floats follows from its largest magnitude, `amax`.
///
/// Writer and reader need not agree, because the scale is stored, but two writers must: the same values give other
/// bytes under another rule, and a checksum of the bytes then differs though both are right. Public implementations
/// have both rules (`scale_fmt = "ue8m0"` in DeepSeek's reference code chooses the second).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleRule {
    /// `max(1e-4, amax) / 448`, as an `f32`.
    Amax,
    /// That, rounded up to a power of two: integers of few bits stay exact.
    PowerOfTwo,
}

impl ScaleRule {
    /// Both rules.
    pub const ALL: [ScaleRule; 2] = [ScaleRule::Amax, ScaleRule::PowerOfTwo];

    /// The scale of a block of 8-bit floats: infinite if a value is. NaN values are passed over; their codes are NaN.
    pub fn scale(self, block: &[f32]) -> f32 {
        let scale = amax(block).max(1e-4) / E4M3_MAX;
        match self {
            ScaleRule::Amax => scale,
            ScaleRule::PowerOfTwo => power_of_two_up(scale),
        }
    }
}

/// The largest magnitude of a block without regard to NaN values; 0 if it is empty.
fn amax(block: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (chunks, rest) = block.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = lane.max(value.abs());
        }
    }
    lanes.iter().chain(rest).fold(0.0, |max, value| max.max(value.abs()))
}

/// The least power of two that is not below `value`, a positive normal number or infinity.
fn power_of_two_up(value: f32) -> f32 {
    f32::from_bits((value.to_bits() + 0x7f_ffff) & 0x7f80_0000)
}

/// The code of the least power of two that is not below `value`: its exponent plus 127.
///
/// What is below 2^-126 becomes 2^-126 (code 1), so that the scale is a normal `f32`. Infinity, NaN and what is above
/// 2^127 become NaN (code `0xff`). Negative numbers count as small.
pub fn ue8m0_from_f32(value: f32) -> u8 {
    if value.is_nan() {
        return 0xff;
    }
    (power_of_two_up(value.max(f32::MIN_POSITIVE)).to_bits() >> 23) as u8
}

/// The value of a ue8m0 code, `2^(code - 127)`; `0xff` is NaN.
#[inline]
pub fn ue8m0_to_f32(code: u8) -> f32 {
    match code {
        0 => f32::MIN_POSITIVE / 2.0,
        0xff => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

/// The scale code of a block of 4-bit floats: `amax / 6` rounded up to a power of two, 2^-126 at least, as
/// DeepSeek-V4's `inference/kernel.py` has it (others begin at 1e-4, as for 8-bit floats). 4-bit floats have no NaN, so
/// that a block with a value that is not finite gets the NaN scale.
pub(crate) fn fp4_scale(block: &[f32]) -> u8 {
    if block.iter().all(|value| value.is_finite()) { ue8m0_from_f32(amax(block) / E2M1_MAX) } else { 0xff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_two_is_its_own_and_what_is_above_goes_to_the_next() {
        for exponent in -126..127 {
            let power = (exponent as f32).exp2();
            assert_eq!(power_of_two_up(power), power);
            assert_eq!(power_of_two_up(power.next_up()), power * 2.0);
            assert_eq!(ue8m0_to_f32(ue8m0_from_f32(power)), power);
        }
    }

    #[test]
    fn rounding_up_never_leaves_a_value_above_the_largest_code() {
        for exponent in -10..20 {
            let edge = 448.0 * (exponent as f32).exp2();
            for amax in [edge.next_down(), edge, edge.next_up()] {
                let scale = ScaleRule::PowerOfTwo.scale(&[amax]);
                assert!(amax / scale <= 448.0 && amax / scale > 223.9, "{amax} {scale}");
            }
        }
    }

    #[test]
    fn the_rules_differ_as_documented() {
        let block = [1.0, -8.0, 3.0];
        assert_eq!(ScaleRule::Amax.scale(&block), 8.0 / 448.0);
        assert_eq!(ScaleRule::PowerOfTwo.scale(&block), 1.0 / 32.0);
        assert_eq!(ScaleRule::Amax.scale(&[0.0; 128]), 1e-4 / 448.0);
        assert_eq!(ScaleRule::PowerOfTwo.scale(&[0.0; 128]), (-22f32).exp2());
        let long: Vec<f32> = (0..100).map(|i| if i == 37 { -9.0 } else { 1.0 }).collect();
        assert_eq!(ScaleRule::Amax.scale(&long), 9.0 / 448.0);
    }

    #[test]
    fn codes_of_8_bit_scales_cover_their_edges() {
        let known = [(0.0, 1), (-3.0, 1), (f32::MIN_POSITIVE, 1), (1.0, 127), (1.5, 128), (127f32.exp2(), 254)];
        for (value, code) in known.into_iter().chain([(f32::MAX, 255), (f32::INFINITY, 255), (f32::NAN, 255)]) {
            assert_eq!(ue8m0_from_f32(value), code, "{value}");
        }
        assert_eq!(ue8m0_to_f32(0), (-127f32).exp2());
        assert!(ue8m0_to_f32(255).is_nan());
        assert_eq!((fp4_scale(&[6.0, 1.0]), fp4_scale(&[7.0]), fp4_scale(&[f32::NAN])), (127, 128, 255));
    }
}
