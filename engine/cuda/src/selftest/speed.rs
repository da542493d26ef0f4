//! Times of kernels, beside the time that their bytes need at the rate of a plain copy on the same device.

use std::time::Duration;

use kvweft_kernels::gpu::{
    IndexKWriteArgs, IndexLogitsArgs, KeyType, PAGE_TOKENS, PagePool, PoisonArgs, SelectSumArgs, Span, SparseAttention,
    SparseAttentionArgs, TopKArgs, VerifyArgs,
};
use kvweft_kernels::{IndexFormat, KEY_DIM, KvFormat, NOPE_DIM, ROW_DIM, ScaleRule};

use super::index::{FORMATS, page_bytes};
use super::lab::{Fault, Lab, Random};
use super::report::{Measurement, Work};
use crate::memory::DevicePool;

/// More than any cache of a device: inputs go round in so much memory.
const ROUND_BYTES: u64 = 320 << 20;
/// Calls that are launched without waiting in between.
const CALLS: u32 = 20;

fn measured(lab: &Lab, name: &str, shape: String, time: Duration, bytes: u64) -> Result<Measurement, Fault> {
    let rate = copy_rate(lab)?;
    let roofline_microseconds = bytes as f64 / rate * 1e6;
    let microseconds = time.as_secs_f64() * 1e6;
    let (work, launched_microseconds) = (None, None);
    Ok(Measurement {
        name: name.to_owned(),
        shape,
        work,
        microseconds,
        launched_microseconds,
        bytes,
        roofline_microseconds,
    })
}

/// Both times of work that another library can be given.
fn compared(
    lab: &Lab,
    name: &str,
    work: Work,
    shape: String,
    bytes: u64,
    call: &mut dyn FnMut(u32) -> Result<(), Fault>,
) -> Result<Measurement, Fault> {
    let time = lab.time(CALLS, call)?;
    let launched = lab.time_launched(CALLS, call)?;
    let measurement = measured(lab, name, shape, time, bytes)?;
    Ok(Measurement { work: Some(work), launched_microseconds: Some(launched.as_secs_f64() * 1e6), ..measurement })
}

/// Bytes a second of a big copy on the device, reads and writes.
fn copy_rate(lab: &Lab) -> Result<f64, Fault> {
    if let Some(rate) = lab.copy_rate.get() {
        return Ok(rate);
    }
    let bytes = ROUND_BYTES;
    let (from, to) = (lab.filled(bytes, 1)?, lab.filled(bytes, 2)?);
    let time = lab.time(4, &mut |_| Ok(lab.stream.copy(from.span(), to.span())?))?;
    let rate = 2.0 * bytes as f64 / time.as_secs_f64();
    lab.copy_rate.set(Some(rate));
    Ok(rate)
}

/// Random bytes that are finite in every format: codes and bf16 of moderate size.
fn contents(lab: &Lab, bytes: u64) -> Result<DevicePool, Fault> {
    let random = Random::new(bytes);
    let block: Vec<u64> = (0..1 << 17).map(|_| random.next() & 0x3f3f_3f3f_3f3f_3f3f).collect();
    let pool = DevicePool::new(lab.gpu, bytes)?;
    let block: Vec<u8> = block.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(block.len() as u64);
        pool.write(at, &block[..length as usize])?;
        at += length;
    }
    Ok(pool)
}

pub(super) fn memory(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let rate = copy_rate(lab)?;
    let time = Duration::from_secs_f64(2.0 * ROUND_BYTES as f64 / rate);
    Ok(vec![measured(
        lab,
        "copy engine, device to device",
        format!("{} MiB", ROUND_BYTES >> 20),
        time,
        2 * ROUND_BYTES,
    )?])
}

pub(super) fn index(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let mut found = Vec::new();
    for format in FORMATS {
        let pages = (ROUND_BYTES / page_bytes(format) as u64) as u32;
        let memory = contents(lab, u64::from(pages) * page_bytes(format) as u64)?;
        let pool = PagePool::new(memory.span(), page_bytes(format) as u64, pages)?;
        for (rows, len) in [(1, 32_768), (1, 131_072), (8, 32_768), (8, 131_072)] {
            for heads in [64, 32] {
                found.push(logits(lab, format, pool, rows, len, heads)?);
            }
        }
        for count in [16, 8192] {
            found.push(write(lab, format, pool, count)?);
        }
    }
    Ok(found)
}

fn logits(
    lab: &Lab,
    format: IndexFormat,
    pool: PagePool,
    rows: u32,
    len: u32,
    heads: u32,
) -> Result<Measurement, Fault> {
    let row_pages = len / PAGE_TOKENS as u32;
    // Tables for as many launches as the pool holds keys for, so that none finds its keys in a cache.
    let launches = (pool.pages() / (rows * row_pages)).clamp(1, 64);
    let order = Random::new(9).permutation(pool.pages() as usize);
    let each = (rows * row_pages) as usize;
    let table: Vec<i32> = (0..launches as usize * each).map(|i| order[i % order.len()]).collect();
    let table = lab.upload(&table)?;
    let q = contents(lab, u64::from(rows * heads) * format.key_bytes() as u64)?;
    let weights = lab.upload(&Random::new(10).reals((rows * heads) as usize))?;
    let lens = lab.upload(&vec![len as i32; rows as usize])?;
    let logits = lab.filled(u64::from(rows) * u64::from(len) * 4, 0)?;
    let violations = lab.filled(4, 0)?;
    let mut args = IndexLogitsArgs {
        format,
        q: q.span(),
        weights: weights.span(),
        heads,
        table: table.span(),
        table_stride: row_pages,
        lens: lens.span(),
        rows,
        pool,
        logits: logits.span(),
        logits_stride: u64::from(len),
        violations: violations.span(),
        blocks: lab.blocks(),
    };
    let bytes = u64::from(rows * row_pages) * page_bytes(format) as u64 + u64::from(rows * len) * 4;
    let work = Work::IndexLogits { key_bytes: (format.key_bytes() / KEY_DIM) as u32, rows, len, heads };
    let (name, shape) = (format!("index logits {format:?}"), format!("{rows} x {len}, {heads} heads"));
    compared(lab, &name, work, shape, bytes, &mut |i| {
        args.table = table.span().part(u64::from(i % launches) * each as u64 * 4, each as u64 * 4);
        Ok(lab.kernels().index_logits.launch(lab.raw(), &args)?)
    })
}

fn write(lab: &Lab, format: IndexFormat, pool: PagePool, count: u32) -> Result<Measurement, Fault> {
    let keys = contents(lab, u64::from(count) * KEY_DIM as u64 * 2)?;
    let order = Random::new(11).permutation(pool.pages() as usize);
    let slots: Vec<i32> = (0..count as usize).flat_map(|i| [order[i / 64], (i % 64) as i32]).collect();
    let (slots, violations) = (lab.upload(&slots)?, lab.filled(4, 0)?);
    let args = IndexKWriteArgs {
        format,
        rule: ScaleRule::PowerOfTwo,
        keys: keys.span(),
        key_type: KeyType::Bf16,
        slots: slots.span(),
        count,
        pool,
        violations: violations.span(),
    };
    let time = lab.time(CALLS, &mut |_| Ok(lab.kernels().index_k_write.launch(lab.raw(), &args)?))?;
    let bytes = u64::from(count) * (KEY_DIM * 2 + 8 + format.key_bytes() + format.scale_bytes()) as u64;
    measured(lab, &format!("index key write {format:?}"), format!("{count} keys of bf16"), time, bytes)
}

pub(super) fn top_k(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let mut found = Vec::new();
    for rows in [1, 8] {
        for len in (12..=20).map(|bits| 1 << bits) {
            for k in [512, 2048] {
                found.push(select(lab, rows, len, k)?);
            }
        }
    }
    found.push(select(lab, 64, 8192, 2048)?);
    Ok(found)
}

fn select(lab: &Lab, rows: u32, len: u32, k: u32) -> Result<Measurement, Fault> {
    // Half of them zero, as after a relu, and the rest with ties.
    let random = Random::new(12);
    let values: Vec<f32> = (0..rows * len).map(|_| random.integer(50_000).max(0.0) / 64.0).collect();
    let logits = lab.upload(&values)?;
    let lens = lab.upload(&vec![len as i32; rows as usize])?;
    let (out, stats) = (lab.filled(u64::from(rows * k) * 4, 0)?, lab.filled(u64::from(rows) * 8, 0)?);
    let args = TopKArgs {
        logits: logits.span(),
        stride: u64::from(len),
        lens: lens.span(),
        len_max: len,
        rows,
        k,
        out: out.span(),
        stats: stats.span(),
    };
    let (work, bytes) = (Work::TopK { rows, len, k }, u64::from(rows) * u64::from(len + k) * 4);
    let shape = format!("{rows} x {len}, k {k}, {} blocks", lab.kernels().top_k.blocks(rows, len));
    compared(lab, "top-k", work, shape, bytes, &mut |_| Ok(lab.kernels().top_k.launch(lab.raw(), &args)?))
}

pub(super) fn attention(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let mut found = Vec::new();
    for format in KvFormat::ALL {
        let bytes = format.row_bytes() * PAGE_TOKENS;
        let pages = (ROUND_BYTES / bytes as u64) as u32;
        // Finite in either format, scales included: bytes below 0x40 are small positive numbers.
        let memory = contents(lab, u64::from(pages) * bytes as u64)?;
        let pool = PagePool::new(memory.span(), bytes as u64, pages)?;
        for (rows, heads, k) in [(1, 128, 2048), (8, 128, 2048), (8, 64, 512), (64, 16, 2048)] {
            found.extend(attend(lab, format, pool, rows, heads, k)?);
        }
    }
    Ok(found)
}

fn attend(
    lab: &Lab,
    format: KvFormat,
    pool: PagePool,
    rows: u32,
    heads: u32,
    k: u32,
) -> Result<Vec<Measurement>, Fault> {
    let table_stride = 4000u32.min(pool.pages());
    let order = Random::new(13).permutation(pool.pages() as usize);
    let table: Vec<i32> = (0..rows * table_stride).map(|i| order[i as usize % order.len()]).collect();
    let limit = u64::from(table_stride) * PAGE_TOKENS as u64;
    let random = Random::new(14);
    let picked: Vec<i32> = (0..rows * k).map(|_| random.below(limit) as i32).collect();
    let (table, selected) = (lab.upload(&table)?, lab.upload(&picked)?);
    let q = contents(lab, u64::from(rows * heads) * ROW_DIM as u64 * 2)?;
    let splits = lab.kernels().sparse_attention.splits(rows, heads, k, lab.gpu.info().multiprocessors);
    let workspace = lab.filled(SparseAttention::workspace_bytes(rows, heads, splits), 0)?;
    let out = lab.filled(u64::from(rows * heads) * NOPE_DIM as u64 * 4, 0)?;
    let (lse, violations) = (lab.filled(u64::from(rows * heads) * 4, 0)?, lab.filled(4, 0)?);
    let args = SparseAttentionArgs {
        format,
        q: q.span(),
        heads,
        selected: selected.span(),
        k,
        table: table.span(),
        table_stride,
        rows,
        pool,
        scale: 0.01,
        sink: Span::NONE,
        splits,
        workspace: workspace.span(),
        out: out.span(),
        lse: lse.span(),
        violations: violations.span(),
    };
    let row_bytes = u64::from(rows * k) * format.row_bytes() as u64;
    let bytes = row_bytes + q.span().bytes() + out.span().bytes();
    let shape = format!("{rows} rows, {heads} heads, k {k}, {splits} splits");
    let work = Work::SparseAttention { fp8: format == KvFormat::Fp8, rows, heads, k };
    let attention = compared(lab, &format!("sparse attention {format:?}"), work, shape, bytes, &mut |_| {
        Ok(lab.kernels().sparse_attention.launch(lab.raw(), &args)?)
    })?;
    let status = lab.filled(u64::from(rows) * 4, 0)?;
    let sum = SelectSumArgs {
        format,
        selected: selected.span(),
        k,
        table: table.span(),
        table_stride,
        rows,
        pool,
        out: out.span(),
        status: status.span(),
        violations: violations.span(),
    };
    let time = lab.time(CALLS, &mut |_| Ok(lab.kernels().select_sum.launch(lab.raw(), &sum)?))?;
    let shape = format!("{rows} rows, k {k}");
    Ok(vec![attention, measured(lab, &format!("select sum {format:?}"), shape, time, row_bytes)?])
}

pub(super) fn pages(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let mut found = Vec::new();
    for page_bytes in [8448u32, 41_984] {
        let pages = (ROUND_BYTES / u64::from(page_bytes)) as u32;
        let memory = contents(lab, u64::from(pages) * u64::from(page_bytes))?;
        let pool = PagePool::new(memory.span(), u64::from(page_bytes), pages)?;
        let list = lab.upload(&Random::new(15).permutation(pages as usize))?;
        let zeros = lab.filled(u64::from(pages) * 8, 0)?;
        let (result, violations) = (lab.filled(8, 0)?, lab.filled(4, 0)?);
        let bytes = u64::from(pages) * u64::from(page_bytes);
        let verify = VerifyArgs {
            pool,
            page_bytes,
            list: list.span(),
            keys: zeros.span(),
            expected: zeros.span(),
            count: pages,
            checksums: Span::NONE,
            result: result.span(),
            violations: violations.span(),
        };
        let shape = format!("{pages} pages of {page_bytes}");
        let time = lab.time(4, &mut |_| Ok(lab.kernels().page_care.verify(lab.raw(), &verify)?))?;
        found.push(measured(lab, "verify", shape.clone(), time, bytes)?);
        let poison = PoisonArgs { pool, page_bytes, list: list.span(), count: pages, violations: violations.span() };
        let time = lab.time(4, &mut |_| Ok(lab.kernels().page_care.poison(lab.raw(), &poison)?))?;
        found.push(measured(lab, "poison", shape, time, bytes)?);
    }
    Ok(found)
}
