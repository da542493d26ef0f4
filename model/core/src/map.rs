//! A map whose keys are hashes or small numbers.

use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

/// A hasher for keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64 ^ (word >> 64) as u64);
    }
}

/// A map with a fixed hasher; its order is never looked at.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;
