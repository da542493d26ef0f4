//! Answers to questions about a world, found again by what was looked at to find them.
//!
//! Each question is a small tree. At an inner node stands which part of the world is looked at next, and the branches are
//! what may be found there; a leaf is the answer. That is how the answer was found the first time, and whoever asks is
//! deterministic: so in a world with the same values in those parts it is the answer again, whatever the others hold.
//!
//! All nodes of all trees are one table from (node, value) to the next node. Whether something is in it says how fast an
//! answer is found and never which.

use std::sync::atomic::{AtomicU32, Ordering};

use super::table::{Table, key};

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
    table: Table,
    nodes: AtomicU32,
}

impl Default for Memo {
    fn default() -> Self {
        Memo { table: Table::default(), nodes: AtomicU32::new(ROOT + 1) }
    }
}

impl Memo {
    /// The answer to a question about a world whose parts have these numbers.
    #[inline]
    pub(super) fn recall(&self, question: u32, parts: &[u32]) -> Option<u32> {
        let mut next = self.table.get(key(ROOT, question))?;
        loop {
            match unpack(next) {
                Next::Answer(answer) => return Some(answer),
                Next::Look { node, part } => next = self.table.get(key(node, parts[part]))?,
            }
        }
    }

    /// Remembers an answer, and which parts were looked at for it, in order.
    pub(super) fn remember(&self, question: u32, parts: &[u32], looked_at: &[usize], answer: u32) {
        let mut from = key(ROOT, question);
        for &part in looked_at {
            let look = || pack(Next::Look { node: self.nodes.fetch_add(1, Ordering::Relaxed), part });
            // Another thread that has not finished its entry yet: it will remember the same.
            let Some(next) = self.table.get(from).or_else(|| self.table.put(from, look())) else { return };
            let Next::Look { node, part: there } = unpack(next) else {
                unreachable!("answers depend on what was looked at")
            };
            debug_assert_eq!(part, there, "what is looked at next depends on what was seen");
            from = key(node, parts[part]);
        }
        self.table.put(from, pack(Next::Answer(answer)));
    }

    /// Whether nothing more can be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.nodes.load(Ordering::Relaxed) >= NODES_MAX || self.table.is_full()
    }
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
