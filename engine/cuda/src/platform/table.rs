//! Pages as kernels number them, and scratch memory in sections.

use std::ops::Range;

use kvweft_kernels::gpu::{JOB_BYTES, Job, PagePool, Span};

use super::desk::{Desk, launch, put_jobs};
use super::pages::{Pages, Region};
use super::working;

/// Sections of scratch memory begin at multiples of this.
const SECTION: usize = 256;

/// Hands out parts of scratch memory.
#[derive(Default)]
pub(super) struct Sections(pub(super) usize);

impl Sections {
    pub(super) fn take(&mut self, bytes: usize) -> Range<usize> {
        let begin = self.0.next_multiple_of(SECTION);
        self.0 = begin + bytes;
        begin..self.0
    }
}

/// The pages of some requests, all of one region. Where checksums are wanted, they are copied first, and the copies are used,
/// so that the checksums are of the very bytes that kernels read.
pub(super) struct Table<'a> {
    requests: Vec<&'a [&'a Pages]>,
    pub(super) region: &'a Region,
    copied: bool,
}

impl<'a> Table<'a> {
    /// Nothing if there are no pages at all.
    ///
    /// # Panics
    /// If they are of several regions.
    pub(super) fn new(requests: Vec<&'a [&'a Pages]>, copied: bool) -> Option<Table<'a>> {
        let region = &*requests.iter().find_map(|pages| pages.first())?.region;
        let mut cells = requests.iter().copied().flatten();
        assert!(cells.all(|cell| std::ptr::eq(&*cell.region, region)), "all pages are of one pool");
        Some(Table { requests, region, copied })
    }

    /// How many copies of pages are made: those of every request one behind the other, then the poisoned one.
    pub(super) fn copies(&self) -> usize {
        if self.copied { self.requests.iter().map(|pages| pages.len()).sum::<usize>() + 1 } else { 0 }
    }

    /// Bytes that the list of copies takes.
    pub(super) fn jobs_bytes(&self) -> usize {
        self.copies() * JOB_BYTES as usize
    }

    /// Bytes that the copies take.
    pub(super) fn copies_bytes(&self) -> usize {
        self.copies() * self.region.stride
    }

    /// Writes the page numbers of rows, each of a request. A page that is not there is poison.
    pub(super) fn put(&self, out: &mut [u8], rows: impl Iterator<Item = usize>, stride: usize) {
        let mut copies = 0;
        let mut firsts = Vec::new();
        for pages in &self.requests {
            firsts.push(copies);
            copies += pages.len();
        }
        let poison = if self.copied { copies } else { self.region.count };
        for (out, request) in out.chunks_exact_mut(stride * 4).zip(rows) {
            let number = |page: usize| match self.requests[request].get(page) {
                Some(_) if self.copied => firsts[request] + page,
                Some(cell) => cell.at,
                None => poison,
            };
            put(out, (0..stride).map(|page| number(page) as u32));
        }
    }

    /// Writes the list of copies to `scratch`: whole cells, which is what a checksum covers.
    pub(super) fn put_jobs(&self, out: &mut [u8], scratch: Span) {
        let cells = self.requests.iter().copied().flatten().map(|cell| cell.span());
        let bytes = cells.clone().next().map_or(0, Span::bytes);
        let sources = cells.chain([self.region.poison().part(0, bytes)]).take(self.copies());
        let job = |(slot, source): (usize, Span)| {
            let to = scratch.part((slot * self.region.stride) as u64, source.bytes());
            working(Job::new(source, to, slot as u32, 0))
        };
        let jobs: Vec<Job> = sources.enumerate().map(job).collect();
        put_jobs(&jobs, out);
    }

    /// Launches the copies, if there are any: what the numbers of [`Table::put`] count in.
    pub(super) fn pool(&self, desk: &Desk, [jobs, checksums, scratch]: [Span; 3]) -> PagePool {
        if !self.copied {
            return self.region.pool();
        }
        let blocks = desk.gpu().info().multiprocessors;
        launch(desk.kernels(), desk.raw(), self.copies(), jobs, checksums, blocks);
        working(PagePool::new(scratch, self.region.stride as u64, self.copies() as u32))
    }

    /// The checksums of each request.
    pub(super) fn checksums(&self, bytes: &[u8]) -> Vec<Vec<u64>> {
        let mut all = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        self.requests.iter().map(|pages| all.by_ref().take(pages.len()).collect()).collect()
    }
}

/// Writes 32-bit words.
pub(super) fn put(out: &mut [u8], words: impl Iterator<Item = u32>) {
    for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
}
