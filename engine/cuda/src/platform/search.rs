//! Scores and selections where the index keys are.

use std::ops::Range;

use half::bf16;
use kvweft_kernels::gpu::{IndexLogitsArgs, Span, TopKArgs};
use kvweft_kernels::{IndexFormat, e4m3_from_f32};
use kvweft_shell::ask::{Found, PAGE_ENTRIES, Search, Wanted};

use super::desk::{Desk, with_desk};
use super::pages::Pages;
use super::table::{Sections, Table, put};
use super::working;

/// Logits of one launch, at most.
const LOGITS_MAX: usize = 16 << 20;
/// Thread blocks for each multiprocessor.
const BLOCKS: u32 = 6;

type Request<'a> = (Search, Vec<&'a Pages>);

/// See [`Cell::search`](kvweft_shell::platform::Cell::search).
pub(super) fn search(requests: &[Request<'_>], checksums: bool) -> Vec<Found> {
    let (mut found, mut begin, mut logits) = (Vec::new(), 0, 0);
    for (at, (search, _)) in requests.iter().enumerate() {
        let longest = search.wanted.iter().map(Wanted::entries).max().unwrap_or(0);
        let own = search.wanted.len() * longest;
        if at > begin && logits + own > LOGITS_MAX {
            found.extend(launches(&requests[begin..at], checksums));
            (begin, logits) = (at, 0);
        }
        logits += own;
    }
    found.extend(launches(&requests[begin..], checksums));
    found
}

fn launches(requests: &[Request<'_>], checksums: bool) -> Vec<Found> {
    let pages = requests.iter().map(|(_, pages)| pages.as_slice()).collect();
    let Some(table) = Table::new(pages, checksums) else {
        // Where a rule is dropped, requests may have lost all their pages: they score poison.
        let poison = [0xff; IndexFormat::Bf16.page_bytes(PAGE_ENTRIES)];
        let by_host = |(search, _): &Request<'_>| search.by_host(&vec![&poison[..]; search.pages()]);
        return requests.iter().map(by_host).collect();
    };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (request, (search, _)) in requests.iter().enumerate() {
        let row = |(query, wanted)| Row { request, query, wanted };
        rows.extend(search.wanted.iter().enumerate().map(row).filter(|row| row.wanted.k > 0));
    }
    rows.sort_by_key(|row| row.wanted.k);
    let longest = rows.iter().map(|row| row.wanted.entries()).max().unwrap_or(0);
    let plan = Plan { requests, table: &table, rows, stride: longest.max(1).next_multiple_of(4) };
    with_desk(table.region.gpu, |desk| plan.run(desk))
}

/// One query, as a row of the launches.
struct Row<'a> {
    request: usize,
    query: usize,
    wanted: &'a Wanted,
}

/// What is launched.
struct Plan<'a> {
    requests: &'a [Request<'a>],
    table: &'a Table<'a>,
    /// By how much they select.
    rows: Vec<Row<'a>>,
    /// Logits from one row to the next.
    stride: usize,
}

impl Plan<'_> {
    fn run(&self, desk: &mut Desk) -> Vec<Found> {
        let (search, rows) = (&self.requests[0].0, self.rows.len());
        let heads = search.heads;
        let query_bytes = heads * search.format.key_bytes();
        let table_stride = self.requests.iter().map(|(search, _)| search.pages()).max().unwrap_or(0).max(1);
        let mut sections = Sections::default();
        let q = sections.take(rows * query_bytes);
        let weights = sections.take(rows * heads * 4);
        let table = sections.take(rows * table_stride * 4);
        let (cached, lens) = (sections.take(rows * 4), sections.take(rows * 4));
        let violations = sections.take(4);
        let jobs = sections.take(self.table.jobs_bytes());
        let sent = sections.0;
        let logits = sections.take(rows * self.stride * 4);
        // Known logits lie behind those that the kernel writes.
        let known = self.rows.iter().any(|row| !row.wanted.known.is_empty());
        let sent = if known { sections.0 } else { sent };
        let selected = self.rows.iter().map(|row| row.wanted.k * 4).sum::<usize>().next_multiple_of(8);
        // Selections, statistics, checksums.
        let results = sections.take(selected + rows * 8 + self.table.copies() * 8);
        let scratch = sections.take(self.table.copies_bytes());
        desk.room(sent, results.len(), sections.0);

        let device = desk.device.span();
        let span = |section: &Range<usize>| device.part(section.start as u64, section.len() as u64);
        let up = desk.up.bytes_mut();
        for (out, row) in up[q.clone()].chunks_exact_mut(query_bytes).zip(&self.rows) {
            put_query(search.format, out, &row.wanted.q);
        }
        for (out, row) in up[weights.clone()].chunks_exact_mut(heads * 4).zip(&self.rows) {
            put(out, self.requests[row.request].0.weights.iter().map(|weight| weight.to_bits()));
        }
        self.table.put(&mut up[table.clone()], self.rows.iter().map(|row| row.request), table_stride);
        put(&mut up[cached.clone()], self.rows.iter().map(|row| row.wanted.cached as u32));
        put(&mut up[lens.clone()], self.rows.iter().map(|row| row.wanted.entries() as u32));
        up[violations.clone()].fill(0);
        self.table.put_jobs(&mut up[jobs.clone()], span(&scratch));
        if known {
            for (out, row) in up[logits.clone()].chunks_exact_mut(self.stride * 4).zip(&self.rows) {
                put(&mut out[row.wanted.cached * 4..], row.wanted.known.iter().map(|logit| logit.to_bits()));
            }
        }
        desk.send(sent);
        let stats = span(&results).part(selected as u64, rows as u64 * 8);
        let checksums = span(&results).part((selected + rows * 8) as u64, (self.table.copies() * 8) as u64);
        let score = IndexLogitsArgs {
            format: search.format,
            q: span(&q),
            weights: span(&weights),
            heads: heads as u32,
            table: span(&table),
            table_stride: table_stride as u32,
            lens: span(&cached),
            rows: rows as u32,
            pool: self.table.pool(desk, [span(&jobs), checksums, span(&scratch)]),
            logits: span(&logits),
            logits_stride: self.stride as u64,
            violations: span(&violations),
            blocks: desk.gpu().info().multiprocessors * BLOCKS,
        };
        working(desk.kernels().index_logits.launch(desk.raw(), &score));
        self.select(desk, [span(&logits), span(&lens), span(&results), stats]);
        desk.fetch(span(&results));
        desk.wait();
        self.found(&desk.down.bytes()[..results.len()], selected)
    }

    /// One launch for all rows that select as many.
    fn select(&self, desk: &Desk, [logits, lens, results, stats]: [Span; 4]) {
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
            working(desk.kernels().top_k.launch(desk.raw(), &args));
            (row, out) = (row + count, out + count * k * 4);
        }
    }

    /// Sorts the results by requests and queries.
    fn found(&self, results: &[u8], selected: usize) -> Vec<Found> {
        let (selections, rest) = results.split_at(selected);
        let (stats, checksums) = rest.split_at(self.rows.len() * 8);
        let none = |(search, _): &Request<'_>| vec![Vec::new(); search.wanted.len()];
        let found = self.requests.iter().map(none).zip(self.table.checksums(checksums));
        let mut found: Vec<Found> = found.map(|(selected, checksums)| Found { selected, nan: 0, checksums }).collect();
        let mut selections = selections.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        for (row, stats) in self.rows.iter().zip(stats.as_chunks::<8>().0) {
            let of = &mut found[row.request];
            let selected = selections.by_ref().take(row.wanted.k).filter_map(|at| u32::try_from(at).ok());
            of.selected[row.query] = selected.collect();
            of.nan += u64::from(u32::from_le_bytes([stats[0], stats[1], stats[2], stats[3]]));
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

#[cfg(test)]
mod tests {
    use kvweft_kernels::{KEY_DIM, e4m3_to_f32};

    use super::*;

    #[test]
    fn queries_are_sent_as_the_kernels_read_them() {
        let q: Vec<f32> = (0..KEY_DIM).map(|dim| [1.0, -2.0, 0.5, -0.5][dim % 4]).collect();
        for format in [IndexFormat::Fp8, IndexFormat::Bf16] {
            let mut bytes = vec![0; format.key_bytes()];
            put_query(format, &mut bytes, &q);
            let read: Vec<f32> = match format {
                IndexFormat::Bf16 => {
                    bytes.as_chunks::<2>().0.iter().map(|two| bf16::from_le_bytes(*two).to_f32()).collect()
                }
                _ => bytes.iter().map(|code| e4m3_to_f32(*code)).collect(),
            };
            assert_eq!(read, q, "{format:?}");
        }
    }
}
