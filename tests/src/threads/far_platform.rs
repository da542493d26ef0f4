//! Real threads and a device that is far away: it has copies in an order of its own, behind gates of its own, and computes
//! where the pages are. What a GPU does, without one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use kvweft_core::Tier;
use kvweft_shell::ask::{Added, Addends, Found, Search};
use kvweft_shell::platform::{Cell, Guard, Move, Queued};
use kvweft_shell::{Platform, Std, Words};

/// The platform.
#[derive(Debug)]
pub struct FarPlatform;

/// Page memory of the device.
#[derive(Clone, Debug)]
pub struct FarCell(Arc<Words>);

/// How many requests the device has answered: scores, sums.
pub static ANSWERED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// How often a thread has let the device wait in its place.
pub static FOLLOWED: AtomicUsize = AtomicUsize::new(0);

impl Platform for FarPlatform {
    const DEVICE: &str = "far";
    type Mutex<T: Send + 'static> = Mutex<T>;
    type Condvar = Condvar;
    type Cell = FarCell;
    type Join = JoinHandle<()>;
    type Queued = FarQueue;

    fn wait<'a, T: Send + 'static>(condvar: &Condvar, guard: Guard<'a, Self, T>) -> Guard<'a, Self, T> {
        Std::wait(condvar, guard)
    }

    fn notify_all(condvar: &Condvar) {
        Std::notify_all(condvar);
    }

    fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Self::Join {
        Std::spawn(name, work)
    }

    fn join(thread: Self::Join) -> Result<(), String> {
        Std::join(thread)
    }

    fn queue<'a>(batches: impl FnOnce() -> Vec<Vec<Move<'a, FarCell>>>, held: bool) -> Option<FarQueue> {
        Some(FarQueue::new(&batches(), held))
    }

    fn pause_us(duration: u64) {
        Std::pause_us(duration);
    }

    fn now_us() -> u64 {
        Std::now_us()
    }
}

/// Copies on a thread that stands for a stream.
#[derive(Debug)]
pub struct FarQueue {
    state: Arc<Stream>,
    batches: usize,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stream {
    /// How many batches may be made, and how many have been.
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

/// When a batch has been made.
#[derive(Clone, Debug)]
pub struct FarMark(Arc<Stream>, usize);

type Copy = (FarCell, FarCell, Range<usize>);

impl Stream {
    fn counts(&self) -> MutexGuard<'_, (usize, usize)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&(usize, usize)) -> bool) {
        let mut counts = self.counts();
        while !until(&counts) {
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut (usize, usize))) {
        change(&mut self.counts());
        self.changed.notify_all();
    }

    fn run(&self, batches: VecDeque<Vec<Copy>>) {
        for (at, batch) in batches.into_iter().enumerate() {
            self.wait(|(open, _)| *open > at);
            for (from, to, words) in batch {
                to.0.copy_from(&from.0, words);
            }
            self.change(|(_, made)| *made += 1);
        }
    }
}

impl FarQueue {
    fn new(batches: &[Vec<Move<'_, FarCell>>], held: bool) -> FarQueue {
        let copy = |(from, to, words): &Move<'_, FarCell>| ((*from).clone(), (*to).clone(), words.clone());
        let list: VecDeque<Vec<Copy>> = batches.iter().map(|batch| batch.iter().map(copy).collect()).collect();
        let state = Arc::new(Stream::default());
        if !held {
            state.change(|(open, _)| *open = list.len());
        }
        let (batches, stream) = (list.len(), Arc::clone(&state));
        FarQueue { state, batches, thread: Some(Std::spawn("far".to_owned(), move || stream.run(list))) }
    }
}

impl Queued for FarQueue {
    type Mark = FarMark;

    fn settle(&self, batch: usize) {
        self.state.change(|(open, _)| *open = (*open).max(batch + 1));
        self.state.wait(|(_, made)| *made > batch);
    }

    fn mark(&self, batch: usize) -> FarMark {
        FarMark(Arc::clone(&self.state), batch)
    }

    fn follow(mark: &FarMark) {
        FOLLOWED.fetch_add(1, Ordering::Relaxed);
        mark.0.wait(|(_, made)| *made > mark.1);
    }
}

impl Drop for FarQueue {
    fn drop(&mut self) {
        self.state.change(|(open, _)| *open = self.batches);
        if let Some(thread) = self.thread.take() {
            Std::join(thread).expect("a copy does not panic");
        }
    }
}

impl FarCell {
    fn bytes(&self) -> Vec<u8> {
        let mut words = vec![0; self.0.len()];
        self.0.load(0, &mut words);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// The bytes of the pages of each request, poison behind those that are there, and what the device answers about them.
fn answer<R, T>(
    requests: &[(R, Vec<&FarCell>)],
    of: impl Fn(&R, &[&[u8]]) -> T,
    needed: impl Fn(&R) -> usize,
) -> Vec<(T, Vec<Vec<u8>>)> {
    let answer = |(request, cells): &(R, Vec<&FarCell>)| {
        let pages: Vec<Vec<u8>> = cells.iter().map(|cell| cell.bytes()).collect();
        let poison = vec![0xff; 1 << 17];
        let mut all: Vec<&[u8]> = pages.iter().map(Vec::as_slice).collect();
        all.resize(all.len().max(needed(request)), &poison);
        (of(request, &all), pages)
    };
    requests.iter().map(answer).collect()
}

fn checksums(told: bool, pages: &[Vec<u8>]) -> Vec<u64> {
    let told = pages.iter().filter(|_| told);
    told.map(|page| kvweft_shell::pool::sum_of(page)).collect()
}

impl Cell for FarCell {
    const COMPUTES: bool = true;

    fn new(tier: Tier, words: usize) -> Self {
        FarCell(Arc::new(Words::new(tier, words)))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn load(&self, first: usize, out: &mut [u64]) {
        self.0.load(first, out);
    }

    fn store(&self, first: usize, words: &[u64]) {
        self.0.store(first, words);
    }

    fn search(requests: &[(Search, Vec<&Self>)], told: bool) -> Vec<Found> {
        ANSWERED[0].fetch_add(requests.len(), Ordering::Relaxed);
        let found = answer(requests, Search::by_host, Search::pages).into_iter();
        found.map(|(found, pages)| Found { checksums: checksums(told, &pages), ..found }).collect()
    }

    fn add(requests: &[(Addends, Vec<&Self>)], told: bool) -> Vec<Added> {
        ANSWERED[1].fetch_add(requests.len(), Ordering::Relaxed);
        let added = answer(requests, Addends::by_host, |_| 0).into_iter();
        added.map(|(added, pages)| Added { checksums: checksums(told, &pages), ..added }).collect()
    }
}
