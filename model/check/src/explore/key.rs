//! What a state is known by: a fingerprint of its encoding, or the encoding itself where it is a word.

use super::checkpoint::Word;
use super::fingerprint::fingerprint;

/// What stands for an encoding in the visited set.
pub(crate) trait Key: Word + Ord + Send + Sync {
    /// Whether different encodings have different keys.
    const EXACT: bool;

    /// The key of an encoding.
    fn of(encoding: &[u8]) -> Self;
    /// Bits for the place in the table, well mixed at the top.
    fn place(self) -> u64;
    /// Bits for the tag beside an index, none of which says much about the top of the place.
    fn tag(self) -> u32;
    /// All of it.
    fn wide(self) -> u128;
}

impl Key for u128 {
    const EXACT: bool = false;

    #[inline]
    fn of(encoding: &[u8]) -> u128 {
        fingerprint(encoding)
    }

    #[inline]
    fn place(self) -> u64 {
        self as u64
    }

    #[inline]
    fn tag(self) -> u32 {
        (self >> 64) as u32
    }

    fn wide(self) -> u128 {
        self
    }
}

/// A word, mixed by a function that has an inverse (that of splitmix64): nothing is lost, and every bit counts for the
/// place in the table.
impl Key for u64 {
    const EXACT: bool = true;

    #[inline]
    fn of(encoding: &[u8]) -> u64 {
        let bytes = encoding.try_into().unwrap_or_else(|_| {
            panic!("expected an encoding of 8 bytes, as System::ENCODES_A_WORD promises, got {}", encoding.len())
        });
        let word = u64::from_le_bytes(bytes);
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    #[inline]
    fn place(self) -> u64 {
        self
    }

    #[inline]
    fn tag(self) -> u32 {
        // Tags are taken from the top of this; the place uses the other end of the word.
        (self as u32).reverse_bits()
    }

    fn wide(self) -> u128 {
        u128::from(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn words_that_differ_have_keys_that_differ_in_place_and_tag_alike() {
        let keys: Vec<u64> = (0..1u64 << 16).map(|word| u64::of(&(word << 20).to_le_bytes())).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 1 << 16);
        let places: BTreeSet<u64> = keys.iter().map(|key| key.place() >> 48).collect();
        let tags: BTreeSet<u32> = keys.iter().map(|key| key.tag() >> 16).collect();
        // Of 65,536 random numbers below 65,536, about 63 % differ.
        assert!((40_000..43_000).contains(&places.len()), "{}", places.len());
        assert!((40_000..43_000).contains(&tags.len()), "{}", tags.len());
    }

    #[test]
    fn an_encoding_that_is_no_word_is_refused() {
        let refused = std::panic::catch_unwind(|| u64::of(&[0; 7])).expect_err("7 bytes are no word");
        let said = refused.downcast_ref::<String>().expect("it says why");
        assert!(said.starts_with("expected an encoding of 8 bytes"), "{said}");
    }
}
