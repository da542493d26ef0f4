//! Other GPUs of the host.
#![allow(unsafe_code)]

use std::time::Duration;

use kvweft_kernels::gpu::{CopyMethod, Job, Span};

use super::lab::{Fault, Lab, Random, equal};
use super::report::Measurement;
use super::speed_copies::{TOTAL, measurement};
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::DevicePool;

/// Index keys in 8 and 16 bits, KV in 8 and 16 bits.
const PAGES: [usize; 4] = [8448, 16_384, 41_984, 73_728];
const BLOCKS: [u32; 2] = [8, 32];

/// Another GPU whose memory this one may address.
fn other(lab: &Lab) -> Result<Gpu, Fault> {
    let count = Gpu::count()?;
    let Some(ordinal) = (0..count).find(|ordinal| *ordinal != lab.gpu.info().ordinal) else {
        return Err(Fault::Skipped("there is one GPU only".to_owned()));
    };
    let other = Gpu::open(ordinal)?;
    if !lab.gpu.can_access(&other)? {
        return Err(Fault::Skipped(format!("GPU {ordinal} does not let this one in")));
    }
    match lab.gpu.enable_access(&other) {
        Ok(()) => Ok(other),
        Err(error @ CudaError::Driver { .. }) => Err(Fault::Skipped(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Pages to another device's memory, by a kernel and by the copy engine.
pub(super) fn pages(lab: &Lab) -> Result<String, Fault> {
    let other = other(lab)?;
    let bytes = 41_984usize;
    let random = Random::new(4);
    let contents: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
    let own = lab.upload(&contents)?;
    let theirs = DevicePool::new(&other, 2 * bytes as u64)?;
    lab.gpu.bind()?;
    let to = theirs.span().part(0, bytes as u64);
    super::copies::run(lab, CopyMethod::Registers, 4, &[Job::new(own.span(), to, 0, 0)?])?;
    lab.stream.copy(own.span(), theirs.span().part(bytes as u64, bytes as u64))?;
    lab.stream.synchronize()?;
    let mut got = vec![0; 2 * bytes];
    theirs.read(0, &mut got)?;
    equal("pages in the other GPU's memory", &got, &[contents.as_slice(), &contents].concat())?;
    Ok(format!("GPU {}: a kernel's and the copy engine's page arrived", other.info().ordinal))
}

/// Rates of scattered pages into the memory of another GPU, beside one big copy by the copy engine.
pub(super) fn rates(lab: &Lab) -> Result<Vec<Measurement>, Fault> {
    let other = other(lab)?;
    let own = lab.filled(TOTAL as u64, 1)?;
    let theirs = DevicePool::new(&other, TOTAL as u64)?;
    lab.gpu.bind()?;
    let big = lab.time_launched(2, &mut |_| Ok(lab.stream.copy(own.span(), theirs.span())?))?;
    let name = format!("to GPU {}", other.info().ordinal);
    let mut found = vec![measurement(&format!("one big copy {name}"), format!("{} MiB", TOTAL >> 20), big, TOTAL, big)];
    for page in PAGES {
        for blocks in BLOCKS {
            let time = scattered(lab, blocks, page, own.span(), theirs.span())?;
            let shape = format!("pages of {page}, {blocks} blocks");
            found.push(measurement(&format!("copy Ring {name}"), shape, time, TOTAL / page * page, big));
        }
    }
    lab.gpu.synchronize()?;
    Ok(found)
}

fn scattered(lab: &Lab, blocks: u32, page: usize, from: Span, to: Span) -> Result<Duration, Fault> {
    let count = TOTAL / page;
    let order = Random::new(page as u64).permutation(count);
    let part = |span: Span, at: usize| span.part((at * page) as u64, page as u64);
    let mut bytes = Vec::new();
    for (at, place) in order.iter().enumerate() {
        bytes.extend(Job::new(part(from, at), part(to, *place as usize), at as u32, 7)?.to_bytes());
    }
    let (jobs, checksums) = (lab.upload(&bytes)?, lab.filled(count as u64 * 8, 0)?);
    let time = lab.time_launched(1, &mut |_| {
        let kernel = &lab.kernels().page_copy;
        // SAFETY: as many jobs as were made, of spans that live until the device has nothing left to do, with places of
        // their own.
        Ok(unsafe { kernel.launch(lab.raw(), CopyMethod::Ring, blocks, jobs.span(), count as u32, checksums.span()) }?)
    });
    lab.stream.synchronize()?;
    time
}
