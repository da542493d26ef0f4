//! The rotating slots of layer events.

use kvweft_core::{FenceOn, Generation, LayerWait};

/// One slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSlot {
    /// The newest generation whose records are queued.
    queued: Option<Generation>,
    /// The newest generation recorded for each layer.
    recorded: Vec<Option<Generation>>,
    /// Whether anything was recorded for each layer since the slot was last handed out: all that a wait without a
    /// generation sees.
    flags: Vec<bool>,
}

/// All slots of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Events(Vec<EventSlot>);

fn newer(a: Generation, b: Generation) -> bool {
    a.0.wrapping_sub(b.0) as i32 > 0
}

impl Events {
    pub(crate) fn new(slots: u8, layers: u8) -> Events {
        let layers = usize::from(layers);
        let slot = EventSlot { queued: None, recorded: vec![None; layers], flags: vec![false; layers] };
        Events(vec![slot; usize::from(slots.max(1))])
    }

    /// A reload that will record these events is queued.
    pub(crate) fn queue(&mut self, record: kvweft_core::Record) {
        let slot = &mut self.0[usize::from(record.slot.0)];
        if slot.queued.is_none_or(|queued| newer(record.generation, queued)) {
            slot.queued = Some(record.generation);
        }
        slot.flags.fill(false);
    }

    pub(crate) fn record(&mut self, record: kvweft_core::Record, layer: u8) {
        let slot = &mut self.0[usize::from(record.slot.0)];
        slot.recorded[usize::from(layer)] = Some(record.generation);
        slot.flags[usize::from(layer)] = true;
    }

    /// Whether a wait means records that are queued: as on CUDA, a wait on an event that was never recorded is met at once.
    pub(crate) fn is_queued(&self, wait: &LayerWait) -> bool {
        let queued = self.0[usize::from(wait.slot.0)].queued;
        match wait.generation {
            Some(generation) => queued.is_some_and(|queued| !newer(generation, queued)),
            None => queued.is_some(),
        }
    }

    /// Whether a layer has landed, as far as the wait can tell.
    pub(crate) fn landed(&self, wait: &LayerWait, layer: u8) -> bool {
        let slot = &self.0[usize::from(wait.slot.0)];
        match wait.generation {
            Some(generation) => slot.recorded[usize::from(layer)].is_some_and(|r| !newer(generation, r)),
            None => slot.flags[usize::from(layer)],
        }
    }

    /// Whether a fence on a reload is met: every layer has landed.
    pub(crate) fn complete(&self, on: FenceOn) -> bool {
        let FenceOn::Load(slot, generation) = on else { return true };
        let slot = &self.0[usize::from(slot.0)];
        slot.queued.is_none_or(|queued| newer(generation, queued))
            || slot.recorded.iter().all(|recorded| recorded.is_some_and(|r| !newer(generation, r)))
    }
}
