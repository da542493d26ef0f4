//! Identities of prefixes, and pseudo-random numbers keyed by them.

use kvweft_core::BlockHash;
use kvweft_kernels::mix64;

use super::Token;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The identity of a growing token sequence: equal for equal tokens under equal salt, and otherwise not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    id: u64,
    check: u64,
}

impl Chain {
    /// The empty sequence of a tenant.
    pub const fn new(salt: u64) -> Chain {
        Chain { id: mix64(salt ^ GOLDEN), check: mix64(salt.wrapping_add(GOLDEN)) }
    }

    /// Appends a token.
    #[inline]
    pub const fn push(&mut self, token: Token) {
        self.id = next(self.id, token);
        self.check = mix64(self.check.rotate_left(23) ^ self.id);
    }

    /// What values and codes are keyed by.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The name of the block that ends here.
    pub const fn hash(&self) -> BlockHash {
        BlockHash((self.id as u128) << 64 | self.check as u128)
    }
}

/// The identity after one more token.
#[inline]
const fn next(id: u64, token: Token) -> u64 {
    mix64(id.wrapping_add(GOLDEN.wrapping_mul(token as u64 + 1)))
}

/// Identities of all prefixes: that of the empty one, then one per token.
pub(super) fn prefixes(salt: u64, tokens: &[Token]) -> Vec<u64> {
    let mut id = Chain::new(salt).id();
    let mut ids = Vec::with_capacity(tokens.len() + 1);
    ids.push(id);
    ids.extend(tokens.iter().map(|token| {
        id = next(id, *token);
        id
    }));
    ids
}

/// What pseudo-random numbers are for. Those of different uses have nothing to do with each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Value,
    Filler,
    Code,
    Dust,
    Query,
    Share,
    Text,
    Transcript,
}

/// The key of a stream of [`word`]s.
#[inline]
pub(super) const fn keyed(id: u64, purpose: Use, layer: usize) -> u64 {
    mix64(id ^ mix64((purpose as u64 + 1) << 32 | layer as u64))
}

/// The `n`-th word of a stream, as splitmix64 has it.
#[inline]
pub(super) const fn word(key: u64, n: usize) -> u64 {
    mix64(key.wrapping_add(GOLDEN.wrapping_mul(n as u64 + 1)))
}

/// A number below `bound`, which is below 2^32.
#[inline]
pub(super) const fn below(word: u64, bound: usize) -> usize {
    (((word >> 32) * bound as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_agrees_with_the_list_of_prefixes() {
        let tokens: Vec<Token> = (0..300).map(|t| t * 7 % 257).collect();
        let ids = prefixes(5, &tokens);
        let mut chain = Chain::new(5);
        for (token, id) in tokens.iter().zip(&ids) {
            assert_eq!(chain.id(), *id);
            chain.push(*token);
        }
        assert_eq!(Some(&chain.id()), ids.last());
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len());
        assert_ne!(prefixes(6, &tokens)[1..], ids[1..]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let drawn: Vec<usize> = (0..1000).map(|n| below(word(1, n), 10)).collect();
        assert!((0..10).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| *n < 10));
    }
}
