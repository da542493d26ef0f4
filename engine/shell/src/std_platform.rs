//! Real threads.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvweft_core::Tier;

use crate::platform::{Cell, Guard, Lock, Platform};

/// The platform of real threads and real memory.
#[derive(Debug)]
pub struct Std;

/// Words that are read and written one by one, without any order: a race gives torn bytes, as on a GPU, and no undefined
/// behaviour.
#[derive(Debug)]
pub struct Words(Box<[AtomicU64]>);

const POISONED: &str = "another thread panicked while it held this lock";

impl Platform for Std {
    const DEVICE: &'static str = "host";
    type Mutex<T: Send + 'static> = Mutex<T>;
    type Condvar = Condvar;
    type Cell = Words;
    type Join = JoinHandle<()>;
    type Queued = Infallible;

    fn wait<'a, T: Send + 'static>(condvar: &Condvar, guard: Guard<'a, Std, T>) -> Guard<'a, Std, T> {
        condvar.wait(guard).expect(POISONED)
    }

    fn notify_all(condvar: &Condvar) {
        condvar.notify_all();
    }

    fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        std::thread::Builder::new().name(name).spawn(work).expect("the system has room for one more thread")
    }

    fn join(thread: JoinHandle<()>) -> Result<(), String> {
        let name = thread.thread().name().unwrap_or("a thread").to_owned();
        thread.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
            format!("{name}: {text}")
        })
    }

    fn pause_us(duration: u64) {
        if duration > 0 {
            std::thread::sleep(Duration::from_micros(duration));
        }
    }

    fn now_us() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_micros() as u64
    }
}

impl<T: Send> Lock<T> for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Mutex::new(value)
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        Mutex::lock(self).expect(POISONED)
    }
}

impl Cell for Words {
    fn new(_: Tier, words: usize) -> Self {
        Words((0..words).map(|_| AtomicU64::new(u64::MAX)).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn load(&self, first: usize, out: &mut [u64]) {
        let words = &self.0[first..first + out.len()];
        for (out, word) in out.iter_mut().zip(words) {
            *out = word.load(Ordering::Relaxed);
        }
    }

    fn store(&self, first: usize, words: &[u64]) {
        for (word, cell) in words.iter().zip(&self.0[first..first + words.len()]) {
            cell.store(*word, Ordering::Relaxed);
        }
    }

    fn copy_from(&self, other: &Self, words: Range<usize>) {
        let (to, from) = (&self.0[words.clone()], &other.0[words]);
        for (to, from) in to.iter().zip(from) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
