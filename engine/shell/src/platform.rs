//! What the shell needs of the machine it runs on: locks, threads, and memory that several threads touch.
//!
//! The implementation for real threads is [`Std`](crate::Std). Model checkers of threads bring their own, so that one
//! binary runs the same code under all of them.

use std::ops::{DerefMut, Range};

use kvweft_core::Tier;

/// Locks, condition variables, threads and page memory.
pub trait Platform: Send + Sync + 'static {
    /// What the device is called in logs and reports.
    const DEVICE: &'static str;
    /// A lock around a value.
    type Mutex<T: Send + 'static>: Lock<T>;
    /// A condition variable. Nobody waits on it with a timeout: a deadline is an input.
    type Condvar: Default + Send + Sync;
    /// The bytes of one component of one layer of one page.
    type Cell: Cell;
    /// A thread that can be waited for.
    type Join: Send;

    /// Gives the lock up, sleeps until it is notified, and takes the lock again. May wake without a cause.
    fn wait<'a, T: Send + 'static>(condvar: &Self::Condvar, guard: Guard<'a, Self, T>) -> Guard<'a, Self, T>;
    /// Wakes everybody who waits.
    fn notify_all(condvar: &Self::Condvar);
    /// Starts a thread.
    fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Self::Join;
    /// Waits for the end of a thread.
    ///
    /// # Errors
    /// What the thread panicked with, as far as it is known.
    fn join(thread: Self::Join) -> Result<(), String>;
    /// Lets time pass, where there is any.
    fn pause_us(duration: u64) {
        let _ = duration;
    }
    /// Microseconds since some moment; always 0 where there is no clock.
    fn now_us() -> u64 {
        0
    }
}

/// What holding a lock gives access to.
pub type Guard<'a, P, T> = <<P as Platform>::Mutex<T> as Lock<T>>::Guard<'a>;

/// A lock.
pub trait Lock<T>: Send + Sync {
    /// Access to the value while the lock is held.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;
    /// A lock that nobody holds.
    fn new(value: T) -> Self;
    /// Waits until nobody else holds it.
    fn lock(&self) -> Self::Guard<'_>;
}

/// Memory that several threads may touch: `len` words of 64 bits, 0xff everywhere at first.
///
/// An implementation may check that nobody writes while somebody else touches it; one for real threads must only keep
/// such a race from being worse than wrong bytes.
pub trait Cell: Send + Sync {
    /// A cell of so many words in a tier.
    fn new(tier: Tier, words: usize) -> Self;
    /// The number of words.
    fn len(&self) -> usize;
    /// Whether it has no words.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads `out.len()` words from `first` on.
    ///
    /// # Panics
    /// If they go beyond the end.
    fn load(&self, first: usize, out: &mut [u64]);
    /// Writes words from `first` on.
    ///
    /// # Panics
    /// If they go beyond the end.
    fn store(&self, first: usize, words: &[u64]);
    /// Reads words of many cells, in any order.
    ///
    /// # Panics
    /// If words go beyond the end.
    fn load_all(parts: &[(&Self, Range<usize>)]) -> Vec<Vec<u64>>
    where
        Self: Sized,
    {
        let load = |(cell, words): &(&Self, Range<usize>)| {
            let mut out = vec![0; words.len()];
            cell.load(words.start, &mut out);
            out
        };
        parts.iter().map(load).collect()
    }
    /// Makes many copies, in any order: from a cell, to another one, these words.
    ///
    /// # Panics
    /// If words go beyond the end of either.
    fn copy_all(moves: &[(&Self, &Self, Range<usize>)])
    where
        Self: Sized,
    {
        for (from, to, words) in moves {
            to.copy_from(from, words.clone());
        }
    }
    /// Copies words from the same place of another cell.
    ///
    /// # Panics
    /// If they go beyond the end of either.
    fn copy_from(&self, other: &Self, words: Range<usize>) {
        let mut buffer = [0u64; 128];
        let mut at = words.start;
        while at < words.end {
            let count = buffer.len().min(words.end - at);
            other.load(at, &mut buffer[..count]);
            self.store(at, &buffer[..count]);
            at += count;
        }
    }
}
