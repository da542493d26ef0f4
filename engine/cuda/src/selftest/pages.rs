//! Poison, verification, and pages far away.

use kvweft_kernels::gpu::{IndexLogitsArgs, PAGE_TOKENS, PagePool, PoisonArgs, Span, VerifyArgs};
use kvweft_kernels::{IndexFormat, checksum_bytes, mix64};

use super::index::{Fixture, page_bytes};
use super::lab::{Fault, Lab, Random, equal, equal_bits};
use crate::memory::DevicePool;

pub(super) fn poison_and_verify(lab: &Lab) -> Result<String, Fault> {
    for (page_bytes, stride) in [(16usize, 16usize), (8448, 8448), (8448, 8704), (41_984, 41_984), (73_728, 73_728)] {
        let random = Random::new(page_bytes as u64);
        let count = 50;
        let mut bytes: Vec<u8> = (0..count * stride / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        let memory = lab.upload(&bytes)?;
        let pool = PagePool::new(memory.span(), stride as u64, count as u32)?;
        // The last two are no pages.
        let mut list = random.permutation(count);
        list.truncate(20);
        list.extend([-1, count as i32]);
        let device_list = lab.upload(&list)?;
        let violations = lab.filled(4, 0)?;
        let (length, entries) = (page_bytes as u32, list.len() as u32);
        let poison = PoisonArgs {
            pool,
            page_bytes: length,
            list: device_list.span(),
            count: entries,
            violations: violations.span(),
        };
        lab.kernels().page_care.poison(lab.raw(), &poison)?;
        for page in &list[..20] {
            bytes[*page as usize * stride..][..page_bytes].fill(0xff);
        }
        equal(&format!("poisoned pages of {page_bytes}"), &lab.download::<u8>(&memory, bytes.len())?, &bytes)?;
        equal("skipped pages", &lab.download::<u32>(&violations, 1)?, &[2])?;

        let all = random.permutation(count);
        let sum =
            |at: usize, page: i32| checksum_bytes(&bytes[page as usize * stride..][..page_bytes], mix64(at as u64));
        let right: Vec<u64> = all.iter().enumerate().map(|(at, page)| sum(at, *page)).collect();
        equal("mismatches", &verify(lab, pool, length, &all, &right)?, &[0, u32::MAX])?;
        // A bit of a page, and an expectation.
        let mut flipped = [0];
        let at = all[7] as u64 * stride as u64 + random.below(page_bytes as u64);
        memory.read(at, &mut flipped)?;
        memory.write(at, &[flipped[0] ^ 1 << random.below(8)])?;
        let mut wrong = right.clone();
        wrong[31] ^= 1 << 63;
        equal("mismatches", &verify(lab, pool, length, &all, &wrong)?, &[2, 7])?;
    }
    Ok("pages of 16 to 73728 bytes, with and without gaps".to_owned())
}

/// Counts mismatches and their first place.
fn verify(lab: &Lab, pool: PagePool, length: u32, list: &[i32], expected: &[u64]) -> Result<Vec<u32>, Fault> {
    let keys: Vec<u64> = (0..list.len() as u64).map(mix64).collect();
    let (list_there, keys, expected) = (lab.upload(list)?, lab.upload(&keys)?, lab.upload(expected)?);
    let (result, violations) = (lab.upload(&[0, u32::MAX])?, lab.filled(4, 0)?);
    let args = VerifyArgs {
        pool,
        page_bytes: length,
        list: list_there.span(),
        keys: keys.span(),
        expected: expected.span(),
        count: list.len() as u32,
        checksums: Span::NONE,
        result: result.span(),
        violations: violations.span(),
    };
    lab.kernels().page_care.verify(lab.raw(), &args)?;
    Ok(lab.download(&result, 2)?)
}

/// The last pages of a pool of more than 4 GiB: an offset in 32 bits would lead elsewhere.
pub(super) fn far_pages(lab: &Lab) -> Result<String, Fault> {
    let bytes = page_bytes(IndexFormat::Fp8) as u64;
    let wanted = lab.size((9 << 30) / 2, 0) as u64;
    if wanted == 0 {
        return Err(Fault::Skipped("a small self-test takes less memory".to_owned()));
    }
    if lab.memory_max < wanted + (256 << 20) || lab.gpu.free_bytes()? < wanted + (256 << 20) {
        return Err(Fault::Skipped(format!("{wanted} bytes of device memory may not be used")));
    }
    let count = wanted / bytes;
    let memory = DevicePool::new(lab.gpu, count * bytes)?;
    memory.fill(lab.raw(), memory.span(), 0)?;
    lab.stream.synchronize()?;
    let mut fixture = Fixture::new(61, IndexFormat::Fp8, 64, &[1000], true);
    // Half of its pages at the end, half around 4 GiB.
    let near = (1u64 << 32) / bytes - 3;
    let places: Vec<u64> = (0..16).map(|i| if i % 2 == 0 { count - 1 - i } else { near + i / 2 }).collect();
    for (place, page) in places.iter().zip(fixture.pages.chunks(bytes as usize)) {
        memory.write(place * bytes, page)?;
    }
    let table: Vec<i32> = fixture.table.iter().map(|page| places[*page as usize] as i32).collect();
    let (q, weights) = (lab.upload(&fixture.q_bytes())?, lab.upload(&fixture.weights)?);
    let (table, lens) = (lab.upload(&table)?, lab.upload(&fixture.lens)?);
    let (logits, violations) = (lab.filled(fixture.stride() as u64 * 4, 0xff)?, lab.filled(4, 0)?);
    let pool = PagePool::new(memory.span(), bytes, count as u32)?;
    let args = IndexLogitsArgs {
        format: fixture.format,
        q: q.span(),
        weights: weights.span(),
        heads: 64,
        table: table.span(),
        table_stride: fixture.table_stride as u32,
        lens: lens.span(),
        rows: 1,
        pool,
        logits: logits.span(),
        logits_stride: (fixture.table_stride * PAGE_TOKENS) as u64,
        violations: violations.span(),
        blocks: lab.blocks(),
    };
    lab.kernels().index_logits.launch(lab.raw(), &args)?;
    equal_bits("logits of far pages", &lab.download::<f32>(&logits, 1000)?, &fixture.logits(0))?;
    // Poison of the very last page, and its checksum, through the same offsets.
    let list = lab.upload(&[count as i32 - 1])?;
    let poison =
        PoisonArgs { pool, page_bytes: bytes as u32, list: list.span(), count: 1, violations: violations.span() };
    lab.kernels().page_care.poison(lab.raw(), &poison)?;
    fixture.pages.truncate(bytes as usize);
    fixture.pages.fill(0xff);
    let sum = checksum_bytes(&fixture.pages, mix64(0));
    equal("mismatches", &verify(lab, pool, bytes as u32, &[count as i32 - 1], &[sum])?, &[0, u32::MAX])?;
    Ok(format!("{count} pages, {:.1} GiB", (count * bytes) as f64 / (1u64 << 30) as f64))
}
