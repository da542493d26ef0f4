//! Cells in pools.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvweft_core::Tier;
use kvweft_kernels::gpu::{Job, PagePool, Span};
use kvweft_shell::ask::{Added, Addends, Found, Search};
use kvweft_shell::platform::{Cell, Move, Store};

use super::desk::{Desk, room_for_jobs, with_desk};
use super::{add, home, search, working};
use crate::error::CudaError;
use crate::memory::{DevicePool, HostPool};

/// Cells begin at multiples of this. Pages of 64 entries are such multiples themselves, so that they lie side by side.
const ALIGN: usize = 64;
/// What copies of the ring kernel begin at and are multiples of.
const VECTOR: usize = 16;
/// Thread blocks of a copy that a thread waits for: few, so that a forward step keeps the rest.
const COPY_BLOCKS: u32 = 8;
/// Memory for the cells of one unit in one tier, at one distance, and for one more cell behind them, which is never written:
/// poison.
pub(super) struct Region {
    memory: Memory,
    /// The GPU whose memory it is, or that copies into it.
    pub(super) gpu: usize,
    pub(super) stride: usize,
    pub(super) count: usize,
}

enum Memory {
    Device(DevicePool),
    Host(HostPool),
}

impl Region {
    fn new(gpu: usize, tier: Tier, words: usize, count: usize) -> Result<Region, CudaError> {
        let stride = (words * 8).next_multiple_of(ALIGN);
        let (bytes, on) = (stride * (count + 1), &home().gpus[gpu]);
        let memory = if tier == Tier::DEVICE {
            let pool = DevicePool::new(on, bytes as u64)?;
            with_desk(gpu, |desk| {
                pool.fill(desk.raw(), pool.span(), 0xff)?;
                desk.stream.synchronize()
            })?;
            Memory::Device(pool)
        } else {
            let mut pool = HostPool::new(on, bytes)?;
            pool.bytes_mut().fill(0xff);
            Memory::Host(pool)
        };
        Ok(Region { memory, gpu, stride, count })
    }

    fn span(&self) -> Span {
        match &self.memory {
            Memory::Device(pool) => pool.span(),
            // SAFETY: the host touches these bytes as atomic words only, and holds no reference to them.
            #[allow(unsafe_code)]
            Memory::Host(pool) => unsafe { pool.span() },
        }
    }

    /// For kernels: the pages, and the poisoned one.
    pub(super) fn pool(&self) -> PagePool {
        working(PagePool::new(self.span(), self.stride as u64, self.count as u32 + 1))
    }

    pub(super) fn poison(&self) -> Span {
        self.span().part((self.count * self.stride) as u64, self.stride as u64)
    }
}

/// A cell of page memory.
pub struct Pages {
    pub(super) region: Arc<Region>,
    /// Its place in the region.
    pub(super) at: usize,
    words: usize,
}

impl Pages {
    /// Its memory, as devices address it.
    pub fn span(&self) -> Span {
        self.span_behind(0, (self.words * 8) as u64)
    }

    /// So many bytes from one of its bytes on, maybe beyond its end.
    pub(super) fn span_behind(&self, begin: u64, bytes: u64) -> Span {
        self.region.span().part((self.at * self.region.stride) as u64 + begin, bytes)
    }

    /// The same, and what is between it and the next cell.
    pub(super) fn room(&self) -> Span {
        self.span_behind(0, self.region.stride as u64)
    }

    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.region.memory, Memory::Device(_))
    }

    fn check(&self, first: usize, count: usize) {
        assert!(first + count <= self.words, "{count} words at {first} of {}", self.words);
    }
}

/// The GPU that copies from one cell to another, if one can: it has one of them in its memory and reaches the other.
pub(super) fn copier(from: &Pages, to: &Pages) -> Option<usize> {
    let near = from.region.gpu == to.region.gpu || home().peers;
    match (from.is_on_device(), to.is_on_device()) {
        (true, true) => near.then_some(from.region.gpu),
        (true, false) => Some(from.region.gpu),
        (false, _) => Some(to.region.gpu),
    }
}

/// A copy of words as a job of the ring kernel, if they begin and end at its vectors.
pub(super) fn job((from, to, words): &Move<'_, Pages>, slot: usize) -> Option<Job> {
    let part = |cell: &Pages| cell.span().part((words.start * 8) as u64, (words.len() * 8) as u64);
    Job::new(part(from), part(to), slot as u32, 0).ok()
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Cell for Pages {
    const COMPUTES: bool = true;

    fn new(tier: Tier, words: usize) -> Pages {
        Pages::pool(0, tier, words, 1).swap_remove(0)
    }

    fn pool(engine: u8, tier: Tier, words: usize, count: usize) -> Vec<Pages> {
        let gpu = usize::from(engine).min(home().gpus.len() - 1);
        let region = Arc::new(working(Region::new(gpu, tier, words, count)));
        (0..count).map(|at| Pages { region: Arc::clone(&region), at, words }).collect()
    }

    fn len(&self) -> usize {
        self.words
    }

    fn load(&self, first: usize, out: &mut [u64]) {
        self.check(first, out.len());
        match &self.region.memory {
            Memory::Device(_) => {
                out.copy_from_slice(&Pages::load_all(&[(self, first..first + out.len())])[0]);
            }
            Memory::Host(pool) => {
                let begin = self.at * self.region.stride;
                let half = |at: usize| u64::from(pool.word(begin + at).load(Ordering::Relaxed));
                for (at, word) in (first..).zip(out) {
                    *word = half(at * 8) | half(at * 8 + 4) << 32;
                }
            }
        }
    }

    fn store(&self, first: usize, words: &[u64]) {
        self.check(first, words.len());
        match &self.region.memory {
            Memory::Device(_) => Pages::store_all(&[(self, first, words.to_vec())]),
            Memory::Host(pool) => {
                let begin = self.at * self.region.stride;
                let half = |at: usize, value: u32| pool.word(begin + at).store(value, Ordering::Relaxed);
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

    /// One launch gathers all that lies on a device into pinned memory, where the host reads it.
    fn load_all(parts: &[(&Pages, Range<usize>)]) -> Vec<Vec<u64>> {
        let mut out: Vec<Vec<u64>> = parts.iter().map(|(_, words)| Vec::with_capacity(words.len())).collect();
        let mut far: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, (cell, words)) in parts.iter().enumerate() {
            cell.check(words.start, words.len());
            if cell.is_on_device() && !words.is_empty() {
                far.entry(cell.region.gpu).or_default().push(place);
            } else {
                out[place].resize(words.len(), 0);
                cell.load(words.start, &mut out[place]);
            }
        }
        for (gpu, places) in far {
            // Whole vectors, and then what is wanted of them.
            let vectors = |place: usize| {
                let words = &parts[place].1;
                words.start * 8 / VECTOR * VECTOR..(words.end * 8).next_multiple_of(VECTOR)
            };
            let total: usize = places.iter().map(|place| vectors(*place).len()).sum();
            with_desk(gpu, |desk| {
                let (up, device) = room_for_jobs(0, places.len());
                desk.room(up, total, device);
                let (down, mut at) = (desk.down_span(), 0);
                let job = |(slot, place): (usize, &usize)| {
                    let bytes = vectors(*place);
                    let from = parts[*place].0.room().part(bytes.start as u64, bytes.len() as u64);
                    let to = down.part(at as u64, bytes.len() as u64);
                    at += bytes.len();
                    working(Job::new(from, to, slot as u32, 0))
                };
                let jobs: Vec<Job> = places.iter().enumerate().map(job).collect();
                desk.copy(&jobs, 0, COPY_BLOCKS);
                let mut at = 0;
                for place in places {
                    let (bytes, words) = (vectors(place), &parts[place].1);
                    let begin = at + words.start * 8 - bytes.start;
                    out[place].extend(words_of(&desk.down.bytes()[begin..][..words.len() * 8]));
                    at += bytes.len();
                }
            });
        }
        out
    }

    /// One launch scatters all that goes to a device out of pinned memory.
    fn store_all(parts: &[Store<'_, Pages>]) {
        let mut far: BTreeMap<usize, Vec<&Store<'_, Pages>>> = BTreeMap::new();
        for part in parts {
            let (cell, first, words) = part;
            cell.check(*first, words.len());
            if cell.is_on_device() && !words.is_empty() {
                far.entry(cell.region.gpu).or_default().push(part);
            } else {
                cell.store(*first, words);
            }
        }
        for (gpu, parts) in far {
            with_desk(gpu, |desk| scatter(desk, &parts));
        }
    }

    fn search(requests: &[(Search, Vec<&Pages>)], checksums: bool) -> Vec<Found> {
        search::search(requests, checksums)
    }

    fn add(requests: &[(Addends, Vec<&Pages>)], checksums: bool) -> Vec<Added> {
        add::add(requests, checksums)
    }

    /// One launch for each GPU that copies; what none can copy goes through the host.
    fn copy_all(moves: &[Move<'_, Pages>]) {
        let mut jobs: BTreeMap<usize, Vec<Job>> = BTreeMap::new();
        let mut by_host: Vec<&Move<'_, Pages>> = Vec::new();
        for one in moves.iter().filter(|(_, _, words)| !words.is_empty()) {
            let gpu = copier(one.0, one.1);
            let list = gpu.map(|gpu| jobs.entry(gpu).or_default());
            match list.and_then(|list| job(one, list.len()).map(|job| list.push(job))) {
                Some(()) => {}
                None => by_host.push(one),
            }
        }
        for (gpu, jobs) in jobs {
            with_desk(gpu, |desk| {
                let (up, device) = room_for_jobs(0, jobs.len());
                desk.room(up, 0, device);
                desk.copy(&jobs, 0, COPY_BLOCKS);
            });
        }
        if !by_host.is_empty() {
            let parts: Vec<_> = by_host.iter().map(|(from, _, words)| (*from, words.clone())).collect();
            let words = Pages::load_all(&parts).into_iter();
            let parts: Vec<_> = by_host.iter().zip(words).map(|((_, to, at), words)| (*to, at.start, words)).collect();
            Pages::store_all(&parts);
        }
    }
}

/// Writes words from pinned memory into cells: whole vectors by the ring kernel, words beside them one by one.
fn scatter(desk: &mut Desk, parts: &[&Store<'_, Pages>]) {
    let total: usize = parts.iter().map(|(_, _, words)| (words.len() * 8).next_multiple_of(VECTOR) + VECTOR).sum();
    let (up, device) = room_for_jobs(total, parts.len());
    desk.room(up, 0, device);
    let (source, mut jobs, mut at) = (desk.up_span(), Vec::new(), 0);
    let mut beside = Vec::new();
    for (cell, first, words) in parts {
        // Staged so that vectors of the target are vectors here.
        let begin = at + first * 8 % VECTOR;
        for (bytes, word) in desk.up.bytes_mut()[begin..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        let target = |word: usize, count: usize| cell.span().part((word * 8) as u64, (count * 8) as u64);
        let (inner, end) = (first.next_multiple_of(2), (first + words.len()) / 2 * 2);
        if inner < end {
            let staged = source.part((begin + (inner - first) * 8) as u64, ((end - inner) * 8) as u64);
            jobs.push(working(Job::new(staged, target(inner, end - inner), jobs.len() as u32, 0)));
        }
        for word in (*first..first + words.len()).filter(|word| *word < inner || *word >= end.max(inner)) {
            beside.push((begin + (word - first) * 8, target(word, 1)));
        }
        at += (words.len() * 8).next_multiple_of(VECTOR) + VECTOR;
    }
    for (at, to) in beside {
        // SAFETY: these bytes stay as they are until the stream has been waited for, below.
        #[allow(unsafe_code)]
        working(unsafe { desk.up.copy_to(desk.raw(), at, to) });
    }
    desk.copy(&jobs, total, COPY_BLOCKS);
    desk.wait();
}
