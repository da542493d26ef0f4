//! Index keys and logits.

use half::bf16;
use kvweft_kernels::gpu::{
    IndexKWriteArgs, IndexLogits, IndexLogitsArgs, KeyType, LOGITS_PORTABLE_SM_90, Module, PAGE_TOKENS, PagePool,
};
use kvweft_kernels::{IndexFormat, KEY_DIM, Query, ScaleRule, e4m3_from_f32, page_logits, write_key};

use super::lab::{Fault, Lab, Random, ensure, equal, equal_bits, portable};
use crate::memory::DevicePool;

pub(super) const FORMATS: [IndexFormat; 2] = [IndexFormat::Fp8, IndexFormat::Bf16];

/// Bytes of a page.
pub(super) fn page_bytes(format: IndexFormat) -> usize {
    format.page_bytes(PAGE_TOKENS)
}

/// Both formats, both rules, both types of keys: bytes equal the host's, and skipped slots touch nothing.
pub(super) fn write(lab: &Lab) -> Result<String, Fault> {
    let mut keys_written = 0;
    for format in FORMATS {
        for rule in ScaleRule::ALL {
            for key_type in [KeyType::F32, KeyType::Bf16] {
                keys_written += write_one(lab, format, rule, key_type)?;
            }
        }
    }
    Ok(format!("{keys_written} keys, some not finite"))
}

fn write_one(lab: &Lab, format: IndexFormat, rule: ScaleRule, key_type: KeyType) -> Result<usize, Fault> {
    let random = Random::new(1 + key_type as u64);
    let (pages, count) = (40, 1000);
    let mut keys = random.reals(count * KEY_DIM);
    for (i, key) in keys.as_chunks_mut::<KEY_DIM>().0.iter_mut().enumerate() {
        let size = ((i % 40) as f32 - 20.0).exp2();
        key.iter_mut().for_each(|value| *value *= size);
        match i % 50 {
            1 => key.fill(0.0),
            2 => key[random.below(128) as usize] = f32::NAN,
            3 => key[random.below(128) as usize] = f32::INFINITY,
            4 => key.fill(-0.0),
            5 => key.iter_mut().for_each(|value| *value = (*value * 1e6).round()),
            _ => {}
        }
    }
    if key_type == KeyType::Bf16 {
        keys.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
    }
    let places = random.permutation(pages * PAGE_TOKENS);
    let mut slots: Vec<i32> = places[..count].iter().flat_map(|place| [place / 64, place % 64]).collect();
    // Two that name no token.
    (slots[2], slots[4], slots[5]) = (-1, 3, 64);
    let mut expected = vec![0xa5; pages * page_bytes(format)];
    for (i, key) in keys.as_chunks::<KEY_DIM>().0.iter().enumerate().filter(|(i, _)| *i != 1 && *i != 2) {
        let page = &mut expected[slots[2 * i] as usize * page_bytes(format)..][..page_bytes(format)];
        write_key(format, rule, page, PAGE_TOKENS, slots[2 * i + 1] as usize, key);
    }
    let pool = lab.filled(expected.len() as u64, 0xa5)?;
    let violations = lab.filled(4, 0)?;
    let narrow: Vec<u16> = keys.iter().map(|value| bf16::from_f32(*value).to_bits()).collect();
    let on_device = if key_type == KeyType::F32 { lab.upload(&keys)? } else { lab.upload(&narrow)? };
    let slots = lab.upload(&slots)?;
    let args = IndexKWriteArgs {
        format,
        rule,
        keys: on_device.span(),
        key_type,
        slots: slots.span(),
        count: count as u32,
        pool: PagePool::new(pool.span(), page_bytes(format) as u64, pages as u32)?,
        violations: violations.span(),
    };
    lab.kernels().index_k_write.launch(lab.raw(), &args)?;
    let got: Vec<u8> = lab.download(&pool, expected.len())?;
    equal(&format!("bytes of {format:?} pages, {rule:?}, from {key_type:?}"), &got, &expected)?;
    equal("skipped slots", &lab.download::<u32>(&violations, 1)?, &[2])?;
    Ok(count)
}

/// Pages of keys, queries and a table, on both sides.
pub(super) struct Fixture {
    pub(super) format: IndexFormat,
    pub(super) heads: usize,
    pub(super) lens: Vec<i32>,
    pub(super) table: Vec<i32>,
    pub(super) table_stride: usize,
    pub(super) pages: Vec<u8>,
    pub(super) q: Vec<f32>,
    pub(super) weights: Vec<f32>,
}

impl Fixture {
    /// Rows of these lengths, with pages of their own in a random order. `exact` is the exact mode.
    pub(super) fn new(seed: u64, format: IndexFormat, heads: usize, lens: &[i32], exact: bool) -> Fixture {
        let random = Random::new(seed);
        let table_stride =
            lens.iter().map(|len| (*len).max(0) as usize).max().unwrap_or(0).div_ceil(PAGE_TOKENS).max(1);
        let count = table_stride * lens.len();
        let rule = if exact { ScaleRule::PowerOfTwo } else { ScaleRule::Amax };
        let mut pages = vec![0; count * page_bytes(format)];
        for page in pages.chunks_mut(page_bytes(format)) {
            for token in 0..PAGE_TOKENS {
                let value = |_| if exact { random.integer(8) } else { random.real() };
                write_key(format, rule, page, PAGE_TOKENS, token, &core::array::from_fn(value));
            }
        }
        let q = |_| if exact { random.integer(8) } else { random.real() * 4.0 };
        let stored = |value: f32| match format {
            IndexFormat::Fp8 => kvweft_kernels::e4m3_to_f32(e4m3_from_f32(value)),
            _ => bf16::from_f32(value).to_f32(),
        };
        Fixture {
            format,
            heads,
            lens: lens.to_vec(),
            table: random.permutation(count),
            table_stride,
            pages,
            q: (0..lens.len() * heads * KEY_DIM).map(q).map(stored).collect(),
            weights: if exact { random.integers(lens.len() * heads, 32) } else { random.reals(lens.len() * heads) },
        }
    }

    /// At the bound of the exact mode: dot products just below 2^13, and logits just below 2^24, odd ones among them.
    fn extreme(format: IndexFormat) -> Fixture {
        let mut fixture = Fixture::new(8, format, 64, &[1000], true);
        for (i, page) in fixture.pages.chunks_mut(page_bytes(format)).enumerate() {
            for token in 0..PAGE_TOKENS {
                let value = |d| if d == (i + token) % KEY_DIM { 7.0 - (token % 3) as f32 } else { 8.0 };
                write_key(format, ScaleRule::PowerOfTwo, page, PAGE_TOKENS, token, &core::array::from_fn(value));
            }
        }
        fixture.q = (0..64 * KEY_DIM).map(|i| if i % KEY_DIM == i / KEY_DIM { 7.0 } else { 8.0 }).collect();
        fixture.weights = (0..64).map(|head| if head % 2 == 0 { 32.0 } else { 31.0 }).collect();
        fixture
    }

    /// The longest row that there is room for.
    pub(super) fn stride(&self) -> usize {
        self.table_stride * PAGE_TOKENS
    }

    pub(super) fn len(&self, row: usize) -> usize {
        (self.lens[row].max(0) as usize).min(self.stride())
    }

    /// The host's logits of a row; those of absent pages are -infinity.
    pub(super) fn logits(&self, row: usize) -> Vec<f32> {
        let (len, bytes) = (self.len(row), page_bytes(self.format));
        let query = Query {
            heads: self.heads,
            q: &self.q[row * self.heads * KEY_DIM..][..self.heads * KEY_DIM],
            weights: &self.weights[row * self.heads..][..self.heads],
        };
        let mut out = Vec::with_capacity(len);
        for at in (0..len).step_by(PAGE_TOKENS) {
            let tokens = PAGE_TOKENS.min(len - at);
            let page = self.table[row * self.table_stride + at / PAGE_TOKENS];
            match self.pages.chunks(bytes).nth(usize::try_from(page).unwrap_or(usize::MAX)) {
                Some(page) => page_logits(self.format, page, PAGE_TOKENS, 0..tokens, &query, &mut out),
                None => out.extend(core::iter::repeat_n(f32::NEG_INFINITY, tokens)),
            }
        }
        out
    }

    /// The queries' bytes in the format of the keys.
    pub(super) fn q_bytes(&self) -> Vec<u8> {
        match self.format {
            IndexFormat::Fp8 => self.q.iter().map(|value| e4m3_from_f32(*value)).collect(),
            _ => self.q.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        }
    }

    /// The device's logits, `[rows, stride]`, and the count of absent pages. Behind a row they are NaN.
    pub(super) fn run(&self, lab: &Lab, kernel: &IndexLogits, blocks: u32) -> Result<(DevicePool, u32), Fault> {
        let rows = self.lens.len();
        let (q, weights) = (lab.upload(&self.q_bytes())?, lab.upload(&self.weights)?);
        let (table, lens) = (lab.upload(&self.table)?, lab.upload(&self.lens)?);
        let pages = lab.upload(&self.pages)?;
        let logits = lab.filled((rows * self.stride() * 4) as u64, 0xff)?;
        let violations = lab.filled(4, 0)?;
        let count = self.pages.len() / page_bytes(self.format);
        let args = IndexLogitsArgs {
            format: self.format,
            q: q.span(),
            weights: weights.span(),
            heads: self.heads as u32,
            table: table.span(),
            table_stride: self.table_stride as u32,
            lens: lens.span(),
            rows: rows as u32,
            pool: PagePool::new(pages.span(), page_bytes(self.format) as u64, count as u32)?,
            logits: logits.span(),
            logits_stride: self.stride() as u64,
            violations: violations.span(),
            blocks,
        };
        kernel.launch(lab.raw(), &args)?;
        let seen = lab.download::<u32>(&violations, 1)?[0];
        Ok((logits, seen))
    }

    /// Compares bits of every row, and that nothing was written behind a row.
    fn compare_bits(&self, lab: &Lab, kernel: &IndexLogits, blocks: u32) -> Result<usize, Fault> {
        let (logits, _) = self.run(lab, kernel, blocks)?;
        let got: Vec<f32> = lab.download(&logits, self.lens.len() * self.stride())?;
        let mut compared = 0;
        for (row, got) in got.chunks(self.stride()).enumerate() {
            let (heads, len) = (self.heads, self.len(row));
            equal_bits(&format!("{:?}, {heads} heads, row {row}", self.format), &got[..len], &self.logits(row))?;
            ensure!(got[len..].iter().all(|x| x.to_bits() == u32::MAX), "row {row}: written behind its {len} logits");
            compared += len;
        }
        Ok(compared)
    }
}

pub(super) fn logits_exact(lab: &Lab) -> Result<String, Fault> {
    let mut compared = 0;
    for format in FORMATS {
        for (seed, heads) in [(1, 64), (2, 32), (3, 4), (4, 1), (5, 12), (6, 8), (7, 128)] {
            // Weights up to 32 and 64 heads are the exact mode; 128 heads stay exact because sums are far from the bound.
            let lens = [0, 1, 63, 64, 65, -5, 1000, 31, 32, 33, 15, 16, 17, lab.size(4096, 130) as i32, 2];
            let fixture = Fixture::new(seed, format, heads, &lens, true);
            for blocks in [lab.blocks(), 1] {
                compared += fixture.compare_bits(lab, &lab.kernels().index_logits, blocks)?;
            }
        }
        let long = Fixture::new(9, format, 64, &[lab.size(20_000, 2000) as i32], true);
        for fixture in [long, Fixture::extreme(format)] {
            compared += fixture.compare_bits(lab, &lab.kernels().index_logits, 40)?;
        }
    }
    Ok(format!("{compared} logits"))
}

pub(super) fn logits_portable(lab: &Lab) -> Result<String, Fault> {
    let kernel = portable(lab, || IndexLogits::new(Module::load("index_logits", LOGITS_PORTABLE_SM_90)?))?;
    let mut compared = 0;
    for format in FORMATS {
        for (seed, heads) in [(11, 64), (12, 32), (13, 12), (14, 1)] {
            let fixture = Fixture::new(seed, format, heads, &[0, 1, 63, 64, 65, 1000, 3333], true);
            compared += fixture.compare_bits(lab, &kernel, lab.blocks())?;
            compare_close(lab, &kernel, &Fixture::new(seed, format, heads, &[777, 64], false))?;
        }
        compared += Fixture::extreme(format).compare_bits(lab, &kernel, lab.blocks())?;
    }
    Ok(format!("{compared} logits"))
}

pub(super) fn logits_random(lab: &Lab) -> Result<String, Fault> {
    let mut worst = 0.0f64;
    for format in FORMATS {
        for (seed, heads) in [(21, 64), (22, 32), (23, 5)] {
            let fixture = Fixture::new(seed, format, heads, &[1, 100, lab.size(5000, 300) as i32, 64], false);
            worst = worst.max(compare_close(lab, &lab.kernels().index_logits, &fixture)?);
        }
    }
    Ok(format!("largest difference {worst:.1e} of the terms' sizes"))
}

/// Differences are at most 4e-6 of the sum of the terms' sizes, which `f32` sums in another order stay below.
fn compare_close(lab: &Lab, kernel: &IndexLogits, fixture: &Fixture) -> Result<f64, Fault> {
    let (logits, _) = fixture.run(lab, kernel, lab.blocks())?;
    let got: Vec<f32> = lab.download(&logits, fixture.lens.len() * fixture.stride())?;
    let mut sizes = Fixture { weights: fixture.weights.iter().map(|w| w.abs()).collect(), ..fixture.clone() };
    sizes.heads = fixture.heads;
    let mut worst = 0.0f64;
    for row in 0..fixture.lens.len() {
        let terms = sizes.logits(row);
        for (token, expected) in fixture.logits(row).into_iter().enumerate() {
            let got = got[row * fixture.stride() + token];
            let part = f64::from((got - expected).abs()) / f64::from(terms[token].abs().max(1.0));
            ensure!(part <= 4e-6, "{:?}, row {row}, token {token}: expected {expected}, got {got}", fixture.format);
            worst = worst.max(part);
        }
    }
    Ok(worst)
}

impl Clone for Fixture {
    fn clone(&self) -> Fixture {
        Fixture {
            format: self.format,
            heads: self.heads,
            lens: self.lens.clone(),
            table: self.table.clone(),
            table_stride: self.table_stride,
            pages: self.pages.clone(),
            q: self.q.clone(),
            weights: self.weights.clone(),
        }
    }
}

/// Absent pages give -infinity and are counted, poisoned ones give NaN, neighbours stay.
pub(super) fn logits_absent(lab: &Lab) -> Result<String, Fault> {
    for format in FORMATS {
        let mut fixture = Fixture::new(31, format, 64, &[640, 500], true);
        let bytes = page_bytes(format);
        (fixture.table[3], fixture.table[7], fixture.table[12]) = (-1, 1_000_000, i32::MIN);
        let poisoned = fixture.table[5] as usize;
        fixture.pages[poisoned * bytes..][..bytes].fill(0xff);
        fixture.compare_bits(lab, &lab.kernels().index_logits, lab.blocks())?;
        equal("absent pages", &[fixture.run(lab, &lab.kernels().index_logits, 7)?.1], &[3])?;
    }
    Ok("3 absent pages and a poisoned one, in both formats".to_owned())
}
