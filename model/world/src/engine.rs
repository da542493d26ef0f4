//! One engine of a world: a manager and the device under it.

use std::collections::VecDeque;
use std::sync::Arc;

use kvweft_core::{
    Fence, FenceOn, Generation, LayerSet, LayerWait, MetadataSlot, Outcome, Part, Room, RuleSite, SendOp, StepId,
    TransferId,
};
use kvweft_trace::Content;

use crate::kept::Kept;
use crate::memory::Memory;
use crate::ops::Op;

/// A one-sided write, and how far it has come.
#[derive(Clone, Debug)]
pub(crate) struct NicRun {
    pub(crate) op: Arc<SendOp>,
    /// Small operations done: begin and end of the whole, or of each page of each layer at the finest grain.
    pub(crate) done: u16,
    /// What the cells being sent held when the NIC began to read them.
    pub(crate) seen: Vec<Content>,
}

/// Something the device has to tell its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Step(StepId),
    Completed(TransferId, Part, Outcome),
    Metadata(MetadataSlot, Room),
}

/// Where reports queue up; each queue is read in order, the queues in any order.
pub(crate) const SOURCES: usize = 4;
pub(crate) const FROM_FORWARD: usize = 0;
pub(crate) const FROM_LOAD: usize = 1;
pub(crate) const FROM_STORE: usize = 2;
pub(crate) const FROM_NIC: usize = 3;

crate::reuse::clone_in_place!(EventSlotState { queued, recorded, flags });

/// A rotating slot of layer events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EventSlotState {
    /// The newest generation whose records are queued.
    pub(crate) queued: Option<Generation>,
    /// The newest generation that was recorded for each layer: what a wait that names its generation looks at.
    pub(crate) recorded: Vec<Option<Generation>>,
    /// Whether anything was recorded for each layer since the slot was last handed out: all that a wait without a
    /// generation can look at.
    pub(crate) flags: LayerSet,
}

crate::reuse::clone_in_place!(Engine<P> { manager, streams, nic, reports, landed, memory, events, metadata, launched });

/// Requests, and how many tokens each will have.
pub(crate) type Ends = Arc<[(u32, u32)]>;

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine<P> {
    pub(crate) manager: Kept<P>,
    pub(crate) streams: [VecDeque<Op>; 3],
    pub(crate) nic: Vec<NicRun>,
    pub(crate) reports: [VecDeque<Report>; SOURCES],
    /// Operations of streams that have ended, and whose reports the manager has not taken.
    pub(crate) landed: Vec<Op>,
    pub(crate) memory: Memory,
    pub(crate) events: Vec<EventSlotState>,
    /// The room that each metadata row names.
    pub(crate) metadata: Vec<Option<Room>>,
    /// Launched steps: of each item the request and its tokens when done.
    pub(crate) launched: Vec<(StepId, Ends)>,
}

impl<P> Engine<P> {
    /// The first fence of a list that has not happened, if any.
    pub(crate) fn unmet(&self, after: &[Fence]) -> Option<Fence> {
        after.iter().copied().find(|fence| !self.happened(fence.on))
    }

    fn happened(&self, on: FenceOn) -> bool {
        match on {
            FenceOn::Step(step) => !self.streams[0].iter().any(|op| matches!(op, Op::Step(run) if run.op.step == step)),
            FenceOn::Load(slot, generation) => {
                let state = &self.events[usize::from(slot.0)];
                state.queued.is_none_or(|queued| newer(generation, queued))
                    || state.recorded.iter().all(|r| r.is_some_and(|r| !newer(generation, r)))
            }
        }
    }

    /// Whether the events that a layer wait means have been recorded.
    pub(crate) fn landed(&self, wait: &LayerWait, layer: u8) -> bool {
        let slot = &self.events[usize::from(wait.slot.0)];
        match wait.generation {
            Some(generation) => slot.recorded[usize::from(layer)].is_some_and(|r| !newer(generation, r)),
            None => slot.flags.has(layer),
        }
    }
}

/// Whether `a` is a later generation than `b`.
pub(crate) fn newer(a: Generation, b: Generation) -> bool {
    a.0.wrapping_sub(b.0) as i32 > 0
}

/// A fence or wait that keeps an operation back, and the rule it is owed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) owed_to: RuleSite,
    pub(crate) on: HoldOn,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldOn {
    Fence(FenceOn),
    Layer(LayerWait, u8),
}
