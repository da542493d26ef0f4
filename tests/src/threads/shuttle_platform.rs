//! Locks, threads and page memory of shuttle, which runs interleavings by lot.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kvweft_core::Tier;
use kvweft_shell::Platform;
use kvweft_shell::platform::{Cell, Guard, Lock};
use shuttle::sync::MutexGuard;

/// The platform of a shuttle test. Everything of it must be made inside the test.
#[derive(Debug)]
pub struct ShuttlePlatform;

/// A lock of shuttle.
#[derive(Debug)]
pub struct ShuttleMutex<T>(shuttle::sync::Mutex<T>);

/// A condition variable of shuttle.
#[derive(Debug, Default)]
pub struct ShuttleCondvar(shuttle::sync::Condvar);

/// Page memory. Every access begins, lets other threads run, and ends; one that meets another is a panic.
#[derive(Debug)]
pub struct ShuttleCell {
    words: Box<[AtomicU64]>,
    readers: AtomicU32,
    writers: AtomicU32,
    /// Where shuttle may turn to another thread. Not a yield, which would tell its schedulers that this thread waits.
    switch: shuttle::sync::atomic::AtomicBool,
}

const POISONED: &str = "another thread panicked while it held this lock";

/// What a panic says where accesses meet.
pub const OVERLAP: &str = "a page cell is written while";

impl Platform for ShuttlePlatform {
    const DEVICE: &str = "shuttle";
    type Mutex<T: Send + 'static> = ShuttleMutex<T>;
    type Condvar = ShuttleCondvar;
    type Cell = ShuttleCell;
    type Join = shuttle::thread::JoinHandle<()>;
    type Queued = Infallible;

    fn wait<'a, T: Send + 'static>(condvar: &ShuttleCondvar, guard: Guard<'a, Self, T>) -> Guard<'a, Self, T> {
        condvar.0.wait(guard).expect(POISONED)
    }

    fn notify_all(condvar: &ShuttleCondvar) {
        condvar.0.notify_all();
    }

    fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Self::Join {
        shuttle::thread::Builder::new().name(name).spawn(work).expect("shuttle starts every thread")
    }

    fn join(thread: Self::Join) -> Result<(), String> {
        thread.join().map_err(|_| "a thread panicked".to_owned())
    }
}

impl<T: Send + 'static> Lock<T> for ShuttleMutex<T> {
    type Guard<'a> = MutexGuard<'a, T>;

    fn new(value: T) -> Self {
        ShuttleMutex(shuttle::sync::Mutex::new(value))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect(POISONED)
    }
}

impl ShuttleCell {
    fn turn_to_others(&self) {
        self.switch.load(Ordering::SeqCst);
    }
}

impl Cell for ShuttleCell {
    fn new(_: Tier, words: usize) -> Self {
        ShuttleCell {
            words: (0..words).map(|_| AtomicU64::new(u64::MAX)).collect(),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            switch: shuttle::sync::atomic::AtomicBool::new(false),
        }
    }

    fn len(&self) -> usize {
        self.words.len()
    }

    fn load(&self, first: usize, out: &mut [u64]) {
        self.readers.fetch_add(1, Ordering::SeqCst);
        assert!(self.writers.load(Ordering::SeqCst) == 0, "{OVERLAP} this thread reads it");
        self.turn_to_others();
        for (out, word) in out.iter_mut().zip(&self.words[first..]) {
            *out = word.load(Ordering::Relaxed);
        }
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    fn store(&self, first: usize, words: &[u64]) {
        let others = self.writers.fetch_add(1, Ordering::SeqCst);
        assert!(others == 0, "{OVERLAP} this thread writes it");
        assert!(self.readers.load(Ordering::SeqCst) == 0, "{OVERLAP} another thread reads it");
        self.turn_to_others();
        for (word, cell) in words.iter().zip(&self.words[first..]) {
            cell.store(*word, Ordering::Relaxed);
        }
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
}
