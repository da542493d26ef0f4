//! Copies between tiers and writes to the peer: what they read, what they leave behind, and when.

use kvweft_core::{Component, CopyOp, Direction, Effect, Input, MovedPart, Outcome, Pair, Part, PartKind, Rank};
use kvweft_core::{SendOp, StepId, Tier};

use crate::engine::{LOAD, STORE};
use crate::memory::{NIL, POISON, STEP, TORN, Tag, mislaid};
use crate::profile::transfer_ns;
use crate::simulation::{Event, Simulation};

/// The whole of a copy, as its completion names it.
const WHOLE: Part = Part { rank: Rank(0), kind: PartKind::Whole, handle: 0 };

/// What is moved.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Copy(CopyOp),
    Send(SendOp),
}

/// A copy or a part of a send, queued or under way.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) what: What,
    pub(crate) engine: usize,
    /// The next layer.
    pub(crate) layer: u8,
    /// When each layer began to be read, and landed.
    pub(crate) begun: Vec<u64>,
    pub(crate) landed: Vec<u64>,
    pub(crate) done: bool,
    /// It did not bring what it should.
    pub(crate) failed: bool,
    /// Runs of neighbouring pages.
    extents: u64,
    /// The step that was writing source pages when they began to be read.
    racing: Option<StepId>,
    /// By component, KV first: what the bytes are worth where they arrive.
    arrives: [Arrival; 2],
    /// Steps that will ask when its layers landed.
    pub(crate) users: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The component is not moved.
    Absent,
    /// Source, copy and destination lay it out alike.
    Alike,
    Mislaid,
}

impl Move {
    fn new(what: What, engine: usize) -> Move {
        let parts = match &what {
            What::Copy(op) => &op.parts,
            What::Send(op) => &op.parts,
        };
        let arrives = [Component::Kv, Component::IndexK].map(|component| arrival(parts, component));
        let (begun, landed) = (Vec::new(), Vec::new());
        Move {
            what,
            engine,
            layer: 0,
            begun,
            landed,
            done: false,
            failed: false,
            extents: 0,
            racing: None,
            arrives,
            users: 0,
        }
    }

    pub(crate) fn pairs(&self) -> &[Pair] {
        match &self.what {
            What::Copy(op) => &op.pairs,
            What::Send(op) => &op.pairs,
        }
    }

    pub(crate) fn parts(&self) -> &[MovedPart] {
        match &self.what {
            What::Copy(op) => &op.parts,
            What::Send(op) => &op.parts,
        }
    }

    /// Bytes of a layer.
    fn layer_bytes(&self, layer: u8) -> u64 {
        let parts = self.parts().iter().filter(|part| part.layers.has(layer));
        parts.map(|part| u64::from(part.moved.page_bytes())).sum::<u64>() * self.pairs().len() as u64
    }

    /// Bytes of all layers.
    pub(crate) fn bytes(&self) -> u64 {
        let parts = self.parts().iter();
        let page: u64 = parts.map(|part| u64::from(part.moved.page_bytes()) * u64::from(part.layers.len())).sum();
        page * self.pairs().len() as u64
    }

    fn target(&self) -> usize {
        match self.what {
            What::Copy(_) => self.engine,
            What::Send(_) => 1 - self.engine,
        }
    }
}

fn arrival(parts: &[MovedPart], component: Component) -> Arrival {
    let mut parts = parts.iter().filter(|part| part.component == component).peekable();
    if parts.peek().is_none() {
        return Arrival::Absent;
    }
    let alike = parts.all(|part| part.from == part.moved && part.moved == part.to);
    if alike { Arrival::Alike } else { Arrival::Mislaid }
}

fn stream(direction: Direction) -> usize {
    match direction {
        Direction::Reload => LOAD,
        Direction::Offload => STORE,
    }
}

impl Simulation<'_> {
    pub(crate) fn new_move(&mut self, what: What, engine: usize) -> u32 {
        let moved = Move::new(what, engine);
        self.bytes_begun += moved.bytes();
        match self.unused_moves.pop() {
            Some(id) => {
                self.moves[id as usize] = moved;
                id
            }
            None => {
                self.moves.push(moved);
                self.moves.len() as u32 - 1
            }
        }
    }

    /// A step asks no more about a move.
    pub(crate) fn release_move(&mut self, id: u32) {
        let moved = &mut self.moves[id as usize];
        moved.users -= 1;
        self.retire_move(id);
    }

    fn retire_move(&mut self, id: u32) {
        if self.moves[id as usize].done && self.moves[id as usize].users == 0 {
            self.unused_moves.push(id);
        }
    }

    pub(crate) fn queue_copy(&mut self, e: usize, op: CopyOp) {
        let (record, record_on, runs_on, direction) = (op.record, op.record_on, op.stream, op.direction);
        if let Some(record) = record {
            let slot = &mut self.engines[e].events[usize::from(record.slot.0)];
            if slot.queued.is_none_or(|queued| crate::engine::later(record.generation.0, queued.0)) {
                slot.queued = Some(record.generation);
            }
            slot.flags.fill(false);
        }
        let id = self.new_move(What::Copy(op), e);
        if record_on != runs_on {
            self.engines[e].forward.push_back(crate::engine::Forward::Record(id));
            self.moves[id as usize].users += 1;
        }
        if direction == Direction::Reload {
            for pair in self.moves[id as usize].pairs() {
                self.engines[e].tiers[usize::from(pair.to.tier.0)].page_mut(pair.to.page).coming = id;
            }
        }
        self.engines[e].copies[stream(direction)].push_back(id);
    }

    /// Begins the first copy of a stream if it can.
    pub(crate) fn start_copy(&mut self, e: usize, which: usize) {
        let engine = &self.engines[e];
        if engine.copying[which] {
            return;
        }
        let Some(&id) = engine.copies[which].front() else { return };
        let What::Copy(op) = &self.moves[id as usize].what else { return };
        if !engine.met(&op.after) {
            return;
        }
        self.engines[e].copying[which] = true;
        self.engines[e].busy_since[which] = self.now;
        self.begin_contents(id);
        self.next_layer(e, which, id);
    }

    /// The next layer of a copy goes over its link; layers without anything to move pass at once.
    fn next_layer(&mut self, e: usize, which: usize, id: u32) {
        let layers = self.engines[e].layers;
        loop {
            let moved = &mut self.moves[id as usize];
            if moved.layer == layers {
                self.copy_ended(e, which, id);
                return;
            }
            let bytes = moved.layer_bytes(moved.layer);
            if bytes > 0 {
                let rate = [self.costs.load_mb_per_s, self.costs.store_mb_per_s][which];
                let both = self.engines[e].copying == [true; 2];
                let rate = if both { (rate * self.costs.both_ways_percent / 100).max(1) } else { rate };
                let extents = moved.extents.saturating_sub(1) * self.costs.copy_extent_ns;
                moved.begun.push(self.now);
                let took = self.costs.copy_launch_ns + extents + transfer_ns(bytes, rate);
                let took = self.jitter(took);
                self.at(self.now + took, Event::Layer { engine: e as u8, which: which as u8 });
                return;
            }
            moved.begun.push(self.now);
            moved.landed.push(self.now);
            moved.layer += 1;
        }
    }

    /// A layer of the copy under way has landed.
    pub(crate) fn layer_landed(&mut self, e: usize, which: usize) {
        let id = *self.engines[e].copies[which].front().expect("it is under way");
        let now = self.now;
        let moved = &mut self.moves[id as usize];
        let layer = moved.layer;
        moved.landed.push(now);
        moved.layer += 1;
        let What::Copy(op) = &moved.what else { return };
        if op.record_on == op.stream && op.record.is_some() {
            self.record(e, id, layer);
        }
        self.next_layer(e, which, id);
    }

    /// Records the event of a layer, and says so.
    pub(crate) fn record(&mut self, e: usize, id: u32, layer: u8) {
        let What::Copy(op) = &self.moves[id as usize].what else { return };
        let (transfer, record) = (op.transfer, op.record);
        let Some(record) = record else { return };
        let slot = &mut self.engines[e].events[usize::from(record.slot.0)];
        slot.recorded[usize::from(layer)] = Some(record.generation);
        slot.flags[usize::from(layer)] = true;
        self.input(e, Input::LayerReady { transfer, layer });
        self.advance_step(e);
    }

    fn copy_ended(&mut self, e: usize, which: usize, id: u32) {
        self.engines[e].copies[which].pop_front();
        self.engines[e].copying[which] = false;
        let busy = self.now - self.engines[e].busy_since[which];
        let moved = &self.moves[id as usize];
        let What::Copy(op) = &moved.what else { return };
        let (transfer, own) = (op.transfer, op.record_on == op.stream);
        let link = if which == LOAD { &mut self.report.links.load } else { &mut self.report.links.store };
        link.operations += 1;
        link.pages += moved.pairs().len() as u64;
        link.bytes += moved.bytes();
        link.busy_ns += busy;
        self.bytes_ended += moved.bytes();
        self.end_contents(id);
        if own {
            self.input(e, Input::Completed { transfer, part: WHOLE, outcome: Outcome::Done });
        }
        self.finish_move(id);
        self.start_streams(e);
    }

    /// Events of a copy that are recorded on the forward stream, whether it has moved anything or not.
    pub(crate) fn record_elsewhere(&mut self, e: usize, id: u32) {
        let What::Copy(op) = &self.moves[id as usize].what else { return };
        let transfer = op.transfer;
        let layers: Vec<u8> = (0..self.engines[e].layers).collect();
        for layer in layers {
            if self.moves[id as usize].layer_bytes(layer) > 0 {
                self.record(e, id, layer);
            }
        }
        self.input(e, Input::Completed { transfer, part: WHOLE, outcome: Outcome::Done });
        self.release_move(id);
    }

    /// The lists of a move go back to its manager once nobody asks about them.
    pub(crate) fn finish_move(&mut self, id: u32) {
        self.moves[id as usize].done = true;
        self.retire_move(id);
    }

    /// Hands the lists of a retired move back before its record is used again.
    pub(crate) fn recycle_moves(&mut self) {
        for at in 0..self.unused_moves.len() {
            let moved = &mut self.moves[self.unused_moves[at] as usize];
            let engine = moved.engine;
            let effect = match &mut moved.what {
                What::Copy(op) if op.pairs.capacity() > 0 => Effect::Copy(CopyOp {
                    after: std::mem::take(&mut op.after),
                    pairs: std::mem::take(&mut op.pairs),
                    parts: std::mem::take(&mut op.parts),
                    ..*op
                }),
                What::Send(op) if op.pairs.capacity() > 0 => Effect::Send(SendOp {
                    after: std::mem::take(&mut op.after),
                    pairs: std::mem::take(&mut op.pairs),
                    parts: std::mem::take(&mut op.parts),
                    ..*op
                }),
                _ => continue,
            };
            self.engines[engine].manager.recycle(effect);
        }
    }

    /// A move begins to read its sources and to write its targets.
    pub(crate) fn begin_contents(&mut self, id: u32) {
        let moved = &mut self.moves[id as usize];
        let (from, to) = (moved.engine, moved.target());
        let running = self.engines[from].running.as_ref().map(|run| run.op.step);
        let components = moved.arrives.map(|arrival| arrival != Arrival::Absent);
        let mut last: Option<Pair> = None;
        let (mut racing, mut disturbed) = (false, false);
        for pair in moved.pairs() {
            let tier = &mut self.engines[from].tiers[usize::from(pair.from.tier.0)];
            self.report.corrupt_reads.foreign_writes += u64::from(!tier.owns(pair.from));
            let source = tier.page_mut(pair.from.page);
            source.readers += 1;
            for (component, moves) in components.into_iter().enumerate() {
                if moves && source.is_written(component) {
                    racing |= source.writers[component] == STEP;
                    source.disturbed |= source.writers[component] != STEP;
                }
            }
            let tier = &mut self.engines[to].tiers[usize::from(pair.to.tier.0)];
            self.report.corrupt_reads.foreign_writes += u64::from(!tier.owns(pair.to));
            let target = tier.page_mut(pair.to.page);
            target.begin_write(id, components);
            target.coming = NIL;
            disturbed |= target.watchers > 0;
            let joins = last
                .is_some_and(|last| last.from.page.0 + 1 == pair.from.page.0 && last.to.page.0 + 1 == pair.to.page.0);
            moved_extents(&mut last, *pair, joins, &mut self.extents_scratch);
        }
        let moved = &mut self.moves[id as usize];
        moved.extents = std::mem::take(&mut self.extents_scratch);
        moved.racing = running.filter(|_| racing);
        if disturbed {
            self.disturb(to);
        }
    }

    /// A move has written its targets.
    pub(crate) fn end_contents(&mut self, id: u32) {
        let stale = self.lost_race(id);
        let moved = &self.moves[id as usize];
        let (from, to) = (moved.engine, moved.target());
        let (arrives, failed) = (moved.arrives, moved.failed);
        let reload = matches!(&moved.what, What::Copy(op) if op.direction == Direction::Reload);
        let count = moved.pairs().len();
        for at in 0..count {
            let pair = self.moves[id as usize].pairs()[at];
            let source = self.engines[from].tiers[usize::from(pair.from.tier.0)].page_mut(pair.from.page);
            source.readers = source.readers.saturating_sub(1);
            // What a step was still writing when it was read is not there as a whole.
            let torn = source.disturbed || stale && source.generation == pair.from.generation.0;
            let seen = [0, 1].map(|c| if torn || source.writers[c] == STEP { TORN } else { source.content[c] });
            if source.readers == 0 {
                source.disturbed = false;
            }
            let left = [0, 1].map(|c| left_by(seen[c], arrives[c]));
            let tier = &mut self.engines[to].tiers[usize::from(pair.to.tier.0)];
            let lost = !tier.owns(pair.to);
            let target = tier.page_mut(pair.to.page);
            // A write into a page that has another owner by now spoils what that one has written.
            let left = if lost || failed { left.map(|tag| tag.map(|_| TORN)) } else { left };
            self.report.corrupt_reads.foreign_writes += u64::from(lost);
            target.end_write(id, left);
            target.reloaded = reload && pair.to.tier == Tier::DEVICE;
        }
    }

    /// Whether a copy read layers of its sources before the step that wrote them had got there.
    fn lost_race(&self, id: u32) -> bool {
        let moved = &self.moves[id as usize];
        let Some(step) = moved.racing else { return false };
        let engine = &self.engines[moved.engine];
        if engine.running.as_ref().is_some_and(|run| run.op.step == step) {
            return true;
        }
        let written = engine.written.iter().find(|written| written.step == step);
        written.is_none_or(|written| written.layers.iter().zip(&moved.begun).any(|(wrote, read)| read < wrote))
    }
}

fn moved_extents(last: &mut Option<Pair>, pair: Pair, joins: bool, extents: &mut u64) {
    *extents += u64::from(!joins);
    *last = Some(pair);
}

fn left_by(seen: Tag, arrival: Arrival) -> Option<Tag> {
    match arrival {
        Arrival::Absent => None,
        Arrival::Alike => Some(seen),
        Arrival::Mislaid if seen == POISON => Some(POISON),
        Arrival::Mislaid => Some(mislaid(seen)),
    }
}
