//! Copies of pages between host and device.
#![allow(unsafe_code)]

use kvweft_kernels::checksum_bytes;
use kvweft_kernels::gpu::{CopyMethod, Job, Span};

use super::lab::{Fault, Lab, Random, ensure, equal};
use crate::memory::HostPool;

/// Page sizes, 16 bytes to that of bf16 KV: one vector, just around a block's round and a ring's slots, real pages.
const SIZES: [usize; 17] =
    [16, 32, 48, 4336, 4352, 4368, 8192, 8208, 8448, 8704, 12_272, 12_288, 12_304, 16_384, 37_440, 41_984, 73_728];

/// Launches jobs and returns the checksums.
pub(super) fn run(lab: &Lab, method: CopyMethod, blocks: u32, jobs: &[Job]) -> Result<Vec<u64>, Fault> {
    let bytes: Vec<u8> = jobs.iter().flat_map(|job| job.to_bytes()).collect();
    let (on_device, checksums) = (lab.upload(&bytes)?, lab.filled(jobs.len() as u64 * 8, 0xa5)?);
    let count = jobs.len() as u32;
    // SAFETY: callers make jobs of spans that live until this returns, with destinations apart from each other and from
    // sources, and slots from 0 to their number.
    unsafe { lab.kernels().page_copy.launch(lab.raw(), method, blocks, on_device.span(), count, checksums.span())? };
    Ok(lab.download(&checksums, jobs.len())?)
}

/// Pages from a random place to a random place, host to device and back, compared with checksums of the host.
pub(super) fn permutations(lab: &Lab) -> Result<String, Fault> {
    let mut pages = 0;
    for size in SIZES {
        for method in CopyMethod::ALL {
            for blocks in [1, 5, 132] {
                pages += round_trip(lab, method, blocks, size)?;
            }
        }
    }
    Ok(format!("{pages} pages of 16 to 73728 bytes there and back, both methods"))
}

fn round_trip(lab: &Lab, method: CopyMethod, blocks: u32, size: usize) -> Result<usize, Fault> {
    let random = Random::new((size as u64) << 8 | u64::from(blocks));
    let count = lab.size(37, 9);
    let mut from = HostPool::new(lab.gpu, count * size)?;
    from.bytes_mut().as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = random.next().to_le_bytes());
    let middle = lab.filled((count * size) as u64, 0xa5)?;
    let back = HostPool::new(lab.gpu, count * size)?;
    let (there, home) = (random.permutation(count), random.permutation(count));
    let key = |page: usize| random_key(page);
    // SAFETY: nothing of the host looks at `from` for writing or at `back` at all before `run` has returned.
    let (host_from, host_back) = unsafe { (from.span(), back.span()) };
    let page = |span: Span, at: i32| span.part(at as u64 * size as u64, size as u64);
    let out = (0..count).map(|i| Job::new(page(host_from, i as i32), page(middle.span(), there[i]), i as u32, key(i)));
    let sums_out = run(lab, method, blocks, &out.collect::<Result<Vec<Job>, _>>()?)?;
    let jobs = (0..count).map(|i| Job::new(page(middle.span(), there[i]), page(host_back, home[i]), i as u32, key(i)));
    let sums_back = run(lab, method, blocks, &jobs.collect::<Result<Vec<Job>, _>>()?)?;
    for i in 0..count {
        let source = &from.bytes()[i * size..][..size];
        let what = format!("{method:?}, {blocks} blocks, page {i} of {size} bytes");
        ensure!(back.bytes()[home[i] as usize * size..][..size] == *source, "{what}: other bytes came back");
        equal(&what, &[sums_out[i], sums_back[i]], &[checksum_bytes(source, key(i)); 2])?;
    }
    Ok(count)
}

fn random_key(page: usize) -> u64 {
    kvweft_kernels::mix64(page as u64 + 1)
}

/// Bytes around every destination stay, in both directions and on the device.
pub(super) fn guard_bands(lab: &Lab) -> Result<String, Fault> {
    const BAND: usize = 256;
    let random = Random::new(3);
    for method in CopyMethod::ALL {
        let total: usize = SIZES.iter().map(|size| size + BAND).sum::<usize>() + BAND;
        let mut from = HostPool::new(lab.gpu, total)?;
        from.bytes_mut().as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = random.next().to_le_bytes());
        let mut back = HostPool::new(lab.gpu, total)?;
        back.bytes_mut().fill(0xa5);
        let (first, second) = (lab.filled(total as u64, 0xa5)?, lab.filled(total as u64, 0xa5)?);
        // SAFETY: as in `round_trip`.
        let spans = unsafe { [from.span(), first.span(), second.span(), back.span()] };
        let mut expected = vec![0xa5; total];
        for step in spans.windows(2) {
            let mut at = BAND;
            let mut jobs = Vec::new();
            for (i, size) in SIZES.into_iter().enumerate() {
                let part = |span: Span| span.part(at as u64, size as u64);
                jobs.push(Job::new(part(step[0]), part(step[1]), i as u32, 0)?);
                expected[at..at + size].copy_from_slice(&from.bytes()[at..at + size]);
                at += size + BAND;
            }
            run(lab, method, 3, &jobs)?;
        }
        equal(&format!("{method:?}: on the device"), &lab.download::<u8>(&first, total)?, &expected)?;
        equal(&format!("{method:?}: on the device, from there"), &lab.download::<u8>(&second, total)?, &expected)?;
        equal(&format!("{method:?}: on the host"), back.bytes(), &expected)?;
    }
    Ok("host to device to device to host, bands of 256 bytes".to_owned())
}
