//! The set of states seen, numbered in the order in which they were added.

use std::io;
use std::ops::Range;

use super::checkpoint::{Loader, Saver};
use super::column::Column;
use super::key::Key;

/// A free slot. Its index part is the largest number that fits, which is never given out: the table grows first.
const EMPTY: u32 = u32::MAX;
/// log2 of the number of slots at the start.
const BITS_AT_START: u32 = 12;
/// log2 of the largest number of slots: one bit of each slot must stay for the tag.
const BITS_MAX: u32 = 31;

/// The most states that one search can number.
pub(super) const STATES_MAX: u64 = slots_filled_max(BITS_MAX) as u64;

/// Linear probing slows down beyond three quarters.
const fn slots_filled_max(bits: u32) -> usize {
    (1usize << bits) / 4 * 3
}

/// An open-addressing table over keys (and, for an exact search, whole encodings).
///
/// A slot is four bytes: the state's index in the low bits, and in the bits that an index of this table size does not
/// need, a tag from the key, so that a probe past a stranger almost never has to fetch the stranger's key. Keys lie densely by
/// index; growing the table gives the old slots up first, then rereads the keys in order, and needs no second copy.
pub(super) struct Visited<K> {
    slots: Vec<u32>,
    bits: u32,
    keys: Column<K>,
    encodings: Option<Encodings>,
    collisions: u64,
}

#[derive(Default)]
struct Encodings {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

/// Where a state was found to be.
pub(super) enum Entry {
    /// It is known under this index.
    Known(u32),
    /// It is new and was given this index.
    New(u32),
}

impl<K: Key> Visited<K> {
    /// An empty set; `exact` keeps and compares whole encodings, unless keys are as good.
    pub(super) fn new(exact: bool) -> Self {
        Self {
            slots: vec![EMPTY; 1 << BITS_AT_START],
            bits: BITS_AT_START,
            keys: Column::default(),
            encodings: (exact && !K::EXACT).then(Encodings::default),
            collisions: 0,
        }
    }

    /// How many states are in the set.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys of all states, by index.
    pub(super) fn keys(&self) -> &Column<K> {
        &self.keys
    }

    /// The slot where a key's search begins: reading those of many keys first lets the waits for memory overlap.
    #[inline]
    pub(super) fn first_slot(&self, key: K) -> u32 {
        self.slots[home(key, self.bits)]
    }

    /// In an exact search, how many states were added although a state with the same key was there.
    pub(super) fn collisions(&self) -> u64 {
        self.collisions
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        let exact = self.encodings.as_ref().map_or(0, |all| all.bytes.len() + size_of_val(&all.ends[..]));
        (size_of_val(&self.slots[..]) + exact) as u64 + self.keys.bytes()
    }

    /// How many bytes more the table will take in order to hold one more state: zero, unless it must grow.
    pub(super) fn bytes_for_one_more(&self) -> u64 {
        if self.len() < slots_filled_max(self.bits) { 0 } else { size_of_val(&self.slots[..]) as u64 }
    }

    /// The index of a state; `encoding` is read in an exact search only.
    pub(super) fn find(&self, key: K, encoding: &[u8]) -> Option<u32> {
        self.probe(key, encoding).ok()
    }

    /// Adds a state unless it is known. The caller keeps the number of states within [`STATES_MAX`].
    pub(super) fn insert(&mut self, key: K, encoding: &[u8]) -> Entry {
        if self.len() >= slots_filled_max(self.bits) {
            self.grow();
        }
        let slot = match self.probe(key, encoding) {
            Ok(index) => return Entry::Known(index),
            Err(slot) => slot,
        };
        if self.encodings.is_some() && self.has_key(key) {
            self.collisions += 1;
        }
        let index = self.keys.len() as u32;
        self.slots[slot] = tag(key, self.bits) | index;
        self.keys.push(key);
        if let Some(all) = &mut self.encodings {
            all.bytes.extend_from_slice(encoding);
            all.ends.push(all.bytes.len() as u64);
        }
        Entry::New(index)
    }

    /// Writes all of it to a checkpoint, but for the slots, which follow from the keys.
    pub(super) fn save(&self, to: &mut Saver) -> io::Result<()> {
        to.put(self.collisions)?;
        to.list(self.keys.iter())?;
        if let Some(all) = &self.encodings {
            to.list(all.bytes.iter().copied())?;
            to.list(all.ends.iter().copied())?;
        }
        Ok(())
    }

    /// Reads what [`Visited::save`] wrote, for the same `exact`.
    pub(super) fn load(exact: bool, from: &mut Loader) -> io::Result<Self> {
        let mut visited = Self::new(exact);
        visited.collisions = from.take()?;
        from.list(|key| visited.keys.push(key))?;
        if let Some(all) = &mut visited.encodings {
            from.list(|byte| all.bytes.push(byte))?;
            from.list(|end| all.ends.push(end))?;
        }
        while visited.len() > slots_filled_max(visited.bits) {
            visited.bits += 1;
        }
        visited.fill_slots();
        Ok(visited)
    }

    /// Gives up the slots, when nothing more will be looked up or added; keys stay.
    pub(super) fn close(&mut self) {
        self.slots = Vec::new();
        self.encodings = None;
    }

    /// The index of the state, or the free slot where it belongs.
    fn probe(&self, key: K, encoding: &[u8]) -> Result<u32, usize> {
        self.probe_with(key, |index| self.encodings.as_ref().is_none_or(|all| all.bytes[all.range(index)] == *encoding))
    }

    fn has_key(&self, key: K) -> bool {
        self.probe_with(key, |_| true).is_ok()
    }

    fn probe_with(&self, key: K, same: impl Fn(usize) -> bool) -> Result<u32, usize> {
        let mask = index_mask(self.bits);
        let tag = tag(key, self.bits);
        let mut at = home(key, self.bits);
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return Err(at);
            }
            let index = slot & mask;
            if slot & !mask == tag && self.keys.at(index) == key && same(index as usize) {
                return Ok(index);
            }
            at = (at + 1) & mask as usize;
        }
    }

    fn grow(&mut self) {
        assert!(self.bits < BITS_MAX, "the table holds {STATES_MAX} states at most");
        self.bits += 1;
        self.fill_slots();
    }

    /// Makes the slots anew from the keys.
    fn fill_slots(&mut self) {
        let mask = index_mask(self.bits) as usize;
        // The old slots go first: the keys alone say where everything belongs.
        self.slots = Vec::new();
        self.slots = vec![EMPTY; 1 << self.bits];
        for (index, key) in self.keys.iter().enumerate() {
            let mut at = home(key, self.bits);
            while self.slots[at] != EMPTY {
                at = (at + 1) & mask;
            }
            self.slots[at] = tag(key, self.bits) | index as u32;
        }
    }
}

impl Encodings {
    fn range(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        start as usize..self.ends[index] as usize
    }
}

fn index_mask(bits: u32) -> u32 {
    (1 << bits) - 1
}

/// The slot where probing starts.
#[inline]
fn home<K: Key>(key: K, bits: u32) -> usize {
    (key.place() >> (64 - bits)) as usize
}

/// Bits of the key, at the places that an index leaves free.
#[inline]
fn tag<K: Key>(key: K, bits: u32) -> u32 {
    key.tag() & !index_mask(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::fingerprint::fingerprint;

    #[test]
    fn every_state_keeps_its_index_while_the_table_grows() {
        let mut visited = Visited::<u128>::new(false);
        for number in 0..100_000u32 {
            let key = fingerprint(&number.to_le_bytes());
            assert!(matches!(visited.insert(key, &[]), Entry::New(index) if index == number));
            assert!(matches!(visited.insert(key, &[]), Entry::Known(index) if index == number));
        }
        for number in 0..100_000u32 {
            assert_eq!(visited.find(fingerprint(&number.to_le_bytes()), &[]), Some(number));
        }
        assert_eq!(visited.find(fingerprint(b"never added"), &[]), None);
    }

    #[test]
    fn an_exact_table_tells_apart_what_fingerprints_confuse() {
        let mut visited = Visited::<u128>::new(true);
        assert!(matches!(visited.insert(5, b"one"), Entry::New(0)));
        assert!(matches!(visited.insert(5, b"two"), Entry::New(1)));
        assert!(matches!(visited.insert(5, b"two"), Entry::Known(1)));
        assert_eq!(visited.find(5, b"one"), Some(0));
        assert_eq!(visited.collisions(), 1);

        let mut visited = Visited::<u128>::new(false);
        assert!(matches!(visited.insert(5, b"one"), Entry::New(0)));
        assert!(matches!(visited.insert(5, b"two"), Entry::Known(0)));
    }

    #[test]
    fn fingerprints_that_share_their_home_and_tag_are_still_told_apart() {
        let mut visited = Visited::<u128>::new(false);
        for number in 0..5_000u32 {
            // Differs only in bits that neither the home slot nor the tag looks at.
            assert!(matches!(visited.insert(u128::from(number), &[]), Entry::New(index) if index == number));
        }
        assert_eq!(visited.find(4_999, &[]), Some(4_999));
    }
}
