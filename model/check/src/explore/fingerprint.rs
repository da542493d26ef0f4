//! A fixed 128-bit hash of an encoded state: the same value on every machine, in every run.
//!
//! For a given block the update of the two lanes is a bijection (two Feistel rounds), so that two encodings that differ
//! early and agree later are never merged by the common end. A chain of plain folded multiplications would merge them
//! a little more often with every block, and long states would have a worse chance of a miss than the report claims.

/// Odd numbers with mixed bits (those of wyhash), so that small field values never multiply by something near zero.
const SECRETS: [u64; 4] = [0x2d35_8dcc_aa6c_78a5, 0x8bb8_4b93_962e_acc9, 0x4b33_a62e_d433_d4a3, 0x4d5a_2da5_1de1_aa47];

/// The fingerprint of `bytes`. Blocks are read little-endian; the length is part of the value.
pub(crate) fn fingerprint(bytes: &[u8]) -> u128 {
    let mut lanes = Lanes { a: SECRETS[0] ^ bytes.len() as u64, b: SECRETS[1] };
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        lanes.absorb(u128::from_le_bytes(*block));
    }
    if !rest.is_empty() {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        lanes.absorb(u128::from_le_bytes(last));
    }
    lanes.finish()
}

/// A hash over words in order.
pub(super) fn digest(words: impl Iterator<Item = u128>) -> u128 {
    let mut lanes = Lanes::default();
    words.for_each(|word| lanes.absorb(word));
    lanes.finish()
}

/// A hash under way.
pub(super) struct Lanes {
    a: u64,
    b: u64,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { a: SECRETS[0], b: SECRETS[1] }
    }
}

impl Lanes {
    #[inline]
    pub(super) fn absorb(&mut self, block: u128) {
        let (low, high) = (block as u64, (block >> 64) as u64);
        self.a = self.a.wrapping_add(fold(self.b ^ low, high ^ SECRETS[2]));
        self.b = self.b.wrapping_add(fold(self.a ^ high, low ^ SECRETS[3]));
    }

    /// Two rounds without input, so that the last block is spread as well as the first.
    #[inline]
    pub(super) fn finish(mut self) -> u128 {
        self.absorb(u128::from(SECRETS[0]) << 64 | u128::from(SECRETS[1]));
        self.absorb(u128::from(SECRETS[1]) << 64 | u128::from(SECRETS[0]));
        u128::from(self.a) << 64 | u128::from(self.b)
    }
}

#[inline]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_fingerprint_is_the_same_number_on_every_machine() {
        assert_eq!(format!("{:032x}", fingerprint(b"")), "8719897b54b41d2ca7e842e313af4365");
        assert_eq!(format!("{:032x}", fingerprint(b"kvweft")), "cf0a8643d01e7877d2f5f09e5f369e54");
        assert_eq!(format!("{:032x}", fingerprint(&[7; 40])), "6c537598dfeacbd91f8fee85e4ca4e3c");
    }

    #[test]
    fn zeros_at_the_end_are_not_lost() {
        let all: BTreeSet<u128> = (0..64).map(|length| fingerprint(&vec![0; length])).collect();
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn each_input_bit_flips_about_half_of_the_output() {
        for length in [1, 8, 15, 16, 17, 48, 200] {
            let bytes = vec![0u8; length];
            let base = fingerprint(&bytes);
            for bit in 0..length * 8 {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let flipped = (base ^ fingerprint(&other)).count_ones();
                assert!((32..=96).contains(&flipped), "{length} bytes, bit {bit}: {flipped} of 128 bits flipped");
            }
        }
    }

    #[test]
    fn every_half_of_the_fingerprint_tells_a_million_small_states_apart() {
        let mut low = BTreeSet::new();
        let mut high = BTreeSet::new();
        for number in 0..1_000_000u64 {
            let value = fingerprint(&number.to_le_bytes());
            low.insert(value as u64);
            high.insert((value >> 64) as u64);
        }
        assert_eq!((low.len(), high.len()), (1_000_000, 1_000_000));
    }
}
