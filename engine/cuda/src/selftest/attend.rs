//! Sums of and attention over selected rows.

use half::bf16;
use kvweft_kernels::gpu::{
    ATTENTION_PORTABLE_SM_90, Arch, Module, PAGE_TOKENS, PagePool, SelectSumArgs, Span, SparseAttention,
    SparseAttentionArgs, image,
};
use kvweft_kernels::{
    AttentionQuery, KvFormat, NOPE_DIM, ROW_DIM, ScaleRule, read_row, select_sum, sparse_attention, write_row,
};

use super::lab::{Fault, Lab, Random, ensure, equal, equal_bits, portable};

/// Pages of KV and a table, on both sides.
#[derive(Clone)]
pub(super) struct Cache {
    pub(super) format: KvFormat,
    pub(super) pages: Vec<u8>,
    pub(super) table: Vec<i32>,
    pub(super) table_stride: usize,
}

impl Cache {
    /// `rows` tables of `table_stride` pages each, in a random order.
    pub(super) fn new(seed: u64, format: KvFormat, rows: usize, table_stride: usize, exact: bool) -> Cache {
        let random = Random::new(seed);
        let rule = if exact { ScaleRule::PowerOfTwo } else { ScaleRule::Amax };
        let count = rows * table_stride;
        let mut pages = vec![0; count * PAGE_TOKENS * format.row_bytes()];
        for row in pages.chunks_mut(format.row_bytes()) {
            let values = core::array::from_fn(|_| if exact { random.integer(8) } else { random.real() });
            write_row(format, rule, row, &values);
        }
        Cache { format, pages, table: random.permutation(count), table_stride }
    }

    fn page_bytes(&self) -> usize {
        self.format.row_bytes() * PAGE_TOKENS
    }

    fn count(&self) -> usize {
        self.pages.len() / self.page_bytes()
    }

    /// The values of a position; none if it or its page is not there.
    pub(super) fn row(&self, query: usize, position: i32) -> Option<[f32; ROW_DIM]> {
        let position = usize::try_from(position).ok()?;
        let at = position / PAGE_TOKENS;
        if at >= self.table_stride {
            return None;
        }
        let page =
            usize::try_from(self.table[query * self.table_stride + at]).ok().filter(|page| *page < self.count())?;
        let bytes = &self.pages[page * self.page_bytes() + position % PAGE_TOKENS * self.format.row_bytes()..];
        let mut values = [0.0; ROW_DIM];
        read_row(self.format, &bytes[..self.format.row_bytes()], &mut values);
        Some(values)
    }

    fn rows(&self, query: usize, selected: &[i32]) -> Vec<[f32; ROW_DIM]> {
        selected.iter().filter_map(|position| self.row(query, *position)).collect()
    }

    /// The host's sums; `Err` where it refuses.
    pub(super) fn sum(&self, query: usize, selected: &[i32]) -> Result<Vec<f32>, kvweft_kernels::SumError> {
        let rows = self.rows(query, selected);
        let rows: Vec<&[f32]> = rows.iter().map(|row| &row[..NOPE_DIM]).collect();
        let mut out = vec![0.0; NOPE_DIM];
        select_sum(&rows, &mut out).map(|()| out)
    }

    /// The device's sums `[queries, 512]`, statuses and violations.
    pub(super) fn run_sum(&self, lab: &Lab, selected: &[i32], k: usize) -> Result<(Vec<f32>, Vec<u32>, u32), Fault> {
        let queries = selected.len() / k.max(1);
        let (pages, table, selection) = (lab.upload(&self.pages)?, lab.upload(&self.table)?, lab.upload(selected)?);
        let out = lab.filled((queries * NOPE_DIM * 4) as u64, 0xff)?;
        let (status, violations) = (lab.filled((queries * 4) as u64, 0)?, lab.filled(4, 0)?);
        let args = SelectSumArgs {
            format: self.format,
            selected: selection.span(),
            k: k as u32,
            table: table.span(),
            table_stride: self.table_stride as u32,
            rows: queries as u32,
            pool: PagePool::new(pages.span(), self.page_bytes() as u64, self.count() as u32)?,
            out: out.span(),
            status: status.span(),
            violations: violations.span(),
        };
        lab.kernels().select_sum.launch(lab.raw(), &args)?;
        let sums = lab.download(&out, queries * NOPE_DIM)?;
        Ok((sums, lab.download(&status, queries)?, lab.download(&violations, 1)?[0]))
    }
}

/// Random positions, some of them none.
fn selection(random: &Random, queries: usize, k: usize, len: usize) -> Vec<i32> {
    (0..queries * k).map(|_| if random.below(10) == 0 { -1 } else { random.below(len as u64) as i32 }).collect()
}

pub(super) fn sums(lab: &Lab) -> Result<String, Fault> {
    for format in KvFormat::ALL {
        for (seed, k) in [(1, 1), (2, 31), (3, 512), (4, 2048), (5, 2050)].into_iter().take(lab.size(5, 3)) {
            let mut cache = Cache::new(seed, format, 3, 40, true);
            (cache.table[1], cache.table[2]) = (-1, 1 << 30);
            let selected = selection(&Random::new(seed), 3, k, 41 * PAGE_TOKENS);
            let absent = (0..3 * k).filter(|i| selected[*i] >= 0 && cache.row(i / k, selected[*i]).is_none()).count();
            let (got, status, violations) = cache.run_sum(lab, &selected, k)?;
            for query in 0..3 {
                let expected = cache.sum(query, &selected[query * k..][..k]);
                let expected = expected.map_err(|error| Fault::Wrong(error.to_string()))?;
                equal_bits(&format!("{format:?}, k {k}"), &got[query * NOPE_DIM..][..NOPE_DIM], &expected)?;
            }
            equal("statuses", &status, &[0; 3])?;
            equal("positions in absent pages", &[violations], &[absent as u32])?;
        }
        refusals(lab, format)?;
    }
    Ok("absent pages, refused values and sums".to_owned())
}

/// Values that are no small integers, and sums that are too large.
fn refusals(lab: &Lab, format: KvFormat) -> Result<(), Fault> {
    let mut cache = Cache::new(9, format, 3, 1, true);
    let bytes = format.row_bytes();
    for row in cache.pages.chunks_mut(bytes).take(3 * PAGE_TOKENS) {
        write_row(format, ScaleRule::PowerOfTwo, row, &[32_768.0; ROW_DIM]);
    }
    let poisoned = cache.table[0] as usize * PAGE_TOKENS * bytes;
    cache.pages[poisoned..poisoned + bytes].fill(0xff);
    let k = 600;
    // The first selects a poisoned row; the second 600 times 2^15, which is too much; the third 512 times, which is not.
    let mut selected = vec![5; 3 * k];
    selected[1] = 0;
    (2..k).for_each(|i| selected[i] = -1);
    (2 * k + 512..3 * k).for_each(|i| selected[i] = -1);
    let (sums, status, _) = cache.run_sum(lab, &selected, k)?;
    ensure!(
        cache.sum(0, &selected[..k]).is_err() && cache.sum(1, &selected[k..2 * k]).is_err(),
        "the host takes these"
    );
    equal("statuses", &status, &[1, 2, 0])?;
    equal_bits("the largest sum", &sums[2 * NOPE_DIM..], &[16_777_216.0; NOPE_DIM])
}

/// What a query asks, in both formats of numbers.
struct Ask {
    heads: usize,
    q: Vec<f32>,
    scale: f32,
    sink: Option<Vec<f32>>,
}

impl Ask {
    fn new(seed: u64, queries: usize, heads: usize, sink: bool) -> Ask {
        let random = Random::new(seed);
        let q = random.reals(queries * heads * ROW_DIM);
        let q = q.into_iter().map(|value| bf16::from_f32(value * 3.0).to_f32()).collect();
        Ask { heads, q, scale: 0.0625, sink: sink.then(|| random.reals(heads)) }
    }

    fn host(&self, cache: &Cache, query: usize, selected: &[i32]) -> (Vec<f32>, Vec<f32>) {
        let (mut out, mut lse) = (vec![0.0; self.heads * NOPE_DIM], vec![0.0; self.heads]);
        let q = &self.q[query * self.heads * ROW_DIM..][..self.heads * ROW_DIM];
        let ask = AttentionQuery { heads: self.heads, q, scale: self.scale, sink: self.sink.as_deref() };
        sparse_attention(&ask, &cache.rows(query, selected), &mut out, &mut lse);
        (out, lse)
    }

    fn device(
        &self,
        lab: &Lab,
        kernel: &SparseAttention,
        cache: &Cache,
        selected: &[i32],
        splits: u32,
    ) -> Result<(Vec<f32>, Vec<f32>), Fault> {
        let queries = self.q.len() / (self.heads * ROW_DIM);
        let k = selected.len() / queries;
        let (pages, table, selection) = (lab.upload(&cache.pages)?, lab.upload(&cache.table)?, lab.upload(selected)?);
        let q: Vec<u16> = self.q.iter().map(|value| bf16::from_f32(*value).to_bits()).collect();
        let q = lab.upload(&q)?;
        let sink = self.sink.as_ref().map(|sink| lab.upload(sink)).transpose()?;
        let bytes = SparseAttention::workspace_bytes(queries as u32, self.heads as u32, splits);
        let workspace = lab.filled(bytes, 0xff)?;
        let out = lab.filled((queries * self.heads * NOPE_DIM * 4) as u64, 0xff)?;
        let lse = lab.filled((queries * self.heads * 4) as u64, 0xff)?;
        let violations = lab.filled(4, 0)?;
        let args = SparseAttentionArgs {
            format: cache.format,
            q: q.span(),
            heads: self.heads as u32,
            selected: selection.span(),
            k: k as u32,
            table: table.span(),
            table_stride: cache.table_stride as u32,
            rows: queries as u32,
            pool: PagePool::new(pages.span(), cache.page_bytes() as u64, cache.count() as u32)?,
            scale: self.scale,
            sink: sink.as_ref().map_or(Span::NONE, |sink| sink.span()),
            splits,
            workspace: workspace.span(),
            out: out.span(),
            lse: lse.span(),
            violations: violations.span(),
        };
        kernel.launch(lab.raw(), &args)?;
        Ok((lab.download(&out, queries * self.heads * NOPE_DIM)?, lab.download(&lse, queries * self.heads)?))
    }
}

pub(super) fn attention(lab: &Lab) -> Result<String, Fault> {
    attention_by(lab, &lab.kernels().sparse_attention)
}

pub(super) fn attention_portable(lab: &Lab) -> Result<String, Fault> {
    let kernel = portable(lab, || {
        let attend = || Module::load("sparse_attention", ATTENTION_PORTABLE_SM_90);
        let merge = Module::load("attention_merge", image("attention_merge").cubin(Arch::Sm90))?;
        SparseAttention::new(attend()?, attend()?, merge)
    })?;
    edges_by(lab, &kernel)?;
    attention_by(lab, &kernel)
}

fn attention_by(lab: &Lab, kernel: &SparseAttention) -> Result<String, Fault> {
    let (mut worst, mut worst_lse) = (0.0f32, 0.0f32);
    for format in KvFormat::ALL {
        for (seed, heads, k, splits, sink) in [
            (1, 16, 32, 1, false),
            (2, 5, 100, 3, true),
            (3, 64, 512, 4, true),
            (6, 40, 300, 2, true),
            (4, 128, lab.size(2048, 256), 16, false),
            (5, 1, 1, 7, false),
        ] {
            let cache = Cache::new(seed, format, 2, 20, false);
            let ask = Ask::new(seed + 100, 2, heads, sink);
            let selected = selection(&Random::new(seed), 2, k, 20 * PAGE_TOKENS);
            let (out, lse) = ask.device(lab, kernel, &cache, &selected, splits)?;
            for query in 0..2 {
                let (expected, expected_lse) = ask.host(&cache, query, &selected[query * k..][..k]);
                let got = &out[query * heads * NOPE_DIM..][..heads * NOPE_DIM];
                for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    let error = (got - expected).abs();
                    // Values are at most 1, and bf16 has 8 bits.
                    ensure!(error <= 0.01, "{format:?}, {heads} heads, k {k}: at {i} expected {expected}, got {got}");
                    worst = worst.max(error);
                }
                for (got, expected) in lse[query * heads..][..heads].iter().zip(&expected_lse) {
                    let error = (got - expected).abs();
                    ensure!(
                        error <= 0.002 || got == expected,
                        "lse, {heads} heads, k {k}: expected {expected}, got {got}"
                    );
                    worst_lse = worst_lse.max(if got == expected { 0.0 } else { error });
                }
            }
        }
    }
    Ok(format!("largest difference {worst:.1e} of values up to 1, {worst_lse:.1e} of lse"))
}

pub(super) fn edges(lab: &Lab) -> Result<String, Fault> {
    edges_by(lab, &lab.kernels().sparse_attention)
}

fn edges_by(lab: &Lab, kernel: &SparseAttention) -> Result<String, Fault> {
    for format in KvFormat::ALL {
        let mut cache = Cache::new(8, format, 1, 4, false);
        let ask = Ask::new(108, 1, 20, false);
        for splits in [1, 3] {
            let (out, lse) = ask.device(lab, kernel, &cache, &[-1; 70], splits)?;
            ensure!(out.iter().all(|x| *x == 0.0), "nothing selected, {splits} splits: outputs are not 0");
            ensure!(
                lse.iter().all(|x| *x == f32::NEG_INFINITY),
                "nothing selected, {splits} splits: lse is not -infinity"
            );
        }
        // Two parts of one row each and one of none.
        let (out, _) =
            ask.device(lab, kernel, &cache, &core::array::from_fn::<i32, 96, _>(|i| if i == 40 { 9 } else { -1 }), 3)?;
        let row = cache.row(0, 9).expect("it is there");
        let close = |got: &f32, row: &f32| (got - row).abs() <= row.abs() / 128.0;
        for out in out.chunks(NOPE_DIM) {
            ensure!(out.iter().zip(&row).all(|(got, row)| close(got, row)), "one row does not give itself");
        }
        let bytes = format.row_bytes();
        let poisoned = cache.table[0] as usize * PAGE_TOKENS * bytes + 9 * bytes;
        cache.pages[poisoned..poisoned + bytes].fill(0xff);
        let (out, lse) = ask.device(lab, kernel, &cache, &core::array::from_fn::<i32, 96, _>(|i| i as i32), 3)?;
        ensure!(out.iter().chain(&lse).all(|x| x.is_nan()), "poison does not reach outputs and lse");
        let (out, _) = ask.device(lab, kernel, &cache, &core::array::from_fn::<i32, 64, _>(|i| i as i32 + 10), 2)?;
        ensure!(out.iter().all(|x| x.is_finite()), "poison reaches outputs without being selected");
    }
    Ok("in both formats".to_owned())
}
