//! How long a reload of a long context and a forward over it take together: layers are events, and the forward waits on the
//! device for each.
#![allow(unsafe_code)]

use std::time::Duration;

use kvweft_kernels::gpu::{
    CopyMethod, IndexLogitsArgs, JOB_BYTES, Job, PAGE_TOKENS, PagePool, Span, SparseAttention, SparseAttentionArgs,
    TopKArgs,
};
use kvweft_kernels::{IndexFormat, KvFormat, NOPE_DIM, ROW_DIM};

use super::index::{FORMATS, page_bytes};
use super::lab::{Fault, Lab, Random};
use super::report::Measurement;
use crate::memory::{DevicePool, HostPool};
use crate::stream::{Event, Priority, Stream};

/// Of the context.
const TOKENS: usize = 131_072;
const PAGES: usize = TOKENS / PAGE_TOKENS;
/// Of DeepSeek-V3.2.
const LAYERS: usize = 61;
const INDEX_HEADS: usize = 64;
const HEADS: usize = 128;
const K: usize = 2048;
/// Queries that the forward has at a time.
const ROWS: usize = 8;
/// Layers of which there is host memory, and device memory: the others go through the same. Each of the second is always
/// filled from the same one of the first, so that its bytes stay what they are.
const HOST_LAYERS: usize = 2;
const DEVICE_LAYERS: usize = 4;
/// Blocks of a copy: enough for the link, and no more.
const BLOCKS: u32 = 8;
const TURNS: usize = 3;

/// How pages come to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Scattered ones, by the ring kernel, which takes multiprocessors.
    Ring,
    /// One run for each layer and component, by the copy engine, which takes none.
    Engine,
}

pub(super) fn reload(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let mut found = Vec::new();
    for (index, kv) in FORMATS.into_iter().zip(KvFormat::ALL) {
        let needed = (DEVICE_LAYERS * layer_bytes(index, kv) + (64 << 20)) as u64;
        if lab.memory_max < needed || lab.gpu.free_bytes()? < needed {
            return Err(Fault::Skipped(format!("{needed} bytes of device memory may not be used")));
        }
        for way in [Way::Ring, Way::Engine] {
            found.extend(measure(lab, index, kv, way)?);
        }
    }
    Ok(found)
}

fn layer_bytes(index: IndexFormat, kv: KvFormat) -> usize {
    PAGES * (page_bytes(index) + kv.row_bytes() * PAGE_TOKENS)
}

fn measure(lab: &Lab, index: IndexFormat, kv: KvFormat, way: Way) -> Result<Vec<Measurement>, Fault> {
    let copies = Copies::new(lab, index, kv, way)?;
    let multiprocessors = lab.gpu.info().multiprocessors;
    let taken = if way == Way::Ring { BLOCKS } else { 0 };
    let forward = Forward::new(lab, index, kv, copies.device.span(), multiprocessors)?;
    // Beside the copies it leaves them theirs: a grid that fills the device would need a second round for a few blocks.
    let beside = Forward::new(lab, index, kv, copies.device.span(), multiprocessors.saturating_sub(taken).max(1))?;
    let bytes = layer_bytes(index, kv) * LAYERS;
    // As many passes a layer as take about as long as its copy.
    let alone = Alone { copies: run(lab, Some(&copies), None)?, forward: run(lab, None, Some((&forward, 1)))? };
    let passes = (alone.copies.as_secs_f64() / alone.forward.as_secs_f64()).round().max(1.0) as usize;
    let mut best = [Duration::MAX; 3];
    for _ in 0..TURNS {
        let turn = [
            run(lab, Some(&copies), None)?,
            run(lab, None, Some((&forward, passes)))?,
            run(lab, Some(&copies), Some((&beside, passes)))?,
        ];
        best.iter_mut().zip(turn).for_each(|(best, time)| *best = time.min(*best));
    }
    let [copied, computed, both] = best;
    let longer = copied.max(computed);
    let shape = format!("{way:?}, {TOKENS} tokens, {LAYERS} layers, {index:?} keys and KV");
    let passes = format!("{ROWS} rows, {passes} x logits, top-k, attention a layer");
    let row = |name: &str, shape: &str, time: Duration, least: Duration| Measurement {
        name: name.to_owned(),
        shape: shape.to_owned(),
        work: None,
        launched_microseconds: None,
        microseconds: time.as_secs_f64() * 1e6,
        bytes: bytes as u64,
        roofline_microseconds: least.as_secs_f64() * 1e6,
    };
    Ok(vec![
        row("reload alone", &shape, copied, copies.big(lab)?),
        row("forward alone", &passes, computed, computed),
        row("both, of the longer one", &shape, both, longer),
    ])
}

/// Times of one call of each.
struct Alone {
    copies: Duration,
    forward: Duration,
}

/// Copies of all layers on one stream, passes over all layers on another, or both, layer by layer behind events.
fn run(lab: &Lab, copies: Option<&Copies>, forward: Option<(&Forward, usize)>) -> Result<Duration, Fault> {
    let stream = Stream::new(lab.gpu, Priority::High)?;
    lab.gpu.synchronize()?;
    let begin = stream.record()?;
    lab.stream.wait(&begin)?;
    let mut landed: Vec<Event> = Vec::new();
    if let Some(copies) = copies {
        for layer in 0..LAYERS {
            copies.launch(lab, &stream, layer)?;
            landed.push(stream.record()?);
        }
    }
    if let Some((forward, passes)) = forward {
        for layer in 0..LAYERS {
            if let Some(event) = landed.get(layer) {
                lab.stream.wait(event)?;
            }
            for _ in 0..passes {
                forward.launch(lab, layer)?;
            }
        }
    }
    let ends = [stream.record()?, lab.stream.record()?];
    lab.gpu.synchronize()?;
    let times = [ends[0].since(&begin)?, ends[1].since(&begin)?];
    Ok(match (copies, forward) {
        (Some(_), None) => times[0],
        (None, Some(_)) => times[1],
        _ => times[0].max(times[1]),
    })
}

/// Pages of the host into those of the device.
struct Copies {
    jobs: DevicePool,
    checksums: DevicePool,
    host: HostPool,
    device: DevicePool,
    way: Way,
    /// Bytes of the pages of a layer: index keys, KV.
    bytes: [usize; 2],
}

impl Copies {
    fn new(lab: &Lab, index: IndexFormat, kv: KvFormat, way: Way) -> Result<Copies, Fault> {
        let (index_bytes, kv_bytes) = (page_bytes(index), kv.row_bytes() * PAGE_TOKENS);
        let mut host = HostPool::new(lab.gpu, HOST_LAYERS * layer_bytes(index, kv))?;
        let random = Random::new(71);
        // Finite in every format.
        let words = host.bytes_mut().as_chunks_mut::<8>().0.iter_mut();
        words.for_each(|word| *word = (random.next() & 0x3f3f_3f3f_3f3f_3f3f).to_le_bytes());
        let device = DevicePool::new(lab.gpu, (DEVICE_LAYERS * layer_bytes(index, kv)) as u64)?;
        // SAFETY: nothing of the host looks at these bytes while work is under way.
        let from = unsafe { host.span() };
        let mut jobs = Vec::new();
        for slot in 0..DEVICE_LAYERS {
            let layer =
                |span: Span, at: usize| span.part((at * layer_bytes(index, kv)) as u64, layer_bytes(index, kv) as u64);
            let (source, target) = (layer(from, slot % HOST_LAYERS), layer(device.span(), slot));
            for (begin, bytes) in [(0, index_bytes), (PAGES * index_bytes, kv_bytes)] {
                let page = |span: Span, at: usize| span.part((begin + at * bytes) as u64, bytes as u64);
                for (at, place) in random.permutation(PAGES).into_iter().enumerate() {
                    let job = Job::new(page(source, place as usize), page(target, at), at as u32, 7)?;
                    jobs.extend(job.to_bytes());
                }
            }
        }
        let (jobs, checksums) = (lab.upload(&jobs)?, lab.filled(PAGES as u64 * 8, 0)?);
        Ok(Copies { jobs, checksums, host, device, way, bytes: [PAGES * index_bytes, PAGES * kv_bytes] })
    }

    /// Both components of a layer.
    fn launch(&self, lab: &Lab, stream: &Stream, layer: usize) -> Result<(), Fault> {
        if self.way == Way::Engine {
            let [index, kv] = self.bytes;
            for (begin, bytes) in [(0, index), (index, kv)] {
                let at = |layer: usize| layer * (index + kv) + begin;
                let to = self.device.span().part(at(layer % DEVICE_LAYERS) as u64, bytes as u64);
                // SAFETY: nothing of the host looks at these bytes while work is under way.
                unsafe { self.host.copy_to(stream.raw(), at(layer % HOST_LAYERS), to)? };
            }
            return Ok(());
        }
        let list = PAGES as u64 * JOB_BYTES;
        for component in 0..2 {
            let begin = (layer % DEVICE_LAYERS * 2 + component) as u64 * list;
            let (jobs, sums) = (self.jobs.span().part(begin, list), self.checksums.span());
            // SAFETY: the jobs are of spans that live as long as they do, with places of their own.
            unsafe {
                let kernel = &lab.kernels().page_copy;
                kernel.launch(stream.raw(), CopyMethod::Ring, BLOCKS, jobs, PAGES as u32, sums)?;
            }
        }
        Ok(())
    }

    /// The time of one big copy of as many bytes.
    fn big(&self, lab: &Lab) -> Result<Duration, Fault> {
        let bytes = self.host.bytes().len() as u64;
        let to = self.device.span().part(0, bytes);
        lab.gpu.synchronize()?;
        let begin = lab.stream.record()?;
        // SAFETY: nothing of the host looks at these bytes until the end was waited for.
        unsafe { self.host.copy_to(lab.raw(), 0, to)? };
        let end = lab.stream.record()?;
        end.synchronize()?;
        Ok(end.since(&begin)?.mul_f64(LAYERS as f64 / HOST_LAYERS as f64))
    }
}

/// One pass: scores of all keys, selection, attention to what was selected.
struct Forward {
    /// What the arguments are spans of.
    _memory: Vec<DevicePool>,
    /// Keys and KV of each layer.
    pools: Vec<(PagePool, PagePool)>,
    logits: IndexLogitsArgs,
    top_k: TopKArgs,
    attention: SparseAttentionArgs,
}

impl Forward {
    /// Over layers that lie one behind the other in `pages`, in grids that fill so many multiprocessors.
    fn new(lab: &Lab, index: IndexFormat, kv: KvFormat, pages: Span, multiprocessors: u32) -> Result<Forward, Fault> {
        let random = Random::new(72);
        let splits = lab.kernels().sparse_attention.splits(ROWS as u32, HEADS as u32, K as u32, multiprocessors);
        let table: Vec<i32> = (0..ROWS).flat_map(|_| random.permutation(PAGES)).collect();
        let kv_bytes = kv.row_bytes() * PAGE_TOKENS;
        let finite = |bytes: usize| -> Vec<u8> { (0..bytes).map(|_| random.next() as u8 & 0x3f).collect() };
        let memory = vec![
            lab.upload(&finite(ROWS * INDEX_HEADS * index.key_bytes()))?,
            lab.upload(&random.reals(ROWS * INDEX_HEADS))?,
            lab.upload(&table)?,
            lab.upload(&[TOKENS as i32; ROWS])?,
            lab.filled((ROWS * TOKENS * 4) as u64, 0)?,
            lab.filled(4, 0)?,
            lab.filled((ROWS * K * 4) as u64, 0)?,
            lab.filled((ROWS * 8) as u64, 0)?,
            lab.upload(&finite(ROWS * HEADS * ROW_DIM * 2))?,
            lab.filled(SparseAttention::workspace_bytes(ROWS as u32, HEADS as u32, splits), 0)?,
            lab.filled((ROWS * HEADS * NOPE_DIM * 4) as u64, 0)?,
            lab.filled((ROWS * HEADS * 4) as u64, 0)?,
        ];
        let pool = |begin: usize, bytes: usize| {
            PagePool::new(pages.part(begin as u64, (PAGES * bytes) as u64), bytes as u64, PAGES as u32)
        };
        let mut pools = Vec::new();
        for begin in (0..DEVICE_LAYERS).map(|slot| slot * layer_bytes(index, kv)) {
            pools.push((pool(begin, page_bytes(index))?, pool(begin + PAGES * page_bytes(index), kv_bytes)?));
        }
        let span = |at: usize| memory[at].span();
        let (rows, table_stride, stride) = (ROWS as u32, PAGES as u32, TOKENS as u64);
        let logits = IndexLogitsArgs {
            format: index,
            q: span(0),
            weights: span(1),
            heads: INDEX_HEADS as u32,
            table: span(2),
            table_stride,
            lens: span(3),
            rows,
            pool: pools[0].0,
            logits: span(4),
            logits_stride: stride,
            violations: span(5),
            blocks: 3 * multiprocessors,
        };
        let (lens, k, out) = (span(3), K as u32, span(6));
        let top_k = TopKArgs { logits: span(4), stride, lens, len_max: TOKENS as u32, rows, k, out, stats: span(7) };
        let attention = SparseAttentionArgs {
            format: kv,
            q: span(8),
            heads: HEADS as u32,
            selected: out,
            k,
            table: span(2),
            table_stride,
            rows,
            pool: pools[0].1,
            scale: 0.01,
            sink: Span::NONE,
            splits,
            workspace: span(9),
            out: span(10),
            lse: span(11),
            violations: span(5),
        };
        Ok(Forward { _memory: memory, pools, logits, top_k, attention })
    }

    fn launch(&self, lab: &Lab, layer: usize) -> Result<(), Fault> {
        let (keys, kv) = self.pools[layer % DEVICE_LAYERS];
        let kernels = lab.kernels();
        kernels.index_logits.launch(lab.raw(), &IndexLogitsArgs { pool: keys, ..self.logits })?;
        kernels.top_k.launch(lab.raw(), &self.top_k)?;
        kernels.sparse_attention.launch(lab.raw(), &SparseAttentionArgs { pool: kv, ..self.attention })?;
        Ok(())
    }
}
