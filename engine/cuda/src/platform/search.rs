//! Scores and selections where the index keys are.

use std::ops::Range;

use half::bf16;
use kvweft_kernels::gpu::{IndexLogitsArgs, JOB_BYTES, Job, PagePool, Span, TopKArgs, TopKRows};
use kvweft_kernels::{IndexFormat, KEY_DIM, e4m3_from_f32};
use kvweft_shell::search::{Found, PAGE_ENTRIES, Search, Wanted};

use super::desk::{Desk, put_jobs, with_desk};
use super::pages::{Pages, Region};
use super::working;

/// Logits of one launch, at most.
const LOGITS_MAX: usize = 16 << 20;
/// Thread blocks for each multiprocessor.
const BLOCKS: u32 = 6;
/// Sections of scratch memory begin at multiples of this.
const SECTION: usize = 256;

type Request<'a> = (Search, Vec<&'a Pages>);

/// See [`Cell::search`](kvweft_shell::platform::Cell::search).
pub(super) fn search(requests: &[Request<'_>], sums: bool) -> Vec<Found> {
    let (mut found, mut begin, mut logits) = (Vec::new(), 0, 0);
    for (at, (search, _)) in requests.iter().enumerate() {
        let longest = search.wanted.iter().map(Wanted::entries).max().unwrap_or(0);
        let own = search.wanted.len() * longest;
        if at > begin && logits + own > LOGITS_MAX {
            found.extend(launches(&requests[begin..at], sums));
            (begin, logits) = (at, 0);
        }
        logits += own;
    }
    found.extend(launches(&requests[begin..], sums));
    found
}

fn launches(requests: &[Request<'_>], sums: bool) -> Vec<Found> {
    let Some(cell) = requests.iter().find_map(|(_, pages)| pages.first()) else {
        // Where a rule is dropped, requests may have lost all their pages: they score poison.
        let poison = [0xff; IndexFormat::Bf16.page_bytes(PAGE_ENTRIES)];
        let by_host = |(search, _): &Request<'_>| search.by_host(&vec![&poison[..]; search.pages()]);
        return requests.iter().map(|one| Found { selected: by_host(one), sums: Vec::new() }).collect();
    };
    let plan = Plan::new(requests, &cell.region, sums);
    with_desk(cell.region.gpu, |desk| plan.run(desk))
}

/// One query, as a row of the launches.
struct Row<'a> {
    request: usize,
    query: usize,
    wanted: &'a Wanted,
}

/// What is launched, and where everything lies.
struct Plan<'a> {
    requests: &'a [Request<'a>],
    region: &'a Region,
    /// By how much they select.
    rows: Vec<Row<'a>>,
    table_stride: usize,
    /// Logits from one row to the next.
    stride: usize,
    /// Whether pages are copied first, so that the checksums are of the very bytes that are scored.
    sums: bool,
}

/// Hands out parts of scratch memory.
#[derive(Default)]
struct Sections(usize);

impl Sections {
    fn take(&mut self, bytes: usize) -> Range<usize> {
        let begin = self.0.next_multiple_of(SECTION);
        self.0 = begin + bytes;
        begin..self.0
    }
}

impl<'a> Plan<'a> {
    fn new(requests: &'a [Request<'a>], region: &'a Region, sums: bool) -> Plan<'a> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for (request, (search, pages)) in requests.iter().enumerate() {
            assert!(pages.iter().all(|cell| std::ptr::eq(&*cell.region, region)), "all pages are of one pool");
            let row = |(query, wanted)| Row { request, query, wanted };
            rows.extend(search.wanted.iter().enumerate().map(row).filter(|row| row.wanted.k > 0));
        }
        rows.sort_by_key(|row| row.wanted.k);
        let longest = rows.iter().map(|row| row.wanted.entries()).max().unwrap_or(0);
        let pages = requests.iter().map(|(search, _)| search.pages()).max().unwrap_or(0);
        Plan { requests, region, rows, table_stride: pages.max(1), stride: longest.max(1).next_multiple_of(4), sums }
    }

    /// How many copies of pages are made: those of every request one behind the other, then the poisoned one.
    fn copies(&self) -> usize {
        if self.sums { self.requests.iter().map(|(_, pages)| pages.len()).sum::<usize>() + 1 } else { 0 }
    }

    fn run(&self, desk: &mut Desk) -> Vec<Found> {
        let (search, rows) = (&self.requests[0].0, self.rows.len());
        let (heads, copies) = (search.heads, self.copies());
        let value_bytes = search.format.key_bytes() / KEY_DIM;
        let mut sections = Sections::default();
        let q = sections.take(rows * heads * KEY_DIM * value_bytes);
        let weights = sections.take(rows * heads * 4);
        let table = sections.take(rows * self.table_stride * 4);
        let (cached, lens) = (sections.take(rows * 4), sections.take(rows * 4));
        let violations = sections.take(4);
        let jobs = sections.take(copies * JOB_BYTES as usize);
        let sent = sections.0;
        let logits = sections.take(rows * self.stride * 4);
        // Known logits lie behind those that the kernel writes.
        let known = self.rows.iter().any(|row| !row.wanted.known.is_empty());
        let sent = if known { sections.0 } else { sent };
        let selected: usize = self.rows.iter().map(|row| row.wanted.k * 4).sum();
        let results = sections.take(selected.next_multiple_of(8) + copies * 8);
        let stats = sections.take(rows * 8);
        let workspace = sections.take(TopKRows::workspace_bytes(rows as u32, self.stride as u32) as usize);
        let scratch = sections.take(copies * self.region.stride);
        desk.room(sent, results.len(), sections.0);

        let device = desk.device.span();
        let span = |section: &Range<usize>| device.part(section.start as u64, section.len() as u64);
        let up = desk.up.bytes_mut();
        for (out, row) in up[q.clone()].chunks_exact_mut(heads * KEY_DIM * value_bytes).zip(&self.rows) {
            put_query(search.format, out, &row.wanted.q);
        }
        for (out, row) in up[weights.clone()].chunks_exact_mut(heads * 4).zip(&self.rows) {
            put(out, self.requests[row.request].0.weights.iter().map(|weight| weight.to_bits()));
        }
        self.put_table(&mut up[table.clone()]);
        put(&mut up[cached.clone()], self.rows.iter().map(|row| row.wanted.cached as u32));
        put(&mut up[lens.clone()], self.rows.iter().map(|row| row.wanted.entries() as u32));
        up[violations.clone()].fill(0);
        put_jobs(&self.copy_jobs(span(&scratch)), &mut up[jobs.clone()]);
        if known {
            for (out, row) in up[logits.clone()].chunks_exact_mut(self.stride * 4).zip(&self.rows) {
                put(&mut out[row.wanted.cached * 4..], row.wanted.known.iter().map(|logit| logit.to_bits()));
            }
        }
        desk.send(sent);
        let checksums = span(&results).part(selected.next_multiple_of(8) as u64, copies as u64 * 8);
        let pool = if self.sums {
            let blocks = desk.gpu().info().multiprocessors;
            super::desk::launch(desk.kernels(), desk.raw(), copies, span(&jobs), checksums, blocks);
            working(PagePool::new(span(&scratch), self.region.stride as u64, copies as u32))
        } else {
            self.region.pool()
        };
        let score = IndexLogitsArgs {
            format: search.format,
            q: span(&q),
            weights: span(&weights),
            heads: heads as u32,
            table: span(&table),
            table_stride: self.table_stride as u32,
            lens: span(&cached),
            rows: rows as u32,
            pool,
            logits: span(&logits),
            logits_stride: self.stride as u64,
            violations: span(&violations),
            blocks: desk.gpu().info().multiprocessors * BLOCKS,
        };
        working(desk.kernels().index_logits.launch(desk.raw(), &score));
        self.select(desk, [&logits, &lens, &results, &stats, &workspace].map(span));
        if !results.is_empty() {
            desk.fetch(span(&results));
        }
        desk.wait();
        self.found(&desk.down.bytes()[..results.len()], selected.next_multiple_of(8))
    }
}

impl Plan<'_> {
    /// The page numbers of every row: places in the region, or, where pages are copied, among the copies. A page that is not
    /// there is poison.
    fn put_table(&self, out: &mut [u8]) {
        let mut firsts = Vec::new();
        let mut copies = 0;
        for (_, pages) in self.requests {
            firsts.push(copies);
            copies += pages.len();
        }
        let poison = if self.sums { copies } else { self.region.count };
        for (out, row) in out.chunks_exact_mut(self.table_stride * 4).zip(&self.rows) {
            let pages = &self.requests[row.request].1;
            let number = |page: usize| match pages.get(page) {
                Some(_) if self.sums => firsts[row.request] + page,
                Some(cell) => cell.at,
                None => poison,
            };
            put(out, (0..self.table_stride).map(|page| number(page) as u32));
        }
    }

    fn copy_jobs(&self, scratch: Span) -> Vec<Job> {
        if !self.sums {
            return Vec::new();
        }
        // Whole cells: what a checksum covers.
        let cells = self.requests.iter().flat_map(|(_, pages)| pages).map(|cell| cell.span());
        let bytes = self.requests.iter().find_map(|(_, pages)| pages.first()).map_or(0, |cell| cell.span().bytes());
        let sources = cells.chain([self.region.poison().part(0, bytes)]);
        let job = |(slot, source): (usize, Span)| {
            let to = scratch.part((slot * self.region.stride) as u64, source.bytes());
            working(Job::new(source, to, slot as u32, 0))
        };
        sources.enumerate().map(job).collect()
    }

    /// One launch for all rows that select as many.
    fn select(&self, desk: &Desk, [logits, lens, results, stats, workspace]: [Span; 5]) {
        let (mut row, mut out) = (0, 0);
        for rows in self.rows.chunk_by(|a, b| a.wanted.k == b.wanted.k) {
            let (k, count) = (rows[0].wanted.k, rows.len());
            let part = |span: Span, bytes: usize| span.part((row * bytes) as u64, (count * bytes) as u64);
            let args = TopKArgs {
                logits: part(logits, self.stride * 4),
                stride: self.stride as u64,
                lens: part(lens, 4),
                len_max: rows.iter().map(|row| row.wanted.entries()).max().unwrap_or(0) as u32,
                rows: count as u32,
                k: k as u32,
                out: results.part(out as u64, (count * k * 4) as u64),
                stats: part(stats, 8),
            };
            let kernel = &desk.kernels().top_k;
            working(match args.len_max {
                0..=TopKRows::WHOLE_MAX => kernel.launch(desk.raw(), &args),
                _ => kernel.launch_split(desk.raw(), &args, workspace),
            });
            (row, out) = (row + count, out + count * k * 4);
        }
    }

    /// Sorts the results by requests and queries.
    fn found(&self, results: &[u8], checksums_at: usize) -> Vec<Found> {
        let (selections, checksums) = results.split_at(checksums_at.min(results.len()));
        let mut found: Vec<Found> = Vec::new();
        let mut checksums = checksums.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        for (search, pages) in self.requests {
            let selected = vec![Vec::new(); search.wanted.len()];
            found.push(Found { selected, sums: checksums.by_ref().take(pages.len()).collect() });
        }
        let mut selections = selections.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        for row in &self.rows {
            let selected = selections.by_ref().take(row.wanted.k).filter_map(|at| u32::try_from(at).ok());
            found[row.request].selected[row.query] = selected.collect();
        }
        found
    }
}

/// In the format of the keys, without a scale: queries of the exact mode lose nothing.
fn put_query(format: IndexFormat, out: &mut [u8], q: &[f32]) {
    match format {
        IndexFormat::Bf16 => {
            for (out, value) in out.as_chunks_mut::<2>().0.iter_mut().zip(q) {
                *out = bf16::from_f32(*value).to_le_bytes();
            }
        }
        IndexFormat::Fp8 | IndexFormat::Fp4 => {
            for (out, value) in out.iter_mut().zip(q) {
                *out = e4m3_from_f32(*value);
            }
        }
    }
}

fn put(out: &mut [u8], values: impl Iterator<Item = u32>) {
    for (out, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *out = value.to_le_bytes();
    }
}
