//! Locks, threads and page memory of loom, which runs every interleaving.

#![allow(unsafe_code, reason = "loom's cell is not `Sync`, and is shared to find out who does not lock")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use kvweft_core::Tier;
use kvweft_shell::Platform;
use kvweft_shell::platform::{Cell, Guard, Lock};
use loom::sync::MutexGuard;

/// The platform of a loom model. Everything of it must be made inside the model.
#[derive(Debug)]
pub struct LoomPlatform;

/// A lock of loom.
#[derive(Debug)]
pub struct LoomMutex<T>(loom::sync::Mutex<T>);

/// A condition variable of loom.
#[derive(Debug)]
pub struct LoomCondvar(loom::sync::Condvar);

/// Page memory. Loom is told of every access, and panics with "Causality violation" if nothing orders two of them of which
/// one writes, whether or not they come to overlap in this interleaving.
#[derive(Debug)]
pub struct LoomCell {
    words: Box<[AtomicU64]>,
    access: loom::cell::UnsafeCell<()>,
}

// SAFETY: the cell that is shared without a lock holds `()`, and the pointer to it is never followed. Loom keeps its own
// record of the accesses, and runs one thread at a time.
unsafe impl Sync for LoomCell {}

const POISONED: &str = "another thread panicked while it held this lock";

impl Default for LoomCondvar {
    fn default() -> Self {
        LoomCondvar(loom::sync::Condvar::new())
    }
}

impl Platform for LoomPlatform {
    const DEVICE: &str = "loom";
    type Mutex<T: Send + 'static> = LoomMutex<T>;
    type Condvar = LoomCondvar;
    type Cell = LoomCell;
    type Join = loom::thread::JoinHandle<()>;
    type Queued = Infallible;

    fn wait<'a, T: Send + 'static>(condvar: &LoomCondvar, guard: Guard<'a, Self, T>) -> Guard<'a, Self, T> {
        condvar.0.wait(guard).expect(POISONED)
    }

    fn notify_all(condvar: &LoomCondvar) {
        condvar.0.notify_all();
    }

    fn spawn(_: String, work: impl FnOnce() + Send + 'static) -> Self::Join {
        loom::thread::spawn(work)
    }

    fn join(thread: Self::Join) -> Result<(), String> {
        thread.join().map_err(|_| "a thread of the model panicked".to_owned())
    }
}

impl<T: Send + 'static> Lock<T> for LoomMutex<T> {
    type Guard<'a> = MutexGuard<'a, T>;

    fn new(value: T) -> Self {
        LoomMutex(loom::sync::Mutex::new(value))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect(POISONED)
    }
}

impl Cell for LoomCell {
    fn new(_: Tier, words: usize) -> Self {
        let words = (0..words).map(|_| AtomicU64::new(u64::MAX)).collect();
        LoomCell { words, access: loom::cell::UnsafeCell::new(()) }
    }

    fn len(&self) -> usize {
        self.words.len()
    }

    fn load(&self, first: usize, out: &mut [u64]) {
        self.access.with(|_| {
            for (out, word) in out.iter_mut().zip(&self.words[first..]) {
                *out = word.load(Ordering::Relaxed);
            }
        });
    }

    fn store(&self, first: usize, words: &[u64]) {
        self.access.with_mut(|_| {
            for (word, cell) in words.iter().zip(&self.words[first..]) {
                cell.store(*word, Ordering::Relaxed);
            }
        });
    }
}
