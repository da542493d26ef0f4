//! 8-bit floats: e4m3 without infinities, as in the OCP 8-bit floating point specification (OFP8).
//!
//! One sign bit, four exponent bits with bias 7, three mantissa bits. Magnitudes are 0, the subnormals `1..8 * 2^-9`,
//! and normals up to 448; the one magnitude `0x7f` is NaN.

/// The largest finite magnitude.
pub const E4M3_MAX: f32 = 448.0;

const NAN: u8 = 0x7f;
const MAX_CODE: u32 = 0x7e;
/// The smallest normal magnitude, 2^-6.
const NORMAL_MIN: f32 = 1.0 / 64.0;
/// 2^14: the last bit of an `f32` of this size is 2^-9, the distance of subnormals.
const SUBNORMAL_ROUNDER: f32 = 16384.0;
/// The difference of the two exponent biases, 127 - 7, above three mantissa bits.
const BIAS: u32 = 120 << 3;

const DECODED: [f32; 256] = decoded();

const fn decoded() -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let (sign, magnitude) = ((code as u32 >> 7) << 31, code as u32 & 0x7f);
        let value = if magnitude == NAN as u32 {
            f32::NAN
        } else if magnitude < 8 {
            magnitude as f32 / 512.0
        } else {
            f32::from_bits((magnitude + BIAS) << 20)
        };
        table[code] = f32::from_bits(value.to_bits() | sign);
        code += 1;
    }
    table
}

/// The nearest e4m3 code; of two equally near ones, the even one.
///
/// Magnitudes above 448, infinity included, become 448 with their sign ("satfinite"). Zeros keep their sign. Every NaN
/// becomes `0x7f`, as the conversion instructions of NVIDIA's GPUs have it.
pub fn e4m3_from_f32(value: f32) -> u8 {
    let bits = value.to_bits();
    let sign = (bits >> 31 << 7) as u8;
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    if magnitude.is_nan() {
        return NAN;
    }
    let code = if magnitude < NORMAL_MIN {
        (magnitude + SUBNORMAL_ROUNDER).to_bits() - SUBNORMAL_ROUNDER.to_bits()
    } else {
        let bits = magnitude.to_bits();
        // Half of the last place that stays, less one if that place is even: a carry may reach the exponent.
        let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
        (rounded - BIAS).min(MAX_CODE)
    };
    sign | code as u8
}

/// The value of an e4m3 code, exactly. `0x7f` and `0xff` are NaN.
#[inline]
pub fn e4m3_to_f32(code: u8) -> f32 {
    DECODED[code as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By search among all codes, in `f64`.
    fn nearest(value: f32) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let target = f64::from(value.abs()).min(448.0);
        let distance = |code: u8| (f64::from(e4m3_to_f32(code)) - target).abs();
        let best = (0..=0x7e).map(distance).fold(f64::INFINITY, f64::min);
        let tied: Vec<u8> = (0..=0x7e).filter(|code| distance(*code) == best).collect();
        let even = tied.iter().find(|code| *code & 1 == 0);
        sign | even.unwrap_or(&tied[0])
    }

    #[test]
    fn codes_have_the_values_of_the_specification() {
        let known = [(0x00, 0.0), (0x01, 1.0 / 512.0), (0x07, 7.0 / 512.0), (0x08, 1.0 / 64.0), (0x38, 1.0)];
        for (code, value) in known.into_iter().chain([(0x39, 1.125), (0x7e, 448.0), (0xfe, -448.0), (0xb8, -1.0)]) {
            assert_eq!(e4m3_to_f32(code), value, "{code:#x}");
        }
        assert!(e4m3_to_f32(0x80).is_sign_negative() && e4m3_to_f32(0x80) == 0.0);
        assert_eq!((0..=255).filter(|code| e4m3_to_f32(*code).is_nan()).collect::<Vec<u8>>(), [0x7f, 0xff]);
    }

    #[test]
    fn every_number_survives_the_round_trip() {
        for code in (0..=255).filter(|code| code & 0x7f != NAN) {
            assert_eq!(e4m3_from_f32(e4m3_to_f32(code)), code);
        }
    }

    #[test]
    fn midpoints_and_their_neighbours_round_as_the_search_says() {
        for code in 0..0x7eu8 {
            let middle = (e4m3_to_f32(code) + e4m3_to_f32(code + 1)) / 2.0;
            for value in [middle.next_down(), middle, middle.next_up()] {
                assert_eq!(e4m3_from_f32(value), nearest(value), "{value:e}");
                assert_eq!(e4m3_from_f32(-value), nearest(-value), "{value:e}");
            }
        }
    }

    #[test]
    fn a_sample_of_all_bit_patterns_rounds_as_the_search_says() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            assert_eq!(e4m3_from_f32(value), nearest(value), "{bits:#x}");
        }
    }

    #[test]
    fn what_does_not_fit_saturates_and_nan_stays_nan() {
        for value in [448.1, 464.0, 480.0, f32::MAX, f32::INFINITY] {
            assert_eq!((e4m3_from_f32(value), e4m3_from_f32(-value)), (0x7e, 0xfe), "{value}");
        }
        assert_eq!((e4m3_from_f32(f32::NAN), e4m3_from_f32(-f32::NAN)), (0x7f, 0x7f));
        assert_eq!((e4m3_from_f32(0.0), e4m3_from_f32(-0.0)), (0x00, 0x80));
        assert_eq!((e4m3_from_f32(f32::from_bits(1)), e4m3_from_f32(-f32::from_bits(1))), (0x00, 0x80));
    }
}
