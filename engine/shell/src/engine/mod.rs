//! One engine: a manager under a lock, the queues of its device, and what its clients wait for.

mod client;
mod device;
mod forward;
mod nic;
mod scheduler;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kvweft_core::{
    BlockHash, Config, CopyOp, Effect, Generation, Input, Life, Manager, MetadataSlot, MoveKind, Outcome, Part,
    Rejected, RequestId, Role, Room, RunStep, SendOp, StepId, Stream, Timer, TransferId,
};
use kvweft_trace::event::{Event, InputRecord};
use kvweft_world::Operation;

pub(crate) use client::Sequence;
pub use client::{Ended, Forced, Submission};
pub use device::Threads;

use crate::events::Events;
use crate::gate::{Gate, Open};
use crate::link::Link;
use crate::log::Log;
use crate::model::Model;
use crate::platform::{Guard, Lock, Platform, Queued};
use crate::pool::Pools;

/// Queues of reports, as the scheduler takes them.
pub(crate) const FROM_FORWARD: usize = 0;
pub(crate) const FROM_LOAD: usize = 1;
pub(crate) const FROM_STORE: usize = 2;
pub(crate) const FROM_NIC: usize = 3;

/// Something the device has to tell the manager.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// A forward step has ended; what each of its items sampled.
    Step(StepId, Vec<Sampled>),
    Completed(TransferId, Part, Outcome),
    Metadata(MetadataSlot, Room),
}

/// What one item of a step has brought.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    pub(crate) request: RequestId,
    pub(crate) life: Life,
    /// Tokens that are computed now, in the manager's unit.
    pub(crate) tokens: u32,
    /// Bytes of the answer, from a position on.
    pub(crate) bytes: Option<(usize, Vec<u8>)>,
}

/// Something queued on a stream.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Copy(Arc<CopyOp>),
    Step(Arc<RunStep>),
    /// Events of a copy that are recorded on another stream than the copy runs on.
    Record(Arc<CopyOp>),
}

/// What the runs of an engine have brought together. All of it belongs to one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inputs that the manager took.
    pub inputs: u64,
    /// Forward steps.
    pub steps: u64,
    /// Most answers that one step continued.
    pub decodes_max: u64,
    /// Pages copied from host to device.
    pub pages_reloaded: u64,
    /// Pages copied from device to host.
    pub pages_offloaded: u64,
    /// Pages written to the peer.
    pub pages_sent: u64,
    /// Prompt tokens in blocks that had been computed here when their request was first computed.
    pub tokens_reusable: u64,
    /// Prompt tokens that were in the cache when their request was first computed.
    pub tokens_reused: u64,
    /// Prompt tokens that were computed.
    pub tokens_computed: u64,
}

/// Everything under the lock.
pub(crate) struct Core {
    pub(crate) manager: Manager,
    pub(crate) streams: [VecDeque<Op>; 3],
    /// Streams in the middle of an operation, and sends under way.
    pub(crate) running: u32,
    pub(crate) nic: Vec<Arc<SendOp>>,
    /// Sends that are told to fail.
    pub(crate) failing: Vec<(TransferId, Part)>,
    pub(crate) reports: [VecDeque<Report>; 4],
    pub(crate) events: Events,
    /// Steps that are queued or running.
    pub(crate) steps: Vec<StepId>,
    /// What each row of the metadata buffer holds: an answer as far as prefill has foreseen it.
    pub(crate) metadata: Vec<Vec<u8>>,
    /// Timers that are armed, and since when.
    pub(crate) timers: Vec<(Timer, u64)>,
    pub(crate) sequences: BTreeMap<u32, Sequence>,
    pub(crate) counts: Counts,
    /// Blocks that have been computed here at some time, for the counts.
    pub(crate) known: BTreeSet<BlockHash>,
    pub(crate) stopping: Stopping,
}

/// How the threads of an engine are asked to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stopping {
    #[default]
    No,
    /// When nothing is left to do.
    WhenIdle,
    /// At the next wait.
    Now,
}

/// What an engine is built from, beside its manager.
pub struct Parts<P: Platform, M: Model> {
    /// The model that it serves.
    pub model: Arc<M>,
    /// Where it writes down what happens.
    pub log: Arc<Log<P>>,
    /// What may hold its threads.
    pub gate: Arc<dyn Gate>,
    /// The channel to the peer, and the one from it.
    pub links: [Arc<Link<P>>; 2],
    /// The decode engine that a prefill engine writes to.
    pub peer: Option<Arc<Engine<P, M>>>,
    /// Whether freed pages are filled with poison.
    pub poison: bool,
    /// Microseconds that each prompt token takes in all layers together, beside what is really computed: the rest of a
    /// model, of which this engine has none.
    pub prompt_token_us: u64,
}

impl<P: Platform, M: Model> Parts<P, M> {
    /// An engine that stands alone, without a log, gates or poison.
    pub fn new(model: Arc<M>) -> Parts<P, M> {
        Parts {
            model,
            log: Arc::new(Log::off()),
            gate: Arc::new(Open),
            links: [Arc::new(Link::default()), Arc::new(Link::default())],
            peer: None,
            poison: false,
            prompt_token_us: 0,
        }
    }
}

/// One engine. Its threads share it.
pub struct Engine<P: Platform, M: Model> {
    /// 0 for the first engine, 1 for the decode engine of a split pair.
    pub(crate) index: u8,
    pub(crate) role: Role,
    pub(crate) layers: u8,
    /// Tokens of the model that the manager counts as one.
    pub(crate) unit: usize,
    /// Tokens of the model in a page.
    pub(crate) page_tokens: usize,
    pub(crate) core: P::Mutex<Core>,
    /// Something has happened that a thread of the engine may wait for.
    pub(crate) changed: P::Condvar,
    /// A request has ended.
    pub(crate) answered: P::Condvar,
    pub(crate) pools: Pools<P::Cell>,
    /// For each event slot and layer, the newest reload that a device has in its order: its generation, and when the layer has
    /// landed. Locked last.
    pub(crate) marks: P::Mutex<Marks<P>>,
    pub(crate) parts: Parts<P, M>,
    /// Whether a thread has panicked.
    pub(crate) broken: AtomicBool,
}

/// By event slot and layer.
type Marks<P> = BTreeMap<(u8, u8), (Generation, <<P as Platform>::Queued as Queued>::Mark)>;

/// Whether the threads of an engine were told to end while this one waited.
pub(crate) struct Stopped;

impl<P: Platform, M: Model> Engine<P, M> {
    /// An engine with empty pools. Starts no thread.
    ///
    /// # Panics
    /// If a prefill engine has no peer to write to.
    pub fn new(config: Config, parts: Parts<P, M>) -> Engine<P, M> {
        assert!(config.role != Role::Prefill || parts.peer.is_some(), "a prefill engine writes to a decode engine");
        let layers = config.geometry.layers;
        let page_tokens = config.geometry.components.iter().map(|entry| entry.layout.page_tokens).max().unwrap_or(1);
        let core = Core {
            streams: Default::default(),
            running: 0,
            nic: Vec::new(),
            failing: Vec::new(),
            reports: Default::default(),
            events: Events::new(config.event_slots, layers),
            steps: Vec::new(),
            metadata: vec![Vec::new(); config.metadata_slots as usize],
            timers: Vec::new(),
            sequences: BTreeMap::new(),
            counts: Counts::default(),
            known: BTreeSet::new(),
            stopping: Stopping::No,
            manager: Manager::new(config.clone()),
        };
        Engine {
            index: u8::from(config.role == Role::Decode),
            role: config.role,
            layers,
            unit: usize::from(page_tokens / config.geometry.page_tokens.max(1)).max(1),
            page_tokens: usize::from(page_tokens),
            pools: Pools::new(&config),
            marks: P::Mutex::new(BTreeMap::new()),
            core: P::Mutex::new(core),
            changed: P::Condvar::default(),
            answered: P::Condvar::default(),
            parts,
            broken: AtomicBool::new(false),
        }
    }

    /// The memory of the engine.
    pub fn pools(&self) -> &Pools<P::Cell> {
        &self.pools
    }

    pub(crate) fn lock(&self) -> Guard<'_, P, Core> {
        self.core.lock()
    }

    /// Wakes every thread of the engine, also those that are about to sleep.
    pub(crate) fn poke(&self) {
        drop(self.lock());
        P::notify_all(&self.changed);
        for link in &self.parts.links {
            link.poke();
        }
    }

    /// Sleeps until something has happened.
    pub(crate) fn wait<'a>(&'a self, core: Guard<'a, P, Core>) -> Result<Guard<'a, P, Core>, Stopped> {
        if core.stopping == Stopping::Now {
            return Err(Stopped);
        }
        let core = P::wait(&self.changed, core);
        if core.stopping == Stopping::Now { Err(Stopped) } else { Ok(core) }
    }

    /// Waits until an operation may happen. What it does is over when the turn is dropped.
    pub(crate) fn turn(&self, operation: Operation) -> Turn<'_> {
        let gate = self.parts.gate.as_ref();
        if !gate.open() {
            let mut core = self.lock();
            while !gate.allows(&operation) {
                let Ok(next) = self.wait(core) else { break };
                core = next;
            }
        }
        Turn { gate, operation }
    }

    /// One input, then all its effects.
    pub(crate) fn input(&self, core: &mut Core, input: Input<'_>) -> Result<(), Rejected> {
        let result = core.manager.handle(input);
        core.counts.inputs += 1;
        let mut effects = Vec::new();
        while let Some(effect) = core.manager.poll_effect() {
            effects.push(effect);
        }
        self.parts.log.note(|| Event::Input {
            engine: self.index,
            input: InputRecord::from(&input),
            rejected: result.err().map(|rejected| rejected.to_string()),
            effects: effects.clone(),
        });
        result?;
        let mut polls = Vec::new();
        for effect in effects {
            if let Effect::Poll(timer) = effect {
                polls.push(timer);
            } else {
                self.effect(core, effect);
            }
        }
        P::notify_all(&self.changed);
        for timer in polls {
            self.poll(core, timer);
        }
        Ok(())
    }

    fn effect(&self, core: &mut Core, effect: Effect) {
        match effect {
            Effect::Copy(op) => self.queue_copy(core, Arc::new(op)),
            Effect::Send(op) => core.nic.push(Arc::new(op)),
            Effect::RunStep(op) => self.queue_step(core, op),
            Effect::Answer(answer) => {
                if let Some(sequence) = core.sequences.get_mut(&answer.request.0) {
                    sequence.end(answer.ending, P::now_us());
                }
                P::notify_all(&self.answered);
            }
            Effect::Message(message) => self.parts.links[0].send(message),
            Effect::Move(moved) => {
                if self.parts.poison && moved.what == MoveKind::Free {
                    moved.pages.iter().for_each(|&page| self.pools.poison(page));
                }
            }
            Effect::Wake(wake) => {
                let draft = wake.metadata.map(|slot| core.metadata[slot.0 as usize].clone()).unwrap_or_default();
                if let Some(sequence) = core.sequences.get_mut(&wake.request.0) {
                    sequence.arrived(&draft, P::now_us());
                }
            }
            Effect::Arm(timer) => core.timers.push((timer, P::now_us())),
            Effect::Disarm(timer) => core.timers.retain(|(known, _)| *known != timer),
            Effect::Poll(_) | Effect::Collective(_) => {}
        }
    }

    /// Hands in everything that is queued, then the answer to the poll.
    fn poll(&self, core: &mut Core, timer: Timer) {
        for source in 0..core.reports.len() {
            while let Some(report) = core.reports[source].pop_front() {
                self.report(core, report);
            }
        }
        while let Some(message) = self.parts.links[1].take() {
            self.message(core, &message);
        }
        self.taken(self.input(core, Input::Polled { timer }));
    }

    /// A manager may refuse what comes late or twice; nothing has changed then.
    pub(crate) fn taken(&self, result: Result<(), Rejected>) {
        // The log has the reason. Inputs of clients go another way, and their refusal is returned.
        let _ = result;
    }
}

/// An operation whose turn it is.
pub(crate) struct Turn<'a> {
    gate: &'a dyn Gate,
    operation: Operation,
}

impl Turn<'_> {
    pub(crate) fn held(&self, owed_to: kvweft_core::RuleSite) {
        self.gate.held(&self.operation, crate::gate::Held { owed_to });
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.done(&self.operation);
    }
}

/// Where a stream stands in an engine.
pub(crate) fn stream_index(stream: Stream) -> usize {
    match stream {
        Stream::Forward => 0,
        Stream::Load => 1,
        Stream::Store => 2,
    }
}
