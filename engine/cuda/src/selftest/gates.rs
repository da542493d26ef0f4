//! Gates in streams.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvweft_kernels::gpu::{Arch, Kernels, PagePool, PoisonArgs};

use super::lab::{Fault, Lab, ensure, equal};
use crate::error::CudaError;
use crate::memory::HostPool;
use crate::stream::{Priority, Stream};

const GATES: u32 = 100;

/// A stream waits for a word of the host: without a fence a reader sees the old page, with one the new page.
pub(super) fn gates(lab: &Lab) -> Result<String, Fault> {
    let copies = Stream::new(lab.gpu, Priority::High)?;
    let word = HostPool::new(lab.gpu, 4096)?;
    // SAFETY: the host uses the word as an atomic only.
    let gate = unsafe { word.span() }.part(0, 4);
    let bytes = 8448;
    let (old, new) = (lab.filled(bytes, 1)?, lab.filled(bytes, 2)?);
    let page = lab.filled(bytes, 0)?;
    let seen = lab.filled(2 * bytes, 0)?;
    // Dropped first, also when something fails: a stream behind a closed gate never ends.
    let _open = OpenAtEnd(&word);
    for turn in 1..=GATES {
        lab.stream.copy(old.span(), page.span())?;
        lab.stream.synchronize()?;
        copies.wait_value(gate, turn)?;
        copies.copy(new.span(), page.span())?;
        let done = copies.record()?;
        // A reader that does not wait for the copy, and one that does.
        lab.stream.copy(page.span(), seen.span().part(0, bytes))?;
        lab.stream.synchronize()?;
        ensure!(!done.is_complete()?, "turn {turn}: the copy did not wait for its gate");
        lab.stream.wait(&done)?;
        lab.stream.copy(page.span(), seen.span().part(bytes, bytes))?;
        word.word(0).store(turn, Ordering::Release);
        let begin = Instant::now();
        while !lab.stream.is_idle()? {
            ensure!(begin.elapsed() < Duration::from_secs(5), "turn {turn}: the open gate let nothing through");
        }
        let got: Vec<u8> = lab.download(&seen, 2 * bytes as usize)?;
        let (stale, fresh) = got.split_at(bytes as usize);
        ensure!(
            stale.iter().all(|byte| *byte == 1),
            "turn {turn}: the reader without a fence did not see the old page"
        );
        ensure!(fresh.iter().all(|byte| *byte == 2), "turn {turn}: the reader behind the fence saw another page");
    }
    Ok(format!("cuStreamWaitValue32 on mapped host memory, {GATES} of {GATES} times"))
}

/// Kernels that were loaded and never launched run while another stream is held: a driver that loaded them at their
/// first launch would wait for the gate. If it does, another thread opens the gate after two seconds.
pub(super) fn first_launch(lab: &Lab) -> Result<String, Fault> {
    let architecture = if lab.gpu.info().kernels == Arch::Sm120.name() { Arch::Sm120 } else { Arch::Sm90 };
    if lab.gpu.info().kernels != architecture.name() {
        return Err(Fault::Skipped("kernels were compiled for this device".to_owned()));
    }
    let fresh = Kernels::load::<CudaError>(&mut |image| Ok(image.cubin(architecture).to_vec()))?;
    let held = Stream::new(lab.gpu, Priority::Low)?;
    let word = HostPool::new(lab.gpu, 4096)?;
    // SAFETY: the host uses the word as an atomic only.
    let gate = unsafe { word.span() }.part(0, 4);
    let memory = lab.filled(4096, 0)?;
    let (list, violations) = (lab.upload(&[0i32])?, lab.filled(4, 0)?);
    let pool = PagePool::new(memory.span(), 4096, 1)?;
    let args = PoisonArgs { pool, page_bytes: 4096, list: list.span(), count: 1, violations: violations.span() };
    let _open = OpenAtEnd(&word);
    held.wait_value(gate, 1)?;
    let begin = Instant::now();
    let result = std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            std::thread::park_timeout(Duration::from_secs(2));
            word.word(0).store(1, Ordering::Release);
        });
        let result = fresh.page_care.poison(lab.raw(), &args).map_err(Fault::from);
        let result = result.and_then(|()| Ok(lab.stream.synchronize()?));
        opener.thread().unpark();
        result
    });
    result?;
    ensure!(begin.elapsed() < Duration::from_secs(1), "the first launch waited for the gate of another stream");
    equal("poison", &lab.download::<u8>(&memory, 4096)?, &[0xff; 4096])?;
    Ok(format!("{:.1} ms", begin.elapsed().as_secs_f64() * 1e3))
}

struct OpenAtEnd<'a>(&'a HostPool);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.word(0).store(GATES, Ordering::Release);
    }
}
