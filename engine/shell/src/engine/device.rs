//! The threads of an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvweft_core::{Ending, Failure, Role, Stream};

use super::{Counts, Engine, Stopping};
use crate::model::Model;
use crate::platform::Platform;

/// Sends that may be under way at once.
const NIC_THREADS: usize = 4;

/// The running threads of one engine.
pub struct Threads<P: Platform> {
    joins: Vec<P::Join>,
}

impl<P: Platform, M: Model> Engine<P, M> {
    /// Starts the threads of the engine: scheduler, streams and, by role, network.
    pub fn start_threads(self: &Arc<Self>) -> Threads<P> {
        let mut joins = Vec::new();
        let mut start = |name: &str, work: fn(&Engine<P, M>)| {
            let engine = Arc::clone(self);
            joins.push(P::spawn(format!("{name}-{}", self.index), move || {
                let _noticed = Noticed(&engine.broken);
                work(&engine);
            }));
        };
        start("scheduler", |engine| engine.schedule());
        start("forward", |engine| engine.run_stream(Stream::Forward));
        start("h2d", |engine| engine.run_stream(Stream::Load));
        start("d2h", |engine| engine.run_stream(Stream::Store));
        if self.role != Role::Together {
            start("net", |engine| engine.receive());
        }
        if self.role == Role::Prefill {
            for _ in 0..NIC_THREADS {
                start("nic", |engine| engine.run_nic());
            }
        }
        Threads { joins }
    }

    /// Whether a thread of the engine has panicked.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Ends everything that is open, as far as that is possible with the lock that a thread has panicked under.
    pub(crate) fn break_off(&self) {
        let end = || {
            let mut core = self.lock();
            core.stopping = Stopping::Now;
            let now_us = P::now_us();
            core.sequences.values_mut().for_each(|sequence| sequence.end(Ending::Failed(Failure::Reset), now_us));
        };
        // If the lock is lost, whoever sleeps under it finds out when it is woken.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(end));
        P::notify_all(&self.answered);
        P::notify_all(&self.changed);
    }

    /// Whether nothing is left to do for the device.
    pub fn idle(&self) -> bool {
        let core = self.lock();
        self.is_idle(&core)
    }

    /// Whether no transfer, lease, event, room or row is left of requests that have ended.
    pub fn accounts(&self) -> kvweft_core::Accounts {
        self.lock().manager.accounts()
    }

    /// What has come together since the engine was built.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }
}

/// Notices the panic of a thread.
struct Noticed<'a>(&'a AtomicBool);

impl Drop for Noticed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<P: Platform> Threads<P> {
    /// Waits for the end of every thread.
    ///
    /// # Errors
    /// What threads panicked with.
    pub fn join(self) -> Result<(), Vec<String>> {
        let failed: Vec<String> = self.joins.into_iter().filter_map(|join| P::join(join).err()).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}
