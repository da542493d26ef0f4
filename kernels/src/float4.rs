//! 4-bit floats: e2m1, as in the OCP microscaling (MX) formats specification.
//!
//! One sign bit, two exponent bits with bias 1, one mantissa bit: neither infinities nor NaN.

/// The largest magnitude.
pub const E2M1_MAX: f32 = 6.0;

const MAX_CODE: u32 = 7;
/// 2^22: the last bit of an `f32` of this size is 1/2, the distance of magnitudes below 1.
const SUBNORMAL_ROUNDER: f32 = 4_194_304.0;
/// The difference of the two exponent biases, 127 - 1, above one mantissa bit.
const BIAS: u32 = 126 << 1;

const DECODED: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The nearest e2m1 code, in the low four bits; of two equally near ones, the even one.
///
/// Magnitudes above 6, infinity included, become 6 with their sign. Zeros keep their sign. The format has no NaN: a NaN
/// becomes +6, as the conversion instructions of NVIDIA's GPUs have it, so that a writer must look for NaN before.
pub fn e2m1_from_f32(value: f32) -> u8 {
    let bits = value.to_bits();
    let sign = (bits >> 31 << 3) as u8;
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    if magnitude.is_nan() {
        return MAX_CODE as u8;
    }
    let code = if magnitude < 1.0 {
        (magnitude + SUBNORMAL_ROUNDER).to_bits() - SUBNORMAL_ROUNDER.to_bits()
    } else {
        let bits = magnitude.to_bits();
        // Half of the last place that stays, less one if that place is even: a carry may reach the exponent.
        let rounded = (bits + 0x1f_ffff + (bits >> 22 & 1)) >> 22;
        (rounded - BIAS).min(MAX_CODE)
    };
    sign | code as u8
}

/// The value of the e2m1 code in the low four bits, exactly; the high four bits are not looked at.
#[inline]
pub fn e2m1_to_f32(code: u8) -> f32 {
    DECODED[code as usize & 15]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_round_trip() {
        for code in 0..16 {
            assert_eq!(e2m1_from_f32(e2m1_to_f32(code)), code);
            assert_eq!(e2m1_to_f32(code | 0xf0).to_bits(), e2m1_to_f32(code).to_bits());
        }
    }

    #[test]
    fn midpoints_go_to_the_even_code_and_their_neighbours_to_the_nearer_one() {
        for code in 0..7u8 {
            let middle = (e2m1_to_f32(code) + e2m1_to_f32(code + 1)) / 2.0;
            let even = code + (code & 1);
            for (value, expected) in [(middle.next_down(), code), (middle, even), (middle.next_up(), code + 1)] {
                assert_eq!(e2m1_from_f32(value), expected, "{value:e}");
                assert_eq!(e2m1_from_f32(-value), expected | 8, "{value:e}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_saturates() {
        for value in [6.1, 7.0, 8.0, f32::MAX, f32::INFINITY] {
            assert_eq!((e2m1_from_f32(value), e2m1_from_f32(-value)), (7, 15), "{value}");
        }
        assert_eq!((e2m1_from_f32(f32::NAN), e2m1_from_f32(-f32::NAN)), (7, 7));
        assert_eq!((e2m1_from_f32(f32::from_bits(1)), e2m1_from_f32(-f32::from_bits(1))), (0, 8));
    }
}
