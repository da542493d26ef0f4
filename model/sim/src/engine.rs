//! One engine: a manager, its memory, and the streams under it.

use std::collections::VecDeque;

use kvweft_core::{Component, Config, Fence, FenceOn, Generation, LayerWait, Manager, RunStep, StepId};

use crate::memory::Tier;

/// A rotating slot of layer events.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSlot {
    /// The newest generation whose records are queued.
    pub(crate) queued: Option<Generation>,
    /// The newest generation that was recorded for each layer.
    pub(crate) recorded: Vec<Option<Generation>>,
    /// Whether anything was recorded for each layer since the slot was last handed out.
    pub(crate) flags: Vec<bool>,
}

/// What the forward stream runs, in order.
#[derive(Clone, Debug)]
pub(crate) enum Forward {
    Step(RunStep),
    /// The events of a copy that are recorded here and not where it runs.
    Record(u32),
}

/// A move that was under way when a step began, and the pages of an item that it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    pub(crate) moved: u32,
    pub(crate) item: u32,
    pub(crate) pages: u64,
}

/// A forward step that runs.
#[derive(Clone, Debug)]
pub(crate) struct StepRun {
    pub(crate) op: RunStep,
    pub(crate) start: u64,
    /// What one layer takes.
    pub(crate) layer_ns: u64,
    /// What the layers do not add up to.
    pub(crate) rest_ns: u64,
    /// The waits on reloads whose records are queued.
    pub(crate) waits: Vec<LayerWait>,
    pub(crate) races: Vec<Race>,
    /// The next layer, and whether its index keys have been read.
    pub(crate) layer: u8,
    pub(crate) index_read: bool,
    /// The time at which the stream stands.
    pub(crate) clock: u64,
    /// When each layer read index keys and KV; empty where nothing is waited for.
    pub(crate) reads: Vec<[u64; 2]>,
}

impl StepRun {
    /// When a layer reads index keys and KV.
    pub(crate) fn read_at(&self, layer: u8) -> [u64; 2] {
        match self.reads.get(usize::from(layer)) {
            Some(read) => *read,
            None => {
                let begin = self.start + u64::from(layer) * self.layer_ns;
                [begin, begin + self.layer_ns / 2]
            }
        }
    }

    /// When a layer has been written.
    pub(crate) fn written_at(&self, layer: u8) -> u64 {
        self.read_at(layer)[1] + self.layer_ns - self.layer_ns / 2
    }
}

/// When the layers of a former step were written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) step: StepId,
    pub(crate) layers: Vec<u64>,
}

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) manager: Manager,
    pub(crate) tiers: [Tier; 2],
    pub(crate) layers: u8,
    /// By layer: whether it has index keys and KV.
    pub(crate) has: Vec<[bool; 2]>,
    pub(crate) has_index: bool,
    pub(crate) forward: VecDeque<Forward>,
    pub(crate) running: Option<StepRun>,
    /// Copies by number: loads and stores; the first of each may be under way.
    pub(crate) copies: [VecDeque<u32>; 2],
    pub(crate) copying: [bool; 2],
    pub(crate) busy_since: [u64; 2],
    pub(crate) events: Vec<EventSlot>,
    /// The last step that ended.
    pub(crate) ended: Option<StepId>,
    /// Steps that wrote pages which a copy began to read meanwhile.
    pub(crate) written: VecDeque<Written>,
}

/// Host to device.
pub(crate) const LOAD: usize = 0;
/// Device to host.
pub(crate) const STORE: usize = 1;

/// Former steps that are remembered: a copy that began under one ends soon behind it.
const WRITTEN_KEPT: usize = 64;

impl Engine {
    pub(crate) fn new(config: Config) -> Engine {
        let geometry = &config.geometry;
        let layers = geometry.layers;
        let has = |layer: u8, component: Component| geometry.layout(layer, component).is_some();
        let has = (0..layers).map(|layer| [has(layer, Component::IndexK), has(layer, Component::Kv)]).collect();
        let slot = EventSlot {
            queued: None,
            recorded: vec![None; usize::from(layers)],
            flags: vec![false; usize::from(layers)],
        };
        Engine {
            tiers: [Tier::new(config.device_pages), Tier::new(config.host_pages)],
            layers,
            has,
            has_index: geometry.has_index(),
            forward: VecDeque::new(),
            running: None,
            copies: [VecDeque::new(), VecDeque::new()],
            copying: [false; 2],
            busy_since: [0; 2],
            events: vec![slot; usize::from(config.event_slots)],
            ended: None,
            written: VecDeque::new(),
            manager: Manager::new(config),
        }
    }

    /// Whether everything in a list of fences has happened.
    pub(crate) fn met(&self, after: &[Fence]) -> bool {
        after.iter().all(|fence| match fence.on {
            FenceOn::Step(step) => self.ended.is_some_and(|ended| !later(step.0, ended.0)),
            FenceOn::Load(slot, generation) => {
                let slot = &self.events[usize::from(slot.0)];
                slot.queued.is_none_or(|queued| later(generation.0, queued.0))
                    || slot.recorded.iter().zip(&self.has).all(|(recorded, has)| {
                        *has == [false; 2] || recorded.is_some_and(|recorded| !later(generation.0, recorded.0))
                    })
            }
        })
    }

    /// Whether the event that a wait means has been recorded for a layer.
    pub(crate) fn landed(&self, wait: &LayerWait, layer: u8) -> bool {
        let slot = &self.events[usize::from(wait.slot.0)];
        match wait.generation {
            Some(generation) => {
                slot.recorded[usize::from(layer)].is_some_and(|recorded| !later(generation.0, recorded.0))
            }
            None => slot.flags[usize::from(layer)],
        }
    }

    /// As on CUDA, a wait on an event whose record is not queued is met at once.
    pub(crate) fn is_queued(&self, wait: &LayerWait) -> bool {
        let queued = self.events[usize::from(wait.slot.0)].queued;
        match wait.generation {
            Some(generation) => queued.is_some_and(|queued| !later(generation.0, queued.0)),
            None => queued.is_some(),
        }
    }

    /// Remembers when a step wrote its layers.
    pub(crate) fn remember(&mut self, run: &StepRun) {
        let layers = (0..self.layers).map(|layer| run.written_at(layer)).collect();
        if self.written.len() == WRITTEN_KEPT {
            self.written.pop_front();
        }
        self.written.push_back(Written { step: run.op.step, layers });
    }

    /// Whether nothing runs and nothing could.
    pub(crate) fn idle(&self) -> bool {
        self.running.is_none() && self.copying == [false; 2]
    }
}

/// Whether `a` is later than `b` in a count that may wrap.
pub(crate) fn later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}
