//! The streams of the device: queues whose operations run in order.

use std::sync::Arc;

use kvweft_core::{
    CopyOp, Direction, Fence, FenceOn, Input, MovedPart, Outcome, Part, PartKind, Rank, Record, RunStep,
};
use kvweft_trace::event::{Event, Phase};
use kvweft_world::Operation;

use super::{Core, Engine, FROM_LOAD, FROM_STORE, Op, Report, Stopped, Stopping, Turn, stream_index};
use crate::model::Model;
use crate::platform::{Cell, Lock, Move, Platform, Queued};
use crate::pool::{Half, moved_words};

/// The whole of a copy, as its completion names it.
const WHOLE: Part = Part { rank: Rank(0), kind: PartKind::Whole, handle: 0 };

impl Core {
    pub(crate) fn met(&self, fence: &Fence) -> bool {
        match fence.on {
            FenceOn::Step(step) => !self.steps.contains(&step),
            FenceOn::Load(..) => self.events.complete(fence.on),
        }
    }
}

impl<P: Platform, M: Model> Engine<P, M> {
    pub(crate) fn queue_copy(&self, core: &mut Core, op: Arc<CopyOp>) {
        if let Some(record) = op.record {
            core.events.queue(record);
        }
        match op.direction {
            Direction::Reload => core.counts.pages_reloaded += op.pairs.len() as u64,
            Direction::Offload => core.counts.pages_offloaded += op.pairs.len() as u64,
        }
        if op.record_on != op.stream {
            core.streams[stream_index(op.record_on)].push_back(Op::Record(Arc::clone(&op)));
        }
        core.streams[stream_index(op.stream)].push_back(Op::Copy(op));
    }

    pub(crate) fn queue_step(&self, core: &mut Core, mut op: RunStep) {
        for item in &mut op.items {
            item.waits.retain(|wait| core.events.is_queued(wait));
        }
        core.steps.push(op.step);
        self.count_step(core, &op);
        core.streams[0].push_back(Op::Step(Arc::new(op)));
    }

    /// Runs what is queued on a stream until the engine is told to end.
    pub fn run_stream(&self, stream: kvweft_core::Stream) {
        while self.run_next(stream) {}
    }

    /// Waits for the next operation of a stream and runs it. Returns whether there was one before the engine was told to
    /// end.
    pub fn run_next(&self, stream: kvweft_core::Stream) -> bool {
        let at = stream_index(stream);
        let mut core = self.lock();
        let op = loop {
            if let Some(op) = core.streams[at].pop_front() {
                core.running += 1;
                break op;
            }
            if core.stopping == Stopping::WhenIdle && self.is_idle(&core) {
                return false;
            }
            match self.wait(core) {
                Ok(next) => core = next,
                Err(Stopped) => return false,
            }
        };
        drop(core);
        let ended = match op {
            Op::Copy(op) => self.copy(&op),
            Op::Record(op) => self.record_elsewhere(&op),
            Op::Step(op) => self.forward(&op),
        };
        let mut core = self.lock();
        core.running -= 1;
        drop(core);
        P::notify_all(&self.changed);
        ended.is_ok()
    }

    /// Waits until every fence is met.
    pub(crate) fn wait_fences(&self, after: &[Fence], turn: &Turn<'_>) -> Result<(), Stopped> {
        if after.is_empty() {
            return Ok(());
        }
        let mut core = self.lock();
        while let Some(fence) = after.iter().find(|fence| !core.met(fence)) {
            turn.held(fence.owed_to);
            core = self.wait(core)?;
        }
        Ok(())
    }

    /// Moves pages between tiers, layer by layer. A device with an order of its own has all of it at once: at the begin if
    /// gates hold it, so that they hold the device, and else behind the fences.
    fn copy(&self, op: &CopyOp) -> Result<(), Stopped> {
        let here = op.record_on == op.stream;
        let held = !self.parts.gate.open();
        let mut queued = held.then(|| self.queue(op, true));
        let mut batches = 0..;
        let last_layer = (0..self.layers).rev().find(|&layer| op.parts.iter().any(|part| part.layers.has(layer)));
        for layer in 0..self.layers {
            let last = op.parts.iter().rposition(|part| part.layers.has(layer));
            for (at, moved) in op.parts.iter().enumerate().filter(|(_, part)| part.layers.has(layer)) {
                let (engine, transfer, component) = (self.index, op.transfer, moved.component);
                let turn = self.turn(Operation::CopyBegin { engine, transfer, layer, component });
                let first = batches.next().expect("it has no end");
                if first == 0 {
                    self.wait_fences(&op.after, &turn)?;
                }
                let queued = queued.get_or_insert_with(|| self.queue(op, false)).as_ref();
                self.move_pages(op, at, layer, Half::First, queued.map(|queued| (queued, first)));
                drop(turn);
                let turn = self.turn(Operation::CopyEnd { engine, transfer, layer, component });
                let second = batches.next().expect("it has no end");
                self.move_pages(op, at, layer, Half::Second, queued.map(|queued| (queued, second)));
                if here && op.record.is_none() && Some(layer) == last_layer && Some(at) == last {
                    self.copied(op);
                }
                drop(turn);
            }
            if let (true, Some(record), Some(_)) = (here, op.record, last) {
                let turn =
                    self.turn(Operation::Record { engine: self.index, transfer: op.transfer, layer: Some(layer) });
                self.record(op, record, layer);
                if Some(layer) == last_layer {
                    self.copied(op);
                }
                drop(turn);
            }
        }
        Ok(())
    }

    /// Hands a copy to the device, if it has an order of its own, in the batches that [`Engine::copy`] makes; its events are
    /// known from then on to those who can wait on the device.
    fn queue(&self, op: &CopyOp, held: bool) -> Option<P::Queued> {
        let parts = |layer| op.parts.iter().filter(move |part| part.layers.has(layer));
        let layers = (0..self.layers).flat_map(|layer| parts(layer).map(move |moved| (layer, moved)));
        // Where no gate is between the halves, the device makes both in the place of the second one.
        let turns: [&[Half]; 2] =
            if held { [&[Half::First], &[Half::Second]] } else { [&[], &[Half::First, Half::Second]] };
        let batches = || {
            let turns = layers.clone().flat_map(|(layer, moved)| turns.map(|halves| (layer, moved, halves)));
            turns.map(|(layer, moved, halves)| self.moves(op, moved, layer, halves)).collect()
        };
        let queued = P::queue(batches, held)?;
        if let Some(record) = op.record.filter(|_| op.record_on == op.stream) {
            let mut marks = self.marks.lock();
            for (at, (layer, _)) in layers.enumerate() {
                marks.insert((record.slot.0, layer), (record.generation, queued.mark(2 * at + 1)));
            }
            drop(marks);
            // Whoever has looked and found none is asleep by now.
            drop(self.lock());
            P::notify_all(&self.changed);
        }
        Some(queued)
    }

    /// These halves, which adjoin, of every page.
    fn moves(&self, op: &CopyOp, moved: &MovedPart, layer: u8, halves: &[Half]) -> Vec<Move<'_, P::Cell>> {
        let unit = self.pools.unit(layer, moved.component);
        let (Some(unit), Some(first), Some(last)) = (unit, halves.first(), halves.last()) else { return Vec::new() };
        let cells =
            op.pairs.iter().map(|pair| (self.pools.cell_of(pair.from, unit), self.pools.cell_of(pair.to, unit)));
        let words = |from: &P::Cell, to: &P::Cell, half: &Half| moved_words(from, to, moved, *half);
        cells.map(|(from, to)| (from, to, words(from, to, first).start..words(from, to, last).end)).collect()
    }

    /// Half of one component of one layer, for every page; a batch of those that the device has, if it has them.
    fn move_pages(&self, op: &CopyOp, part: usize, layer: u8, half: Half, queued: Option<(&P::Queued, usize)>) {
        let moved = &op.parts[part];
        let event = |phase, sums| Event::Copy {
            engine: self.index,
            stream: op.stream,
            transfer: op.transfer,
            layer,
            component: moved.component,
            phase,
            sums,
        };
        if half == Half::First {
            self.parts.log.note(|| event(Phase::Begin, Vec::new()));
        }
        match queued {
            Some((queued, batch)) => queued.settle(batch),
            None => P::Cell::copy_all(&self.moves(op, moved, layer, &[half])),
        }
        let unit = self.pools.unit(layer, moved.component);
        if let (Half::Second, Some(unit)) = (half, unit) {
            let cells = op.pairs.iter().map(|pair| (pair.to, unit));
            self.parts.log.note(|| event(Phase::End, self.pools.sums(cells)));
        }
    }

    /// The event of a layer.
    fn record(&self, op: &CopyOp, record: Record, layer: u8) {
        let mut core = self.lock();
        core.events.record(record, layer);
        self.note_record(op, Some(layer));
        self.taken(self.input(&mut core, Input::LayerReady { transfer: op.transfer, layer }));
    }

    fn note_record(&self, op: &CopyOp, layer: Option<u8>) {
        let (engine, stream, transfer) = (self.index, op.record_on, op.transfer);
        self.parts.log.note(|| Event::Record { engine, stream, transfer, layer });
    }

    /// Events that are recorded on another stream than the copy runs on.
    fn record_elsewhere(&self, op: &CopyOp) -> Result<(), Stopped> {
        let (engine, transfer) = (self.index, op.transfer);
        let Some(record) = op.record else {
            let turn = self.turn(Operation::Record { engine, transfer, layer: None });
            self.note_record(op, None);
            self.copied(op);
            drop(turn);
            return Ok(());
        };
        let layers = (0..self.layers).filter(|&layer| op.parts.iter().any(|part| part.layers.has(layer)));
        let layers: Vec<u8> = layers.collect();
        for &layer in &layers {
            let turn = self.turn(Operation::Record { engine, transfer, layer: Some(layer) });
            self.record(op, record, layer);
            if Some(&layer) == layers.last() {
                self.copied(op);
            }
            drop(turn);
        }
        Ok(())
    }

    /// The copy has stopped touching memory, or is believed to have.
    fn copied(&self, op: &CopyOp) {
        let source = if op.direction == Direction::Reload { FROM_LOAD } else { FROM_STORE };
        let mut core = self.lock();
        core.reports[source].push_back(Report::Completed(op.transfer, WHOLE, Outcome::Done));
        drop(core);
        P::notify_all(&self.changed);
    }
}
