//! Top-k.

use kvweft_kernels::gpu::TopKArgs;
use kvweft_kernels::top_k;

use super::lab::{Fault, Lab, Random, equal};

/// Rows with one stride, padded with a large value that must never be selected.
struct Rows {
    rows: Vec<Vec<f32>>,
    /// As the device is told; the host takes what is in 0..=len of the row.
    lens: Vec<i32>,
}

impl Rows {
    fn new(rows: Vec<Vec<f32>>) -> Rows {
        let lens = rows.iter().map(|row| row.len() as i32).collect();
        Rows { rows, lens }
    }

    /// Compares every number of blocks with the host for one `k`.
    fn check(&self, lab: &Lab, k: u32) -> Result<(), Fault> {
        let len_max = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let stride = len_max.next_multiple_of(4) + 8;
        let mut flat = vec![f32::INFINITY; stride * self.rows.len()];
        for (to, from) in flat.chunks_mut(stride).zip(&self.rows) {
            to[..from.len()].copy_from_slice(from);
        }
        let (mut expected, mut stats, mut picked) = (Vec::new(), Vec::new(), Vec::new());
        for (row, len) in self.rows.iter().zip(&self.lens) {
            let len = ((*len).max(0) as usize).min(row.len());
            let found = top_k(&row[..len], k as usize, &mut picked);
            let padding = k as usize - picked.len();
            expected.extend(picked.iter().map(|at| *at as i32).chain(core::iter::repeat_n(-1, padding)));
            stats.extend([found.nan, found.ties]);
        }
        let (rows, len_max) = (self.rows.len() as u32, len_max as u32);
        let (logits, lens) = (lab.upload(&flat)?, lab.upload(&self.lens)?);
        let select = &lab.kernels().top_k;
        for blocks in [1, 2, 4, 8, 16].into_iter().filter(|blocks| *blocks <= select.blocks_max()) {
            let out = lab.filled((expected.len() * 4).max(4) as u64, 0xa5)?;
            let seen = lab.filled(u64::from(rows) * 8, 0xa5)?;
            let args = TopKArgs {
                logits: logits.span(),
                stride: stride as u64,
                lens: lens.span(),
                len_max,
                rows,
                k,
                out: out.span(),
                stats: seen.span(),
            };
            select.launch_on(lab.raw(), &args, blocks)?;
            let what = format!("k {k}, {blocks} blocks, {} rows of up to {len_max}", self.rows.len());
            equal(&what, &lab.download::<i32>(&out, expected.len())?, &expected)?;
            equal(&format!("statistics, {what}"), &lab.download::<u32>(&seen, stats.len())?, &stats)?;
        }
        Ok(())
    }
}

/// Rows of one length that are known to break selections.
fn adversarial_rows(len: usize) -> Vec<Vec<f32>> {
    let random = Random::new(len as u64);
    let of = |value: &dyn Fn(usize) -> f32| (0..len).map(value).collect::<Vec<f32>>();
    vec![
        of(&|_| 0.0),
        of(&|_| -3.5),
        of(&|i| if i % 2 == 0 { 0.0 } else { -0.0 }),
        of(&|_| f32::NAN),
        of(&|_| f32::NEG_INFINITY),
        of(&|i| [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::NAN, 1.0, -1.0][i % 7]),
        of(&|i| i as f32),
        of(&|i| -(i as f32)),
        of(&|i| f32::from_bits(i as u32)),
        of(&|i| f32::from_bits(0x8000_0000 | i as u32)),
        // One digit for all, in each of the passes.
        of(&|i| f32::from_bits(0x3f80_0000 + i as u32 % 1024)),
        of(&|i| f32::from_bits(0x3f80_0000 + (((i as u32 * 7) % 2048) << 10))),
        of(&|_| random.real().max(0.0)),
        of(&|_| f32::from_bits(random.next() as u32)),
        of(&|_| random.integer(3)),
        of(&|i| if i == len / 2 { 1.0 } else { 0.0 }),
    ]
}

pub(super) fn adversarial(lab: &Lab) -> Result<String, Fault> {
    let mut count = 0;
    for (k, lens) in [
        (512u32, vec![0, 1, 511, 512, 513, 5000]),
        (2048, vec![2047, 2048, 2049, 20_000]),
        (1, vec![1, 2, 1000]),
        (0, vec![10]),
        (1024, vec![8191, 8192, 8193, 70_001]),
    ] {
        for len in lens.into_iter().filter(|len| *len <= lab.size(usize::MAX, 2100)) {
            let rows = adversarial_rows(len);
            count += rows.len();
            Rows::new(rows).check(lab, k)?;
        }
    }
    // Lengths that are negative, shorter than the row, and longer than there is room for.
    let mut rows = Rows::new(adversarial_rows(6000));
    for (i, len) in rows.lens.iter_mut().enumerate() {
        *len = [i32::MIN, -1, 0, 600, 5999, i32::MAX, 6000, 1][i % 8];
    }
    // Behind 6000 lies padding, which the device's length must not reach.
    rows.lens.iter_mut().for_each(|len| *len = (*len).min(6000));
    rows.check(lab, 512)?;
    Ok(format!("{count} rows, on 1 to {} blocks each", lab.kernels().top_k.blocks_max()))
}

pub(super) fn million(lab: &Lab) -> Result<String, Fault> {
    let random = Random::new(77);
    let len = lab.size(1 << 20, 1 << 14);
    let relu: Vec<f32> = (0..len).map(|_| (random.integer(2000) - 1500.0).max(0.0)).collect();
    let reals = random.reals(len - 1);
    let ties = vec![2.5; len];
    let rare: Vec<f32> = (0..len).map(|i| if i % 1000 == 999 { random.real() } else { 0.0 }).collect();
    let rows = Rows::new(vec![relu, reals, ties, rare]);
    for k in [512, 2048] {
        rows.check(lab, k)?;
    }
    Ok(format!("4 rows of {len}, on every number of blocks"))
}

pub(super) fn random(lab: &Lab) -> Result<String, Fault> {
    let random = Random::new(5);
    let rounds = lab.size(12, 2);
    for round in 0..rounds {
        let rows = (0..1 + random.below(9)).map(|_| {
            let len = random.below(if round % 3 == 0 { lab.size(50_000, 4000) } else { 4000 } as u64) as usize;
            let levels = 1 + random.below(1 << random.below(20)) as i64;
            random.integers(len, levels)
        });
        Rows::new(rows.collect()).check(lab, 1 + random.below(3000) as u32)?;
    }
    Ok(format!("{rounds} batches, on every number of blocks"))
}
