//! One engine that does everything, or a prefill and a decode engine with the channels between them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvweft_core::{Config, Rejected, RequestId, Role};

use crate::engine::{Engine, Parts, Submission, Threads};
use crate::gate::Gate;
use crate::link::Link;
use crate::log::Log;
use crate::model::Model;
use crate::platform::Platform;

/// The engines of a run, and their threads.
pub struct Shell<P: Platform, M: Model> {
    engines: Vec<Arc<Engine<P, M>>>,
    /// Towards prefill, towards decode.
    links: [Arc<Link<P>>; 2],
    /// Under a lock of its own, so that the rest can be shared.
    threads: Mutex<Vec<Threads<P>>>,
}

/// How the threads are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// When nothing is left to do.
    WhenIdle,
    /// At the next wait, whatever is still to do.
    Now,
}

/// What the engines of a run share.
pub struct Setting<P: Platform> {
    /// Where they write down what happens.
    pub log: Arc<Log<P>>,
    /// What may hold their threads.
    pub gate: Arc<dyn Gate>,
    /// Whether freed pages are filled with poison.
    pub poison: bool,
    /// Microseconds that each prompt token takes beside what is really computed.
    pub prompt_token_us: u64,
}

impl<P: Platform, M: Model> Shell<P, M> {
    /// The engines, one a configuration: one for everything, or prefill and decode in this order. Each has its own model,
    /// since their pages may be laid out differently. Starts no thread.
    ///
    /// # Panics
    /// If there are not one or two configurations with as many models.
    pub fn new(configs: Vec<Config>, models: Vec<Arc<M>>, setting: Setting<P>) -> Shell<P, M> {
        assert!(configs.len() == models.len() && (1..=2).contains(&configs.len()), "one engine or two, a model each");
        let links = [Arc::new(Link::default()), Arc::new(Link::default())];
        let mut engines: Vec<Arc<Engine<P, M>>> = Vec::new();
        // Decode first: prefill writes to it.
        for (config, model) in configs.into_iter().zip(models).rev() {
            let own = usize::from(config.role == Role::Decode);
            let parts = Parts {
                model,
                log: Arc::clone(&setting.log),
                gate: Arc::clone(&setting.gate),
                links: [Arc::clone(&links[1 - own]), Arc::clone(&links[own])],
                peer: engines.last().cloned(),
                poison: setting.poison,
                prompt_token_us: setting.prompt_token_us,
            };
            engines.push(Arc::new(Engine::new(config, parts)));
        }
        engines.reverse();
        Shell { engines, links, threads: Mutex::default() }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Threads<P>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads of every engine.
    pub fn start(&mut self) {
        *self.threads() = self.engines.iter().map(Engine::start_threads).collect();
    }

    /// The engines: one, or prefill and decode.
    pub fn engines(&self) -> &[Arc<Engine<P, M>>] {
        &self.engines
    }

    /// The channels towards prefill and towards decode.
    pub fn links(&self) -> &[Arc<Link<P>>; 2] {
        &self.links
    }

    /// The engine that answers clients.
    pub fn front(&self) -> &Arc<Engine<P, M>> {
        self.engines.last().expect("there is at least one engine")
    }

    /// Hands a request to every engine, prefill first: decode asks prefill for it at once, and prefill has nothing to send
    /// for a request that it does not know.
    ///
    /// # Errors
    /// Why an engine refused it. Those that had taken it are told to let it go.
    pub fn submit(&self, submission: &Submission) -> Result<(), Rejected> {
        for (at, engine) in self.engines.iter().enumerate() {
            if let Err(rejected) = engine.submit(submission) {
                for taken in &self.engines[..at] {
                    // It has just been taken, so it is known.
                    let _ = taken.abort(submission.request);
                }
                return Err(rejected);
            }
        }
        Ok(())
    }

    /// The client of a request has gone away.
    ///
    /// # Errors
    /// If the engine that answers it does not know it.
    pub fn abort(&self, request: RequestId) -> Result<(), Rejected> {
        self.front().abort(request)
    }

    /// Ends all threads and waits for them.
    ///
    /// # Errors
    /// What threads panicked with.
    pub fn stop(&mut self, how: Stop) -> Result<(), Vec<String>> {
        if self.is_broken() {
            self.break_off();
        } else {
            self.engines.iter().for_each(|engine| engine.stop(how == Stop::WhenIdle));
        }
        for link in &self.links {
            link.close();
        }
        let mut failed = Vec::new();
        let running = std::mem::take(&mut *self.threads());
        for threads in running {
            failed.extend(threads.join().err().into_iter().flatten());
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// Ends everything that is open, as far as that is possible behind a panic.
    pub(crate) fn break_off(&self) {
        self.engines.iter().for_each(|engine| engine.break_off());
    }

    /// Whether a thread of an engine has panicked.
    pub fn is_broken(&self) -> bool {
        self.engines.iter().any(|engine| engine.is_broken())
    }

    /// Whether nothing is left to do for any device, and no message is under way.
    pub fn is_idle(&self) -> bool {
        self.links.iter().all(|link| link.is_empty()) && self.engines.iter().all(|engine| engine.idle())
    }
}
