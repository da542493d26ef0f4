//! What the shell needs of the machine it runs on: locks, threads, and memory that several threads touch.
//!
//! The implementation for real threads is [`Std`](crate::Std). Model checkers of threads bring their own, so that one
//! binary runs the same code under all of them.

use std::convert::Infallible;
use std::ops::{DerefMut, Range};

use kvweft_core::Tier;

use crate::ask::{Added, Addends, Found, Search};

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
    /// Copies that a device has in its order. [`Infallible`] where threads make them.
    type Queued: Queued;

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
    /// Hands batches of copies to the device, one behind the other, and returns before they have happened. With `held`,
    /// each waits on the device until its turn is given. `None` where the device has no order of its own, or cannot make
    /// these copies: then a thread makes them.
    fn queue<'a>(batches: impl FnOnce() -> Vec<Vec<Move<'a, Self::Cell>>>, held: bool) -> Option<Self::Queued> {
        let _ = (batches, held);
        None
    }
    /// Lets time pass, where there is any.
    fn pause_us(duration: u64) {
        let _ = duration;
    }
    /// Microseconds since some moment; always 0 where there is no clock.
    fn now_us() -> u64 {
        0
    }
}

/// A copy: from a cell, to another one, these words.
pub type Move<'a, C> = (&'a C, &'a C, Range<usize>);

/// Words for a cell, from a word on.
pub type Store<'a, C> = (&'a C, usize, Vec<u64>);

/// Batches of copies in the order of a device. Dropping them gives all that are left their turn, and waits.
pub trait Queued {
    /// The moment at which a batch has been made, for other orders of the device.
    type Mark: Clone + Send + 'static;
    /// Gives a batch its turn, and waits until it has been made. Batches get their turns one after the other.
    fn settle(&self, batch: usize);
    /// When a batch has been made.
    fn mark(&self, batch: usize) -> Self::Mark;
    /// Lets all that the calling thread does next on the device wait for that moment, and does not wait itself.
    fn follow(mark: &Self::Mark);
}

impl Queued for Infallible {
    type Mark = Infallible;

    fn settle(&self, _: usize) {
        match *self {}
    }

    fn mark(&self, _: usize) -> Infallible {
        match *self {}
    }

    fn follow(mark: &Infallible) {
        match *mark {}
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
    /// Whether [`Cell::search`] and [`Cell::add`] are there.
    const COMPUTES: bool = false;
    /// A cell of so many words in a tier.
    fn new(tier: Tier, words: usize) -> Self;
    /// Cells of one size that lie side by side: one unit of all pages of a tier of an engine.
    fn pool(engine: u8, tier: Tier, words: usize, count: usize) -> Vec<Self>
    where
        Self: Sized,
    {
        let _ = engine;
        (0..count).map(|_| Self::new(tier, words)).collect()
    }
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
    /// Writes words into many cells, from a word of each on, in any order.
    ///
    /// # Panics
    /// If words go beyond the end.
    fn store_all(parts: &[Store<'_, Self>])
    where
        Self: Sized,
    {
        for (cell, first, words) in parts {
            cell.store(*first, words);
        }
    }
    /// Scores and selects where the cells are, for each request over the cells of its pages, all of one pool: as
    /// [`Search::by_host`] does with their bytes, bit for bit in the exact mode. With `checksums`, also tells those of the very
    /// bytes that were scored.
    ///
    /// # Panics
    /// Unless [`Cell::COMPUTES`].
    fn search(requests: &[(Search, Vec<&Self>)], checksums: bool) -> Vec<Found>
    where
        Self: Sized,
    {
        let _ = (requests, checksums);
        unreachable!("this memory computes nothing")
    }
    /// Adds up rows where the cells are, likewise: as [`Addends::by_host`] does, bit for bit.
    ///
    /// # Panics
    /// Unless [`Cell::COMPUTES`].
    fn add(requests: &[(Addends, Vec<&Self>)], checksums: bool) -> Vec<Added>
    where
        Self: Sized,
    {
        let _ = (requests, checksums);
        unreachable!("this memory computes nothing")
    }
    /// Makes many copies, in any order.
    ///
    /// # Panics
    /// If words go beyond the end of either.
    fn copy_all(moves: &[Move<'_, Self>])
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
