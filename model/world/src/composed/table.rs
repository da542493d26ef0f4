//! A table from pairs of numbers to a number, which many threads may read and fill at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// log2 of the slots of the first level. Each further level has four times as many, and new entries go to the newest.
const FIRST_BITS: u32 = 10;
const LEVELS: usize = 9;

/// Entries that are never changed and never taken out. An entry may be forgotten while another thread adds it: whoever
/// reads must be able to do without.
pub(super) struct Table {
    levels: [OnceLock<Box<[Slot]>>; LEVELS],
    newest: AtomicUsize,
    /// Entries of the newest level.
    filled: AtomicUsize,
}

/// An entry; both are 0 until it is there.
#[derive(Default)]
struct Slot {
    key: AtomicU64,
    value: AtomicU32,
}

impl Default for Table {
    fn default() -> Self {
        Table { levels: [const { OnceLock::new() }; LEVELS], newest: AtomicUsize::new(0), filled: AtomicUsize::new(0) }
    }
}

/// What two numbers are looked up by; the first is not 0.
#[inline]
pub(super) fn key(first: u32, second: u32) -> u64 {
    debug_assert_ne!(first, 0, "a key of 0 is a slot without an entry");
    u64::from(first) << 32 | u64::from(second)
}

impl Table {
    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<u32> {
        let newest = self.newest.load(Ordering::Relaxed);
        let found = self.levels[newest].get().and_then(|level| look_up(level, key));
        found.or_else(|| self.get_older(newest, key))
    }

    /// Entries of older levels that are asked for move to the newest.
    #[cold]
    fn get_older(&self, newest: usize, key: u64) -> Option<u32> {
        let older = self.levels[..newest].iter().rev().filter_map(OnceLock::get);
        let value = older.into_iter().find_map(|level| look_up(level, key))?;
        self.put(key, value);
        Some(value)
    }

    /// Adds an entry, whose value is not 0. If another thread was faster, the value is its; `None` if that is not there
    /// yet, or if the table is full.
    pub(super) fn put(&self, key: u64, value: u32) -> Option<u32> {
        let level = self.level_for_one_more()?;
        let mut at = home(level, key);
        loop {
            let slot = &level[at];
            match slot.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    slot.value.store(value, Ordering::Release);
                    self.filled.fetch_add(1, Ordering::Relaxed);
                    return Some(value);
                }
                Err(there) if there == key => {
                    let value = slot.value.load(Ordering::Acquire);
                    return (value != 0).then_some(value);
                }
                Err(_) => at = (at + 1) & (level.len() - 1),
            }
        }
    }

    /// Whether no entry can be added.
    pub(super) fn is_full(&self) -> bool {
        self.newest.load(Ordering::Relaxed) == LEVELS - 1 && self.filled.load(Ordering::Relaxed) > slots(LEVELS - 1) / 2
    }

    /// The newest level, which is at most half full: threads that come at once may pass that by one entry each.
    fn level_for_one_more(&self) -> Option<&[Slot]> {
        let mut newest = self.newest.load(Ordering::Relaxed);
        if self.filled.load(Ordering::Relaxed) > slots(newest) / 2 {
            if newest + 1 == LEVELS {
                return None;
            }
            if self.newest.compare_exchange(newest, newest + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.filled.store(0, Ordering::Relaxed);
            }
            newest += 1;
        }
        Some(self.levels[newest].get_or_init(|| {
            let mut level = Vec::new();
            level.resize_with(slots(newest), Slot::default);
            level.into_boxed_slice()
        }))
    }
}

fn slots(level: usize) -> usize {
    1 << (FIRST_BITS + 2 * level as u32)
}

#[inline]
fn look_up(level: &[Slot], key: u64) -> Option<u32> {
    let mut at = home(level, key);
    loop {
        let slot = &level[at];
        let there = slot.key.load(Ordering::Acquire);
        if there == key {
            let value = slot.value.load(Ordering::Acquire);
            return (value != 0).then_some(value);
        }
        if there == 0 {
            return None;
        }
        at = (at + 1) & (level.len() - 1);
    }
}

#[inline]
fn home(level: &[Slot], key: u64) -> usize {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64 ^ (product >> 64) as u64) as usize & (level.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_loses_nothing() {
        let table = Table::default();
        (1..50_000).for_each(|number| assert_eq!(table.put(key(number, number / 3), number), Some(number)));
        (1..50_000).for_each(|number| assert_eq!(table.get(key(number, number / 3)), Some(number)));
        assert_eq!((table.get(key(7, 7)), table.get(key(50_000, 0))), (None, None));
    }

    #[test]
    fn the_first_of_two_threads_to_add_an_entry_wins_for_both() {
        let table = Table::default();
        let add = |offset: u32| {
            (1..20_000).filter_map(|at| Some((at, table.put(key(at, 0), at + offset)?))).collect::<Vec<_>>()
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| add(1 << 20));
            (add(0), other.join().expect("it adds entries"))
        });
        for (at, value) in one.into_iter().chain(other) {
            assert!(value % (1 << 20) == at && table.get(key(at, 0)).is_some_and(|found| found % (1 << 20) == at));
        }
    }
}
