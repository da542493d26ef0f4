//! Sums of rows where the KV entries are.

use std::ops::Range;

use kvweft_kernels::NOPE_DIM;
use kvweft_kernels::gpu::SelectSumArgs;
use kvweft_shell::ask::{Added, Addends, PAGE_ENTRIES};

use super::desk::{Desk, with_desk};
use super::pages::Pages;
use super::table::{Sections, Table, put};
use super::working;

type Request<'a> = (Addends, Vec<&'a Pages>);

/// See [`Cell::add`](kvweft_shell::platform::Cell::add).
pub(super) fn add(requests: &[Request<'_>], checksums: bool) -> Vec<Added> {
    let pages = requests.iter().map(|(_, pages)| pages.as_slice()).collect();
    match Table::new(pages, checksums) {
        Some(table) => with_desk(table.region.gpu, |desk| launches(desk, requests, &table)),
        // Rows of pages that are not there add nothing.
        None => requests.iter().map(|(addends, _)| addends.by_host(&[])).collect(),
    }
}

fn launches(desk: &mut Desk, requests: &[Request<'_>], pages: &Table<'_>) -> Vec<Added> {
    let of_requests =
        || requests.iter().enumerate().flat_map(|(at, (addends, _))| addends.entries.iter().map(move |one| (at, one)));
    let rows = of_requests().count();
    let k = of_requests().map(|(_, entries)| entries.len()).max().unwrap_or(0).max(1);
    let last = of_requests().filter_map(|(_, entries)| entries.iter().max()).max();
    let table_stride = last.map_or(1, |entry| *entry as usize / PAGE_ENTRIES + 1);
    let mut sections = Sections::default();
    let selected = sections.take(rows * k * 4);
    let table = sections.take(rows * table_stride * 4);
    let status = sections.take(rows * 4);
    let violations = sections.take(4);
    let jobs = sections.take(pages.jobs_bytes());
    let sent = sections.0;
    let results = sections.take(rows * NOPE_DIM * 4 + pages.copies() * 8);
    let scratch = sections.take(pages.copies_bytes());
    desk.room(sent, results.len(), sections.0);

    let device = desk.device.span();
    let span = |section: &Range<usize>| device.part(section.start as u64, section.len() as u64);
    let up = desk.up.bytes_mut();
    for (out, (_, entries)) in up[selected.clone()].chunks_exact_mut(k * 4).zip(of_requests()) {
        // Behind the entries of a row: none.
        put(out, entries.iter().copied().chain(std::iter::repeat(u32::MAX)));
    }
    pages.put(&mut up[table.clone()], of_requests().map(|(request, _)| request), table_stride);
    up[status.clone()].fill(0);
    up[violations.clone()].fill(0);
    pages.put_jobs(&mut up[jobs.clone()], span(&scratch));
    desk.send(sent);
    let sums_bytes = rows * NOPE_DIM * 4;
    let checksums = span(&results).part(sums_bytes as u64, (pages.copies() * 8) as u64);
    let args = SelectSumArgs {
        format: requests[0].0.format,
        selected: span(&selected),
        k: k as u32,
        table: span(&table),
        table_stride: table_stride as u32,
        rows: rows as u32,
        pool: pages.pool(desk, [span(&jobs), checksums, span(&scratch)]),
        out: span(&results).part(0, sums_bytes as u64),
        status: span(&status),
        violations: span(&violations),
    };
    working(desk.kernels().select_sum.launch(desk.raw(), &args));
    desk.fetch(span(&results));
    desk.wait();
    let (sums, checksums) = desk.down.bytes()[..results.len()].split_at(sums_bytes);
    let value = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    let mut sums = sums.chunks_exact(NOPE_DIM * 4).map(|row| row.as_chunks::<4>().0.iter().map(value).collect());
    let of_request = |((addends, _), checksums): (&Request<'_>, Vec<u64>)| Added {
        sums: sums.by_ref().take(addends.entries.len()).collect(),
        checksums,
    };
    requests.iter().zip(pages.checksums(checksums)).map(of_request).collect()
}
