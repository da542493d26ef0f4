//! The shell's platform with the page memory of a GPU: device pages in its memory, host pages in pinned memory.
//!
//! Threads and locks are those of the host. Each thread has a stream of its own; a copy of pages between tiers, or into the
//! pages of the peer, is one launch of the copy kernel, and is waited for before the thread goes on, so that gates which
//! hold threads hold the GPU's copies too.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use kvweft_core::Tier;
use kvweft_kernels::gpu::{CopyMethod, JOB_BYTES, Job, Span};
use kvweft_shell::platform::{Cell, Guard};
use kvweft_shell::{Platform, Std};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::{DevicePool, HostPool};
use crate::stream::{Priority, Stream};

/// Bytes that are taken from a device or from pinned memory at once.
const SLAB_BYTES: usize = 64 << 20;
/// Cells begin at multiples of this.
const ALIGN: usize = 256;
/// Thread blocks that a copy may have: few, so that a forward step keeps the rest.
const COPY_BLOCKS: u32 = 8;

/// The platform of real threads with a GPU's memory.
#[derive(Debug)]
pub struct Cuda;

/// The GPU of this process, and its memory.
struct Home {
    gpu: Gpu,
    device: Mutex<Arena<DevicePool>>,
    host: Mutex<Arena<HostPool>>,
}

static HOME: OnceLock<Home> = OnceLock::new();

/// Memory in slabs. What is given back is given out again to cells of the same size.
struct Arena<S: 'static> {
    slabs: Vec<&'static S>,
    /// Bytes of the last slab that are taken.
    taken: usize,
    free: BTreeMap<usize, Vec<Place<S>>>,
}

/// A part of a slab.
struct Place<S: 'static> {
    slab: &'static S,
    at: usize,
}

impl<S> Clone for Place<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Place<S> {}

impl<S> Arena<S> {
    fn new() -> Arena<S> {
        Arena { slabs: Vec::new(), taken: SLAB_BYTES, free: BTreeMap::new() }
    }

    fn take(&mut self, bytes: usize, slab: impl Fn(usize) -> Result<S, CudaError>) -> Result<Place<S>, CudaError> {
        let bytes = bytes.next_multiple_of(ALIGN);
        if let Some(place) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(place);
        }
        if self.taken + bytes > SLAB_BYTES {
            // Lives as long as the process: cells of any thread may refer to it.
            self.slabs.push(Box::leak(Box::new(slab(bytes.max(SLAB_BYTES))?)));
            self.taken = 0;
        }
        let slab: &'static S = self.slabs.last().expect("there is one now");
        let place = Place { slab, at: self.taken };
        self.taken += bytes;
        Ok(place)
    }

    fn give_back(&mut self, place: Place<S>, bytes: usize) {
        self.free.entry(bytes.next_multiple_of(ALIGN)).or_default().push(place);
    }
}

fn home() -> &'static Home {
    HOME.get().expect("`Cuda::open` comes before the first cell")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver has refused what it had accepted before: there is nothing to go on with.
fn working<T>(result: Result<T, CudaError>) -> T {
    result.unwrap_or_else(|error| panic!("the GPU stopped working: {error}"))
}

impl Cuda {
    /// Opens the GPU that all engines of this process use.
    ///
    /// # Errors
    /// What is missing; or [`CudaError`] of the driver.
    pub fn open(ordinal: usize) -> Result<&'static Gpu, CudaError> {
        if HOME.get().is_none() {
            let gpu = Gpu::open(ordinal)?;
            let home = Home { gpu, device: Mutex::new(Arena::new()), host: Mutex::new(Arena::new()) };
            // Another thread may have been first; then its GPU stays.
            let _ = HOME.set(home);
        }
        Ok(&home().gpu)
    }
}

impl Platform for Cuda {
    const DEVICE: &'static str = "cuda";
    type Mutex<T: Send + 'static> = Mutex<T>;
    type Condvar = Condvar;
    type Cell = Pages;
    type Join = JoinHandle<()>;

    fn wait<'a, T: Send + 'static>(condvar: &Condvar, guard: Guard<'a, Cuda, T>) -> Guard<'a, Cuda, T> {
        Std::wait(condvar, guard)
    }

    fn notify_all(condvar: &Condvar) {
        condvar.notify_all();
    }

    fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        Std::spawn(name, work)
    }

    fn join(thread: JoinHandle<()>) -> Result<(), String> {
        Std::join(thread)
    }

    fn pause_us(duration: u64) {
        Std::pause_us(duration);
    }

    fn now_us() -> u64 {
        Std::now_us()
    }
}

/// What a thread works with: a stream, and room for a list of jobs.
struct Own {
    stream: Stream,
    jobs: DevicePool,
    checksums: DevicePool,
    room: usize,
    /// Pinned memory that gathered pages come to.
    staging: HostPool,
}

thread_local! {
    static OWN: std::cell::RefCell<Option<Own>> = const { std::cell::RefCell::new(None) };
}

/// A cell of page memory.
pub struct Pages {
    place: PlaceOf,
    words: usize,
}

enum PlaceOf {
    Device(Place<DevicePool>),
    Host(Place<HostPool>),
}

impl Pages {
    /// Its memory, as the device addresses it.
    pub fn span(&self) -> Span {
        let bytes = (self.words * 8) as u64;
        match &self.place {
            PlaceOf::Device(place) => place.slab.span().part(place.at as u64, bytes),
            // SAFETY: the host touches these bytes as atomic words only, and holds no reference to them.
            #[allow(unsafe_code)]
            PlaceOf::Host(place) => unsafe { place.slab.span() }.part(place.at as u64, bytes),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match &self.place {
            PlaceOf::Device(place) => lock(&home().device).give_back(*place, self.words * 8),
            PlaceOf::Host(place) => lock(&home().host).give_back(*place, self.words * 8),
        }
    }
}

impl Cell for Pages {
    fn new(tier: Tier, words: usize) -> Pages {
        let home = home();
        let place = if tier == Tier::DEVICE {
            PlaceOf::Device(working(
                lock(&home.device).take(words * 8, |bytes| DevicePool::new(&home.gpu, bytes as u64)),
            ))
        } else {
            PlaceOf::Host(working(lock(&home.host).take(words * 8, |bytes| HostPool::new(&home.gpu, bytes))))
        };
        let cell = Pages { place, words };
        cell.store(0, &vec![u64::MAX; words]);
        cell
    }

    fn len(&self) -> usize {
        self.words
    }

    fn load(&self, first: usize, out: &mut [u64]) {
        assert!(first + out.len() <= self.words, "{} words at {first} of {}", out.len(), self.words);
        match &self.place {
            PlaceOf::Device(place) => {
                let mut bytes = vec![0u8; out.len() * 8];
                working(place.slab.read((place.at + first * 8) as u64, &mut bytes));
                for (word, bytes) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
            }
            PlaceOf::Host(place) => {
                let half = |at: usize| u64::from(place.slab.word(place.at + at).load(Ordering::Relaxed));
                for (at, word) in (first..).zip(out) {
                    *word = half(at * 8) | half(at * 8 + 4) << 32;
                }
            }
        }
    }

    fn store(&self, first: usize, words: &[u64]) {
        assert!(first + words.len() <= self.words, "{} words at {first} of {}", words.len(), self.words);
        match &self.place {
            PlaceOf::Device(place) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                working(place.slab.write((place.at + first * 8) as u64, &bytes));
            }
            PlaceOf::Host(place) => {
                let half = |at: usize, value: u32| place.slab.word(place.at + at).store(value, Ordering::Relaxed);
                for (at, word) in (first..).zip(words) {
                    half(at * 8, *word as u32);
                    half(at * 8 + 4, (*word >> 32) as u32);
                }
            }
        }
    }

    fn copy_from(&self, other: &Pages, words: Range<usize>) {
        Pages::copy_all(&[(other, self, words)]);
    }

    /// One launch gathers all that begin and end at multiples of 16 bytes into pinned memory, where the host reads them.
    fn load_all(parts: &[(&Pages, Range<usize>)]) -> Vec<Vec<u64>> {
        let on_device = |cell: &Pages| matches!(cell.place, PlaceOf::Device(_));
        let bytes = |words: &Range<usize>| (words.len() * 8).next_multiple_of(16);
        let total: usize = parts.iter().map(|(_, words)| bytes(words)).sum();
        let mut out: Vec<Vec<u64>> = Vec::with_capacity(parts.len());
        let gathered = with_own(parts.len(), total, |own| {
            // SAFETY: the host reads these bytes only after the launch below was waited for.
            #[allow(unsafe_code)]
            let staging = unsafe { own.staging.span() };
            let (mut jobs, mut count, mut at) = (Vec::new(), 0, 0);
            let mut places = Vec::with_capacity(parts.len());
            for (cell, words) in parts {
                let length = (words.len() * 8) as u64;
                let job = if on_device(cell) && length > 0 {
                    let from = cell.span().part((words.start * 8) as u64, length);
                    Job::new(from, staging.part(at as u64, length), count, 0).ok()
                } else {
                    None
                };
                places.push(job.is_some().then_some(at));
                if let Some(job) = job {
                    jobs.extend_from_slice(&job.to_bytes());
                    count += 1;
                    at += bytes(words);
                }
            }
            (jobs, count, places)
        });
        let (jobs, count, places) = gathered;
        if count > 0 {
            launch(&jobs, count);
        }
        with_own(parts.len(), total, |own| {
            let staged = own.staging.bytes();
            for ((cell, words), place) in parts.iter().zip(&places) {
                let mut found = vec![0; words.len()];
                match place {
                    Some(at) => {
                        for (word, bytes) in found.iter_mut().zip(staged[*at..].as_chunks::<8>().0) {
                            *word = u64::from_le_bytes(*bytes);
                        }
                    }
                    None => cell.load(words.start, &mut found),
                }
                out.push(found);
            }
        });
        out
    }

    /// One launch for all that begin and end at multiples of 16 bytes; the others go through the host.
    fn copy_all(moves: &[(&Pages, &Pages, Range<usize>)]) {
        let mut jobs: Vec<u8> = Vec::new();
        let mut count = 0;
        for (from, to, words) in moves.iter().filter(|(_, _, words)| !words.is_empty()) {
            let part = |cell: &Pages| cell.span().part((words.start * 8) as u64, (words.len() * 8) as u64);
            match Job::new(part(from), part(to), count, 0) {
                Ok(job) => {
                    jobs.extend_from_slice(&job.to_bytes());
                    count += 1;
                }
                Err(_) => {
                    let mut buffer = vec![0; words.len()];
                    from.load(words.start, &mut buffer);
                    to.store(words.start, &buffer);
                }
            }
        }
        if count > 0 {
            launch(&jobs, count);
        }
    }
}

/// Works with what the thread has for itself, which has room for so many jobs and staged bytes.
fn with_own<T>(jobs: usize, staged: usize, work: impl FnOnce(&Own) -> T) -> T {
    OWN.with_borrow_mut(|own| {
        let fits = own.as_ref().is_some_and(|own| own.room >= jobs && own.staging.bytes().len() >= staged);
        if !fits {
            let (had_jobs, had_staged) =
                own.as_ref().map_or((256, 1 << 20), |own| (own.room, own.staging.bytes().len()));
            let (jobs, staged) = (jobs.max(had_jobs).next_power_of_two(), staged.max(had_staged).next_power_of_two());
            *own = Some(working(new_own(home(), jobs, staged)));
        }
        work(own.as_ref().expect("just made"))
    })
}

/// Runs a list of jobs on the thread's own stream, and waits for it.
fn launch(jobs: &[u8], count: u32) {
    let home = home();
    with_own(count as usize, 0, |own| {
        working(own.jobs.write(0, jobs));
        // SAFETY: the jobs were just written; their spans are parts of slabs that are never freed; the manager hands a page
        // out once, so that targets do not overlap (with a rule dropped they may, and then bytes are wrong, as they should
        // be); slots count from 0 within the room.
        #[allow(unsafe_code)]
        let launched = unsafe {
            home.gpu.kernels().page_copy.launch(
                own.stream.raw(),
                CopyMethod::Ring,
                COPY_BLOCKS,
                own.jobs.span(),
                count,
                own.checksums.span(),
            )
        };
        working(launched.map_err(CudaError::from));
        working(own.stream.synchronize());
    });
}

fn new_own(home: &Home, room: usize, staged: usize) -> Result<Own, CudaError> {
    home.gpu.bind()?;
    Ok(Own {
        stream: Stream::new(&home.gpu, Priority::High)?,
        jobs: DevicePool::new(&home.gpu, room as u64 * JOB_BYTES)?,
        checksums: DevicePool::new(&home.gpu, room as u64 * 8)?,
        room,
        staging: HostPool::new(&home.gpu, staged)?,
    })
}
