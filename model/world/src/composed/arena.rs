//! Values that are given a number and stay.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// log2 of the values in the first segment; each further one has twice as many.
const FIRST_BITS: u32 = 6;
/// With 2^31 values, more than a search can come to.
const SEGMENTS: usize = 26;

/// A list that many threads may append to and read at once.
pub(super) struct Arena<T> {
    segments: [OnceLock<Box<[OnceLock<T>]>>; SEGMENTS],
    len: AtomicU32,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { segments: [const { OnceLock::new() }; SEGMENTS], len: AtomicU32::new(0) }
    }
}

impl<T> Arena<T> {
    /// The number of a new value.
    pub(super) fn push(&self, value: T) -> u32 {
        let number = self.len.fetch_add(1, Ordering::Relaxed);
        let (segment, at) = place(number);
        let segment = self.segments[segment].get_or_init(|| {
            let mut values = Vec::new();
            values.resize_with(1 << (segment as u32 + FIRST_BITS), OnceLock::new);
            values.into_boxed_slice()
        });
        let fresh = segment[at].set(value).is_ok();
        debug_assert!(fresh, "a number is given out once");
        number
    }

    /// The value of a number that was given out.
    #[inline]
    pub(super) fn at(&self, number: u32) -> &T {
        let (segment, at) = place(number);
        self.segments[segment].get().and_then(|segment| segment[at].get()).expect("a number that was given out")
    }

    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }
}

/// Segment, and place in it.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let from_first = number + (1 << FIRST_BITS);
    let bits = from_first.ilog2();
    ((bits - FIRST_BITS) as usize, (from_first - (1 << bits)) as usize)
}

/// A hash that is quick for small fields. Values are compared as well.
#[derive(Default)]
struct Fold(u64);

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

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// Values, each of which has one number. Which one depends on who came first.
pub(super) struct Values<T> {
    numbers: Mutex<HashMap<u64, Vec<u32>, BuildHasherDefault<Fold>>>,
    values: Arena<Arc<T>>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Values { numbers: Mutex::default(), values: Arena::default() }
    }
}

impl<T: Hash + Eq + Clone> Values<T> {
    /// The number of a value.
    pub(super) fn number(&self, value: &T) -> u32 {
        let hash = BuildHasherDefault::<Fold>::default().hash_one(value);
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = numbers.entry(hash).or_default();
        if let Some(&known) = alike.iter().find(|&&number| **self.values.at(number) == *value) {
            return known;
        }
        let number = self.values.push(Arc::new(value.clone()));
        alike.push(number);
        number
    }
}

impl<T> Values<T> {
    #[inline]
    pub(super) fn at(&self, number: u32) -> &Arc<T> {
        self.values.at(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_keeps_its_number_across_segments() {
        let values = Values::<u32>::default();
        let numbers: Vec<u32> = (0..10_000).map(|value| values.number(&(value * 7))).collect();
        assert_eq!(numbers, (0..10_000).collect::<Vec<u32>>());
        assert!((0..10_000).all(|value| values.number(&(value * 7)) == value && **values.at(value) == value * 7));
    }

    #[test]
    fn threads_that_number_the_same_values_get_the_same_numbers() {
        let values = Values::<u32>::default();
        let numbers = || (0..5_000).map(|value| values.number(&value)).collect::<Vec<u32>>();
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(numbers);
            (numbers(), other.join().expect("it numbers values"))
        });
        assert_eq!(one, other);
        assert_eq!(values.values.len(), 5_000);
    }
}
