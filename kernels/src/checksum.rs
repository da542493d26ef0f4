//! A checksum of a page that does not depend on where the page lies.

/// The finaliser of splitmix64: a bijection of 64-bit words, each bit of which depends on all bits of the argument.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014), with the constants of
/// Vigna's public-domain `splitmix64.c`.
#[inline]
pub const fn mix64(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The sum over all `i`, modulo 2^64, of `mix64(words[i] ^ mix64(key + i))`.
///
/// The terms may be added in any order, by any number of threads. The place of a word in the page counts, the place of
/// the page in memory does not. Parts add up: the checksum of `a` followed by `b` is that of `a` plus that of `b` under
/// the key `key + a.len()`, so that a page which grows by a token needs only the words of that token. Keys of different
/// contents (request, layer, generation) should come from [`mix64`] or another hash, because keys that differ by less
/// than a page's length share terms.
///
/// It finds accidents and is no protection against somebody who chooses the words.
pub fn checksum(words: &[u64], key: u64) -> u64 {
    sum(words.iter().copied(), key)
}

/// [`fn@checksum`] of bytes as little-endian words, the last one filled up with zeros.
///
/// Lengths that fill no word differ from each other by zeros only, so give it whole words where the length may vary:
/// the pages of this crate's formats are multiples of 8 bytes if the number of tokens is even.
pub fn checksum_bytes(bytes: &[u8], key: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = sum(words.iter().map(|word| u64::from_le_bytes(*word)), key);
    if rest.is_empty() {
        return sum;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    sum.wrapping_add(term(u64::from_le_bytes(last), key, words.len() as u64))
}

/// In 128 bits, of which the high ones mean nothing: otherwise compilers use vectors, which on the baseline of x86-64
/// have no 64-bit multiplication and take longer.
#[inline(always)]
fn sum(words: impl Iterator<Item = u64>, key: u64) -> u64 {
    words.zip(0u64..).fold(0u128, |sum, (word, i)| sum + u128::from(term(word, key, i))) as u64
}

#[inline(always)]
fn term(word: u64, key: u64, i: u64) -> u64 {
    mix64(word ^ mix64(key.wrapping_add(i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: u64) -> Vec<u64> {
        (0..count).map(|i| mix64(i + 1000)).collect()
    }

    #[test]
    fn the_mixer_is_that_of_splitmix64() {
        // The first outputs of the generator seeded with 0: its state advances by the golden ratio.
        let golden = 0x9e37_79b9_7f4a_7c15u64;
        let outputs = [1u64, 2, 3].map(|n| mix64(golden.wrapping_mul(n)));
        assert_eq!(outputs, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn parts_add_up_under_shifted_keys() {
        let words = words(100);
        for (cut, key) in [(0, 7), (1, 7), (40, u64::MAX - 3), (100, 0)] {
            let (a, b) = words.split_at(cut);
            let parts = checksum(a, key).wrapping_add(checksum(b, key.wrapping_add(cut as u64)));
            assert_eq!(parts, checksum(&words, key));
        }
    }

    #[test]
    fn bytes_are_little_endian_words_and_the_tail_is_filled_with_zeros() {
        let words = words(9);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(checksum_bytes(&bytes, 5), checksum(&words, 5));
        for len in 64..72usize {
            let mut short = words.clone();
            short[8] &= (1 << ((len - 64) * 8)) - 1;
            let expected = checksum(&short[..len.div_ceil(8)], 5);
            assert_eq!(checksum_bytes(&bytes[..len], 5), expected, "{len} bytes");
        }
        assert_eq!(checksum_bytes(&[], 5), 0);
    }

    #[test]
    fn every_flipped_bit_every_swap_and_every_other_key_changes_it() {
        let words = words(64);
        let before = checksum(&words, 1);
        for bit in 0..64 * 64 {
            let mut other = words.clone();
            other[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(checksum(&other, 1), before, "bit {bit}");
        }
        for i in 1..64 {
            let mut other = words.clone();
            other.swap(0, i);
            assert_ne!(checksum(&other, 1), before, "words 0 and {i}");
        }
        assert_ne!(checksum(&words, 2), before);
        assert_ne!(checksum(&words[..63], 1), before);
        assert_ne!(checksum(&[0; 8], 1), checksum(&[0; 9], 1));
    }
}
