//! Answers to questions about a world, found again by what was looked at to find them.
//!
//! Each question is a small tree. At an inner node stands which part of the world is looked at next, and the branches are
//! what may be found there; a leaf is the answer. That is how the answer was found the first time, and whoever asks is
//! deterministic: so in a world with the same values in those parts it is the answer again, whatever the others hold.
//!
//! All nodes of all trees are one table from (node, value) to the next node. It can be read and filled by many threads at
//! once. Whether something is in it says how fast an answer is found and never which.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// log2 of the slots of the first table. Each further one has four times as many, and new entries go to the newest.
const FIRST_BITS: u32 = 10;
const TABLES: usize = 9;

/// Where a step in the tree leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An inner node, and the part to look at there.
    Look { node: u32, part: usize },
    /// An answer, by its number.
    Answer(u32),
}

/// Where all questions begin.
const ROOT: u32 = 1;
const PART_BITS: u32 = 5;
const ANSWER: u32 = 1 << 31;
/// Nodes, answers: what [`Next`] has room for.
const NODES_MAX: u32 = 1 << 26;

/// All trees.
pub(super) struct Memo {
    tables: [OnceLock<Box<[Slot]>>; TABLES],
    newest: AtomicUsize,
    /// Entries of the newest table.
    filled: AtomicUsize,
    nodes: AtomicU32,
}

/// An entry; both are 0 until it is there.
#[derive(Default)]
struct Slot {
    key: AtomicU64,
    next: AtomicU32,
}

impl Default for Memo {
    fn default() -> Self {
        Memo {
            tables: [const { OnceLock::new() }; TABLES],
            newest: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            nodes: AtomicU32::new(ROOT + 1),
        }
    }
}

impl Memo {
    /// The answer to a question about a world whose parts have these numbers.
    #[inline]
    pub(super) fn recall(&self, question: u32, parts: &[u32]) -> Option<u32> {
        let mut next = self.get(key(ROOT, question))?;
        loop {
            match unpack(next) {
                Next::Answer(answer) => return Some(answer),
                Next::Look { node, part } => next = self.get(key(node, parts[part]))?,
            }
        }
    }

    /// Remembers an answer, and which parts were looked at for it, in order.
    pub(super) fn remember(&self, question: u32, parts: &[u32], looked_at: &[usize], answer: u32) {
        let mut from = key(ROOT, question);
        for &part in looked_at {
            let look = || pack(Next::Look { node: self.nodes.fetch_add(1, Ordering::Relaxed), part });
            // Another thread that has not finished its entry yet: it will remember the same.
            let Some(next) = self.get(from).or_else(|| self.put(from, look())) else { return };
            let Next::Look { node, part: there } = unpack(next) else { unreachable!("answers depend on what was looked at") };
            debug_assert_eq!(part, there, "what is looked at next depends on what was seen");
            from = key(node, parts[part]);
        }
        self.put(from, pack(Next::Answer(answer)));
    }

    /// Whether nothing more should be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.nodes.load(Ordering::Relaxed) >= NODES_MAX / 2 || self.newest.load(Ordering::Relaxed) == TABLES - 1
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u32> {
        let newest = self.newest.load(Ordering::Relaxed);
        if let Some(next) = self.tables[newest].get().and_then(|table| look_up(table, key)) {
            return Some(next);
        }
        let older = self.tables[..newest].iter().rev().filter_map(OnceLock::get);
        let next = older.into_iter().find_map(|table| look_up(table, key))?;
        self.put(key, next);
        Some(next)
    }

    /// Adds an entry. If another thread was faster, its entry; `None` if that is not there yet.
    fn put(&self, key: u64, next: u32) -> Option<u32> {
        let mut newest = self.newest.load(Ordering::Relaxed);
        let slots = 1usize << (FIRST_BITS + 2 * newest as u32);
        if self.filled.load(Ordering::Relaxed) > slots / 2 {
            if newest + 1 == TABLES {
                return None;
            }
            if self.newest.compare_exchange(newest, newest + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.filled.store(0, Ordering::Relaxed);
            }
            newest += 1;
        }
        let table = self.tables[newest].get_or_init(|| {
            let mut slots = Vec::new();
            slots.resize_with(1 << (FIRST_BITS + 2 * newest as u32), Slot::default);
            slots.into_boxed_slice()
        });
        let mut at = home(table, key);
        loop {
            let slot = &table[at];
            match slot.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    slot.next.store(next, Ordering::Release);
                    self.filled.fetch_add(1, Ordering::Relaxed);
                    return Some(next);
                }
                Err(there) if there == key => {
                    let next = slot.next.load(Ordering::Acquire);
                    return (next != 0).then_some(next);
                }
                Err(_) => at = (at + 1) & (table.len() - 1),
            }
        }
    }
}

#[inline]
fn look_up(table: &[Slot], key: u64) -> Option<u32> {
    let mut at = home(table, key);
    loop {
        let slot = &table[at];
        let there = slot.key.load(Ordering::Acquire);
        if there == key {
            let next = slot.next.load(Ordering::Acquire);
            return (next != 0).then_some(next);
        }
        if there == 0 {
            return None;
        }
        at = (at + 1) & (table.len() - 1);
    }
}

#[inline]
fn home(table: &[Slot], key: u64) -> usize {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64 ^ (product >> 64) as u64) as usize & (table.len() - 1)
}

#[inline]
fn key(node: u32, value: u32) -> u64 {
    u64::from(node) << 32 | u64::from(value)
}

#[inline]
fn pack(next: Next) -> u32 {
    match next {
        Next::Look { node, part } => node << PART_BITS | part as u32,
        Next::Answer(answer) => ANSWER | answer,
    }
}

#[inline]
fn unpack(next: u32) -> Next {
    if next & ANSWER != 0 {
        Next::Answer(next & !ANSWER)
    } else {
        Next::Look { node: next >> PART_BITS, part: (next & ((1 << PART_BITS) - 1)) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks whether the first part is above the second, which is looked at only where the first is not 0.
    fn ask(memo: &Memo, parts: &[u32; 3]) -> (u32, bool) {
        if let Some(answer) = memo.recall(5, parts) {
            return (answer, true);
        }
        let (looked_at, answer): (&[usize], _) = match parts[0] {
            0 => (&[0], 0),
            first => (&[0, 2], u32::from(first > parts[2])),
        };
        memo.remember(5, parts, looked_at, answer);
        (answer, false)
    }

    #[test]
    fn answers_are_found_again_by_what_was_looked_at() {
        let memo = Memo::default();
        assert_eq!(ask(&memo, &[0, 1, 2]), (0, false));
        assert_eq!(ask(&memo, &[0, 7, 9]), (0, true));
        assert_eq!(ask(&memo, &[3, 1, 2]), (1, false));
        assert_eq!(ask(&memo, &[3, 8, 2]), (1, true));
        assert_eq!(ask(&memo, &[3, 8, 4]), (0, false));
        assert_eq!(memo.recall(6, &[3, 8, 4]), None);
    }

    #[test]
    fn growing_loses_nothing() {
        let memo = Memo::default();
        let all = || (0..60u32).flat_map(|a| (0..200).map(move |b| [a, 0, b]));
        all().for_each(|parts| assert_eq!(ask(&memo, &parts).0, u32::from(parts[0] > parts[2])));
        all().for_each(|parts| assert_eq!(ask(&memo, &parts), (u32::from(parts[0] > parts[2]), true)));
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same_answers() {
        let memo = Memo::default();
        let all = |start: u32| {
            for step in 0..40_000 {
                let parts = [(start + step) % 37, 0, (start + step * 3) % 41];
                assert_eq!(ask(&memo, &parts).0, u32::from(parts[0] > parts[2]));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| all(0));
            all(5);
        });
    }
}
