//! The path from keys to sums, and repeats.

use kvweft_kernels::gpu::{
    IndexKWriteArgs, IndexLogitsArgs, KeyType, PAGE_TOKENS, PagePool, SelectSumArgs, Span, TopKArgs,
};
use kvweft_kernels::{IndexFormat, KEY_DIM, KvFormat, NOPE_DIM, ScaleRule, top_k};

use super::attend::Cache;
use super::index::{FORMATS, Fixture, page_bytes};
use super::lab::{Fault, Lab, Random, equal, equal_bits};
use crate::memory::DevicePool;

const K: usize = 512;

/// In the exact mode: the device writes keys into poisoned pages, scores them, selects and sums, and the host does the
/// same with its own functions, without ever seeing the device's numbers.
pub(super) fn end_to_end(lab: &Lab) -> Result<String, Fault> {
    for (format, kv) in FORMATS.into_iter().zip(KvFormat::ALL) {
        for blocks in [1, lab.kernels().top_k.blocks_max()] {
            let run = Run::new(lab, format, kv);
            let (selected, stats, sums) = run.device(lab, blocks)?;
            run.compare(&selected, &stats, &sums)?;
        }
    }
    Ok(format!("4 requests of up to {} tokens, k {K}, fp8 and bf16", lab.size(9000, 700)))
}

pub(super) fn repeats(lab: &Lab) -> Result<String, Fault> {
    let run = Run::new(lab, IndexFormat::Fp8, KvFormat::Fp8);
    let first = run.device(lab, 1)?;
    let turns = lab.size(20, 2);
    for i in 0..turns {
        let again = run.device(lab, if i % 2 == 0 { 1 } else { lab.kernels().top_k.blocks_max() })?;
        equal("selections of a repeat", &again.0, &first.0)?;
        equal("statistics of a repeat", &again.1, &first.1)?;
        equal_bits("sums of a repeat", &again.2, &first.2)?;
    }
    // Logits of real numbers, whose sums have an order.
    let fixture = Fixture::new(41, IndexFormat::Fp8, 64, &[lab.size(3000, 500) as i32, 777], false);
    let mut before: Option<Vec<u32>> = None;
    for blocks in (1..=turns as u32).map(|i| i * 13) {
        let (logits, _) = fixture.run(lab, &lab.kernels().index_logits, blocks)?;
        let bits: Vec<u32> = lab.download(&logits, 2 * fixture.stride())?;
        if let Some(before) = &before {
            equal("logits of a repeat with other blocks", &bits, before)?;
        }
        before = Some(bits);
    }
    Ok(format!("{turns} runs of the whole path, {turns} of real logits"))
}

/// Selections, statistics and sums.
type Found = (Vec<i32>, Vec<u32>, Vec<f32>);

struct Run {
    fixture: Fixture,
    cache: Cache,
    keys: Vec<f32>,
}

impl Run {
    fn new(lab: &Lab, format: IndexFormat, kv: KvFormat) -> Run {
        let lens = [lab.size(9000, 700) as i32, 511, 64, lab.size(2500, 600) as i32];
        let mut fixture = Fixture::new(51, format, 64, &lens, true);
        let random = Random::new(52);
        let count = fixture.pages.len() / page_bytes(format);
        let keys = random.integers(count * PAGE_TOKENS * KEY_DIM, 8);
        // The host's own pages, from the same keys.
        for (i, key) in keys.as_chunks::<KEY_DIM>().0.iter().enumerate() {
            let page = &mut fixture.pages[i / PAGE_TOKENS * page_bytes(format)..][..page_bytes(format)];
            kvweft_kernels::write_key(format, ScaleRule::PowerOfTwo, page, PAGE_TOKENS, i % PAGE_TOKENS, key);
        }
        let mut cache = Cache::new(53, kv, lens.len(), fixture.table_stride, true);
        cache.table.clone_from(&fixture.table);
        Run { fixture, cache, keys }
    }

    fn device(&self, lab: &Lab, blocks: u32) -> Result<Found, Fault> {
        let violations = lab.filled(4, 0)?;
        let table = lab.upload(&self.fixture.table)?;
        let lens = lab.upload(&self.fixture.lens)?;
        let logits = self.write_and_score(lab, table.span(), lens.span(), violations.span())?;
        let found = self.select_and_sum(lab, blocks, logits.span(), table.span(), lens.span(), violations.span())?;
        equal("violations", &lab.download::<u32>(&violations, 1)?, &[0])?;
        Ok(found)
    }

    /// Writes all keys into poisoned pages, and returns the logits.
    fn write_and_score(&self, lab: &Lab, table: Span, lens: Span, violations: Span) -> Result<DevicePool, Fault> {
        let fixture = &self.fixture;
        let (rows, stride, bytes) = (fixture.lens.len(), fixture.stride(), page_bytes(fixture.format));
        let count = fixture.pages.len() / bytes;
        let slots: Vec<i32> = (0..count as i32).flat_map(|page| (0..64).flat_map(move |token| [page, token])).collect();
        let (keys, slots) = (lab.upload(&self.keys)?, lab.upload(&slots)?);
        let pages = lab.filled(fixture.pages.len() as u64, 0xff)?;
        let pool = PagePool::new(pages.span(), bytes as u64, count as u32)?;
        let write = IndexKWriteArgs {
            format: fixture.format,
            rule: ScaleRule::PowerOfTwo,
            keys: keys.span(),
            key_type: KeyType::F32,
            slots: slots.span(),
            count: (count * PAGE_TOKENS) as u32,
            pool,
            violations,
        };
        let (q, weights) = (lab.upload(&fixture.q_bytes())?, lab.upload(&fixture.weights)?);
        let logits = lab.filled((rows * stride * 4) as u64, 0xff)?;
        let score = IndexLogitsArgs {
            format: fixture.format,
            q: q.span(),
            weights: weights.span(),
            heads: fixture.heads as u32,
            table,
            table_stride: fixture.table_stride as u32,
            lens,
            rows: rows as u32,
            pool,
            logits: logits.span(),
            logits_stride: stride as u64,
            violations,
            blocks: lab.blocks(),
        };
        lab.kernels().index_k_write.launch(lab.raw(), &write)?;
        lab.kernels().index_logits.launch(lab.raw(), &score)?;
        lab.stream.synchronize()?;
        Ok(logits)
    }

    fn select_and_sum(
        &self,
        lab: &Lab,
        blocks: u32,
        logits: Span,
        table: Span,
        lens: Span,
        violations: Span,
    ) -> Result<Found, Fault> {
        let (rows, stride) = (self.fixture.lens.len(), self.fixture.stride());
        let (selected, stats) = (lab.filled((rows * K * 4) as u64, 0xff)?, lab.filled((rows * 8) as u64, 0xff)?);
        let select = TopKArgs {
            logits,
            stride: stride as u64,
            lens,
            len_max: stride as u32,
            rows: rows as u32,
            k: K as u32,
            out: selected.span(),
            stats: stats.span(),
        };
        let kv = lab.upload(&self.cache.pages)?;
        let kv_bytes = self.cache.format.row_bytes() * PAGE_TOKENS;
        let (sums, status) = (lab.filled((rows * NOPE_DIM * 4) as u64, 0xff)?, lab.filled((rows * 4) as u64, 0)?);
        let sum = SelectSumArgs {
            format: self.cache.format,
            selected: selected.span(),
            k: K as u32,
            table,
            table_stride: self.fixture.table_stride as u32,
            rows: rows as u32,
            pool: PagePool::new(kv.span(), kv_bytes as u64, (self.cache.pages.len() / kv_bytes) as u32)?,
            out: sums.span(),
            status: status.span(),
            violations,
        };
        lab.kernels().top_k.launch_on(lab.raw(), &select, blocks)?;
        lab.kernels().select_sum.launch(lab.raw(), &sum)?;
        equal("statuses", &lab.download::<u32>(&status, rows)?, &vec![0; rows])?;
        Ok((lab.download(&selected, rows * K)?, lab.download(&stats, rows * 2)?, lab.download(&sums, rows * NOPE_DIM)?))
    }

    fn compare(&self, selected: &[i32], stats: &[u32], sums: &[f32]) -> Result<(), Fault> {
        let mut picked = Vec::new();
        for row in 0..self.fixture.lens.len() {
            let logits = self.fixture.logits(row);
            let found = top_k(&logits, K, &mut picked);
            let mut expected: Vec<i32> = picked.iter().map(|at| *at as i32).collect();
            expected.resize(K, -1);
            equal(&format!("the selection of request {row}"), &selected[row * K..][..K], &expected)?;
            equal("its statistics", &stats[2 * row..][..2], &[found.nan, found.ties])?;
            let sum = self.cache.sum(row, &expected).map_err(|error| Fault::Wrong(error.to_string()))?;
            equal_bits(&format!("the sum of request {row}"), &sums[row * NOPE_DIM..][..NOPE_DIM], &sum)?;
        }
        Ok(())
    }
}
