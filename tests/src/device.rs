//! The device under one manager: streams, layer events, one-sided writes, and the reports they owe.
//!
//! It knows queues and fences. What operations do to pages is in `rig.rs`, which sees both engines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kvweft_core::{
    CopyOp, Direction, FenceOn, MetadataSlot, Outcome, Part, Room, RunStep, SendOp, StepId, StepItem, Stream, Timer,
    TransferId,
};

use crate::known;
use crate::operation::LAYERS;
use crate::shadow::{Checked, Content};

/// Something queued on a stream, and how many of its phases are over: two a layer.
#[derive(Clone, Debug)]
pub enum Queued {
    /// A copy: begins and ends each layer.
    Copy {
        /// What was asked for.
        op: CopyOp,
        /// Phases that are over.
        phase: u8,
        /// What was there when the layer's copy began.
        seen: Vec<Content>,
    },
    /// A step: reads and begins to write each layer, then ends writing it.
    Step {
        /// What was asked for.
        op: RunStep,
        /// Phases that are over.
        phase: u8,
    },
}

/// A one-sided write.
#[derive(Clone, Debug)]
pub struct Sending {
    /// What was asked for.
    pub op: SendOp,
    /// Whether it has begun.
    pub begun: bool,
    /// What was there when it began.
    pub seen: Vec<Content>,
}

/// Something the device has to tell its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Report {
    /// A copy or send was accepted.
    Submitted(TransferId),
    /// A copy or send was refused.
    SubmitFailed(TransferId),
    /// A layer of a reload has landed.
    Layer(TransferId, u8),
    /// A part has ended.
    Completed(TransferId, Part, Outcome),
    /// A step has ended.
    Step(StepId),
    /// A row was written.
    Metadata(MetadataSlot, Room),
}

/// Queues of reports: one a stream, and the NIC's. Each is read in order, the queues in any order.
pub const SOURCES: usize = 4;
const NIC: usize = 3;

#[derive(Clone, Debug, Default)]
struct Events {
    queued: Option<u32>,
    recorded: [Option<u32>; LAYERS as usize],
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Forward, load, store.
    pub streams: [VecDeque<Queued>; 3],
    /// Writes to the peer under way, in order of posting.
    pub nic: Vec<Sending>,
    /// What the manager has not been told yet.
    pub reports: [VecDeque<Report>; SOURCES],
    /// What the manager has been told.
    pub told: Vec<Report>,
    /// Armed timers.
    pub timers: Vec<Timer>,
    /// What the metadata rows name.
    pub rows: BTreeMap<u32, Room>,
    /// Copies whose end the manager has not been told.
    pub owed: BTreeMap<TransferId, Direction>,
    events: BTreeMap<u8, Events>,
    lost_loads: BTreeSet<(u8, u32)>,
    /// Transfers of which a part has begun.
    touched: BTreeSet<TransferId>,
    /// Sends that were refused as a whole.
    refused: BTreeSet<TransferId>,
    /// Steps whose report must stay behind the report of a failed reload.
    spoiled: BTreeMap<StepId, Vec<TransferId>>,
}

impl Device {
    /// Nothing queued.
    pub fn new() -> Device {
        Device {
            streams: Default::default(),
            nic: Vec::new(),
            reports: Default::default(),
            told: Vec::new(),
            timers: Vec::new(),
            rows: BTreeMap::new(),
            owed: BTreeMap::new(),
            events: BTreeMap::new(),
            lost_loads: BTreeSet::new(),
            touched: BTreeSet::new(),
            refused: BTreeSet::new(),
            spoiled: BTreeMap::new(),
        }
    }

    /// Takes a copy. The events it records are known from now on.
    pub fn queue_copy(&mut self, op: CopyOp) {
        if let Some(record) = op.record {
            self.events.entry(record.slot.0).or_default().queued = Some(record.generation.0);
        }
        self.owed.insert(op.transfer, op.direction);
        let stream = stream_index(op.stream);
        self.streams[stream].push_back(Queued::Copy { op, phase: 0, seen: Vec::new() });
    }

    /// Takes a part of a send.
    pub fn queue_send(&mut self, op: SendOp) {
        if !(known::REFUSAL_NAMES_NO_PART && self.refused.contains(&op.transfer)) {
            self.nic.push(Sending { op, begun: false, seen: Vec::new() });
        }
    }

    /// Takes a step. Every event it waits for must have been queued before.
    pub fn queue_step(&mut self, op: RunStep) -> Checked {
        for wait in op.items.iter().flat_map(|item| &item.waits) {
            let queued = self.events.get(&wait.slot.0).and_then(|events| events.queued);
            let named = wait.generation.map(|generation| generation.0);
            if named.is_some() && queued < named {
                return Err(format!("step {} waits for an event that nobody has queued: {wait:?}", op.step.0));
            }
        }
        self.streams[0].push_back(Queued::Step { op, phase: 0 });
        Ok(())
    }

    /// Whether the head of a stream can go on.
    pub fn can_go(&self, stream: usize) -> bool {
        match self.streams[stream].front() {
            None => false,
            Some(Queued::Copy { op, phase, .. }) => *phase > 0 || op.after.iter().all(|fence| self.happened(fence.on)),
            Some(Queued::Step { op, phase }) => phase % 2 == 1 || self.landed(op, phase / 2),
        }
    }

    /// Whether a write to the peer can go on.
    pub fn can_send(&self, at: usize) -> bool {
        let sending = &self.nic[at];
        sending.begun || sending.op.after.iter().all(|fence| self.happened(fence.on))
    }

    fn happened(&self, on: FenceOn) -> bool {
        match on {
            FenceOn::Step(step) => {
                !self.streams[0].iter().any(|queued| matches!(queued, Queued::Step { op, .. } if op.step == step))
            }
            FenceOn::Load(slot, generation) => {
                let recorded = self.events.get(&slot.0).map(|events| events.recorded);
                recorded.is_none_or(|layers| layers.iter().all(|layer| *layer >= Some(generation.0)))
            }
        }
    }

    fn landed(&self, op: &RunStep, layer: u8) -> bool {
        op.items.iter().flat_map(|item| &item.waits).all(|wait| {
            let Some(generation) = wait.generation.filter(|_| wait.index.is_some() && wait.kv.is_some()) else {
                return true;
            };
            self.events[&wait.slot.0].recorded[usize::from(layer)] >= Some(generation.0)
        })
    }

    /// Whether an item of a step waited for a reload that failed: what it computes is worth nothing.
    pub fn is_spoiled(&self, item: &StepItem) -> bool {
        let named = item.waits.iter().filter_map(|wait| Some((wait.slot.0, wait.generation?.0)));
        named.into_iter().any(|named| self.lost_loads.contains(&named))
    }

    /// A layer of a copy has been moved.
    pub fn record_layer(&mut self, op: &CopyOp, layer: u8) {
        if let Some(record) = op.record {
            let events = self.events.get_mut(&record.slot.0).expect("queued with the copy");
            events.recorded[usize::from(layer)] = Some(record.generation.0);
            self.reports[stream_index(op.stream)].push_back(Report::Layer(op.transfer, layer));
        }
    }

    /// A copy ends without having moved everything. The stream goes on, and so do those who wait for its events.
    pub fn give_up(&mut self, op: &CopyOp) {
        if let Some(record) = op.record {
            let events = self.events.get_mut(&record.slot.0).expect("queued with the copy");
            events.recorded = [Some(record.generation.0); LAYERS as usize];
            self.lost_loads.insert((record.slot.0, record.generation.0));
        }
    }

    /// Marks a step whose results are worth nothing because of failed reloads that the manager may not know of yet.
    pub fn note_spoiled(&mut self, op: &RunStep) {
        let failed = self.reports[1].iter().filter_map(|report| match report {
            Report::Completed(transfer, _, Outcome::Failed) | Report::SubmitFailed(transfer) => Some(*transfer),
            _ => None,
        });
        let failed = failed.collect();
        self.spoiled.insert(op.step, failed);
    }

    /// Whether the next report of a queue must stay behind another one.
    pub fn must_wait(&self, source: usize) -> bool {
        let Some(Report::Step(step)) = self.reports[source].front() else { return false };
        if !known::FAILED_RELOAD_IS_NOTICED_LATE {
            return false;
        }
        self.spoiled.get(step).is_some_and(|failed| failed.iter().any(|transfer| self.owed.contains_key(transfer)))
    }

    /// Copies of which nothing has run, and transfers of which no part has.
    pub fn refusable(&self) -> Vec<TransferId> {
        let queued = self.streams[1].iter().chain(&self.streams[2]).filter_map(|queued| match queued {
            Queued::Copy { op, phase: 0, .. } => Some(op.transfer),
            _ => None,
        });
        let mut all: Vec<TransferId> = queued.collect();
        for sending in &self.nic {
            let id = sending.op.transfer;
            if !self.touched.contains(&id) && !all.contains(&id) {
                all.push(id);
            }
        }
        all
    }

    /// Nothing of a transfer will run.
    pub fn refuse(&mut self, transfer: TransferId) {
        for stream in [1, 2] {
            let at = self.streams[stream]
                .iter()
                .position(|queued| matches!(queued, Queued::Copy { op, .. } if op.transfer == transfer));
            if let Some(Queued::Copy { op, .. }) = at.and_then(|at| self.streams[stream].remove(at)) {
                self.give_up(&op);
                self.reports[stream].push_back(Report::SubmitFailed(transfer));
                return;
            }
        }
        self.refused.insert(transfer);
        self.nic.retain(|sending| sending.op.transfer != transfer);
        self.reports[NIC].push_back(Report::SubmitFailed(transfer));
    }

    /// A part of a send begins.
    pub fn touch(&mut self, transfer: TransferId) {
        self.touched.insert(transfer);
    }

    /// A part of a send has ended.
    pub fn part_ended(&mut self, op: &SendOp, outcome: Outcome) {
        self.touched.insert(op.transfer);
        self.reports[NIC].push_back(Report::Completed(op.transfer, op.part, outcome));
    }

    /// A row was written by the peer.
    pub fn row_written(&mut self, slot: MetadataSlot, room: Room) {
        self.rows.insert(slot.0, room);
        self.reports[NIC].push_back(Report::Metadata(slot, room));
    }

    /// The manager is told now.
    pub fn tell(&mut self, report: Report) {
        if let Report::Completed(transfer, ..) | Report::SubmitFailed(transfer) = report {
            self.owed.remove(&transfer);
        }
        self.told.push(report);
    }

    /// Whether nothing is queued.
    pub fn quiet(&self) -> bool {
        self.streams.iter().all(VecDeque::is_empty)
            && self.nic.is_empty()
            && self.reports.iter().all(VecDeque::is_empty)
    }
}

impl Default for Device {
    fn default() -> Device {
        Device::new()
    }
}

/// Where a stream stands in [`Device::streams`].
pub fn stream_index(stream: Stream) -> usize {
    match stream {
        Stream::Forward => 0,
        Stream::Load => 1,
        Stream::Store => 2,
    }
}
