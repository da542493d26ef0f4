//! The threads of an engine.

use std::sync::Arc;

use kvweft_core::{Role, Stream};

use super::{Counts, Engine};
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
            joins.push(P::spawn(format!("{name}-{}", self.index), move || work(&engine)));
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
