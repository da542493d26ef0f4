//! Rates of copies from and to the host, beside one big pinned copy in the same run.
#![allow(unsafe_code)]

use std::time::Duration;

use kvweft_kernels::gpu::{CopyMethod, Job, Span};

use super::lab::{Fault, Lab, Random};
use super::report::Measurement;
use crate::memory::{DevicePool, HostPool};

/// Bytes of index keys in 4, 8 and 16 bits, and of KV in 8 and 16 bits.
const PAGES: [usize; 5] = [4352, 8448, 16_384, 41_984, 73_728];
const BLOCKS: [u32; 4] = [1, 2, 4, 8];
/// Bytes of a scattered copy.
pub(super) const TOTAL: usize = 128 << 20;

pub(super) fn copies(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let mut host = HostPool::new(lab.gpu, TOTAL)?;
    let random = Random::new(1);
    host.bytes_mut().as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = random.next().to_le_bytes());
    let device = lab.filled(TOTAL as u64, 0)?;
    // SAFETY: nothing of the host looks at these bytes until all work has ended, below and in `time`.
    let host_span = unsafe { host.span() };
    // SAFETY: as above.
    let big_in = lab.time(2, &mut |_| Ok(unsafe { host.copy_to(lab.raw(), 0, device.span()) }?))?;
    // SAFETY: as above.
    let big_out = lab.time(2, &mut |_| Ok(unsafe { host.copy_from(lab.raw(), 0, device.span()) }?))?;
    let mut found = Vec::new();
    for (way, big) in [("host to device", big_in), ("device to host", big_out)] {
        found.push(measurement(&format!("one big copy, {way}"), format!("{} MiB", TOTAL >> 20), big, TOTAL, big));
    }
    for page in PAGES {
        for method in CopyMethod::ALL {
            for blocks in BLOCKS {
                let inward = scattered(lab, method, blocks, page, host_span, device.span())?;
                let outward = scattered(lab, method, blocks, page, device.span(), host_span)?;
                let bytes = TOTAL / page * page;
                let shape = format!("pages of {page}, {blocks} blocks");
                for (way, time, big) in [("host to device", inward, big_in), ("device to host", outward, big_out)] {
                    found.push(measurement(&format!("copy {method:?}, {way}"), shape.clone(), time, bytes, big));
                }
            }
        }
    }
    drop_after(lab, host, device)?;
    Ok(found)
}

/// Waits before memory goes away.
fn drop_after(lab: &Lab, host: HostPool, device: DevicePool) -> Result<(), Fault> {
    lab.stream.synchronize()?;
    drop((host, device));
    Ok(())
}

/// Every page of `from` to a random place of `to`.
fn scattered(lab: &Lab, method: CopyMethod, blocks: u32, page: usize, from: Span, to: Span) -> Result<Duration, Fault> {
    let count = TOTAL / page;
    let order = Random::new(page as u64).permutation(count);
    let part = |span: Span, at: usize| span.part((at * page) as u64, page as u64);
    let mut bytes = Vec::with_capacity(count * 32);
    for (i, place) in order.iter().enumerate() {
        bytes.extend(Job::new(part(from, i), part(to, *place as usize), i as u32, 7)?.to_bytes());
    }
    let (jobs, checksums) = (lab.upload(&bytes)?, lab.filled(count as u64 * 8, 0)?);
    let (jobs, checksums) = (jobs.span(), checksums.span());
    let result = lab.time(1, &mut |_| {
        // SAFETY: as many jobs as were made, of spans that live until `time` has waited, with places of their own.
        Ok(unsafe { lab.kernels().page_copy.launch(lab.raw(), method, blocks, jobs, count as u32, checksums) }?)
    });
    lab.stream.synchronize()?;
    result
}

/// A copy of so many bytes, beside the time of a big copy of all.
pub(super) fn measurement(name: &str, shape: String, time: Duration, bytes: usize, big: Duration) -> Measurement {
    Measurement {
        name: name.to_owned(),
        shape,
        work: None,
        launched_microseconds: None,
        microseconds: time.as_secs_f64() * 1e6,
        bytes: bytes as u64,
        roofline_microseconds: big.as_secs_f64() * 1e6 * bytes as f64 / TOTAL as f64,
    }
}
