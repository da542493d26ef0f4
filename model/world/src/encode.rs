//! The canonical encoding of a world, and what is owed at its end.

use kvweft_core::{BlockRef, Body, Fence, FenceOn, Message, PageId, Pair, PartKind, Renamer, Status, Tier, Wait};

use crate::config::Machine;
use crate::engine::{Engine, NicRun, Report};
use crate::memory::Owner;
use crate::ops::Op;
use crate::properties::{self, Violation};
use crate::protocol::Protocol;
use crate::world::World;

impl<P: Protocol> World<P> {
    /// Whether everything that was submitted has ended, and everything that was held has come back.
    pub fn done(&self, machine: &Machine) -> bool {
        let quiet = self.clients.iter().all(|client| client.open == 0)
            && self.links.iter().all(|link| link.is_empty())
            && self.engines.iter().all(|engine| {
                engine.streams.iter().all(|stream| stream.is_empty())
                    && engine.nic.is_empty()
                    && engine.reports.iter().all(|reports| reports.is_empty())
            });
        quiet && self.owed(machine).is_empty()
    }

    /// What is still owed when nothing more can happen.
    pub fn owed(&self, machine: &Machine) -> Vec<Violation> {
        let mut owed = Vec::new();
        properties::every_request_ends::check(machine, &self.clients, &mut owed);
        for (e, engine) in self.engines.iter().enumerate() {
            if let Some(accounts) = engine.manager.accounts() {
                properties::every_page_returns::check(e, &accounts, &mut owed);
                properties::every_transfer_is_reported_once::check(e, &accounts, &mut owed);
            }
        }
        owed
    }

    /// Appends bytes that are equal for worlds that differ in the names of things alone.
    pub fn encode(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        names.clear();
        for (e, engine) in self.engines.iter().enumerate() {
            names.enter(e as u8);
            engine.manager.encode(names, out);
        }
        for client in &self.clients {
            out.extend([client.submissions, client.open | u8::from(client.finished) << 2 | client.faults << 3]);
            out.push(client.room.map_or(255, |room| names.room(room)));
        }
        let left = &self.left;
        out.extend_from_slice(&left.aborts.to_le_bytes());
        out.extend_from_slice(&left.preempts.to_le_bytes());
        out.extend(left.flushes);
        out.extend([left.losses, left.duplicates, left.reorders, left.slow, left.part_failures]);
        for (e, engine) in self.engines.iter().enumerate() {
            names.enter(e as u8);
            streams(engine, names, out);
        }
        for run in &self.engines[0].nic {
            nic(run, names, out);
        }
        for link in &self.links {
            for message in link {
                encode_message(message, names, out);
            }
            out.push(255);
        }
        for (engine, timer) in &self.timers {
            names.enter(*engine);
            let life = names.life(timer.request, timer.life);
            out.extend([timer.request.0 as u8, life, u8::from(timer.wait == Wait::Drain)]);
        }
        out.push(255);
        for (e, engine) in self.engines.iter().enumerate() {
            names.enter(e as u8);
            memory(engine, names, out);
        }
    }
}

impl<P: Protocol> World<P> {
    /// As [`World::encode`], for worlds of which eager actions are taken at once: with what has
    /// ended unreported.
    pub fn encode_watched(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        self.encode(names, out);
        for (e, engine) in self.engines.iter().enumerate() {
            names.enter(e as u8);
            for op in &engine.landed {
                encode_op(op, e as u8, names, out);
            }
            out.push(255);
        }
        for op in &self.arrived {
            pairs(&op.pairs, (0, 1), names, out);
        }
    }
}

fn encode_message(message: &Message, names: &mut Renamer, out: &mut Vec<u8>) {
    out.push(names.room(message.room));
    out.push(match &message.body {
        Body::Reserved { .. } => 0,
        Body::Abort => 1,
        Body::Status(Status::Success) => 2,
        Body::Status(Status::Failed) => 3,
        Body::Status(Status::Refused) => 4,
        Body::Drained => 5,
    });
    out.push(message.request.0 as u8);
    if let Body::Reserved { pages, metadata, .. } = &message.body {
        out.push(metadata.0 as u8);
        names.enter(1);
        for &page in pages {
            names.block(page, out);
        }
    }
}

fn fences(after: &[Fence], names: &mut Renamer, out: &mut Vec<u8>) {
    out.push(after.len() as u8);
    for fence in after {
        match fence.on {
            FenceOn::Step(step) => out.extend([0, names.step(step)]),
            FenceOn::Load(slot, generation) => out.extend([1, slot.0, names.event(slot.0, generation)]),
        }
    }
}

fn pairs(pairs: &[Pair], (from, to): (u8, u8), names: &mut Renamer, out: &mut Vec<u8>) {
    out.push(pairs.len() as u8);
    for pair in pairs {
        names.enter(from);
        names.block(pair.from, out);
        names.enter(to);
        names.block(pair.to, out);
    }
    names.enter(from);
}

fn streams<P>(engine: &Engine<P>, names: &mut Renamer, out: &mut Vec<u8>) {
    let place = names.place();
    for stream in &engine.streams {
        for op in stream {
            encode_op(op, place, names, out);
        }
        out.push(255);
    }
    for reports in &engine.reports {
        for report in reports {
            match *report {
                Report::Step(step) => out.extend([0, names.step(step)]),
                Report::Completed(id, part, outcome) => {
                    out.extend([1 + outcome as u8, names.transfer(id), part.kind as u8, part.handle as u8]);
                }
                Report::Metadata(slot, room) => out.extend([3, slot.0 as u8, names.room(room)]),
            }
        }
        out.push(255);
    }
    for (slot, state) in engine.events.iter().enumerate() {
        for recorded in std::iter::once(&state.queued).chain(&state.recorded) {
            out.push(recorded.map_or(255, |generation| names.event(slot as u8, generation)));
        }
        out.extend((0..state.recorded.len() as u8).map(|layer| u8::from(state.flags.has(layer))));
    }
    for row in &engine.metadata {
        out.push(row.map_or(255, |room| names.room(room)));
    }
    for (step, items) in &engine.launched {
        out.push(names.step(*step));
        for (request, tokens) in &**items {
            out.extend([*request as u8, *tokens as u8]);
        }
    }
    out.push(255);
}

fn encode_op(op: &Op, place: u8, names: &mut Renamer, out: &mut Vec<u8>) {
    match op {
        Op::Copy(run) => {
            out.extend([0, run.done as u8, names.transfer(run.op.transfer)]);
            fences(&run.op.after, names, out);
            pairs(&run.op.pairs, (place, place), names, out);
            for content in &run.seen {
                out.extend(content.code().to_le_bytes());
            }
        }
        Op::Record(run) => out.extend([1, names.transfer(run.op.transfer)]),
        Op::Step(run) => {
            out.extend([2, run.done as u8, names.step(run.op.step)]);
            for item in &run.op.items {
                let life = names.life(item.request, item.life);
                out.extend([item.request.0 as u8, life, item.first_token as u8, item.tokens as u8, item.read as u8]);
                for &page in &item.pages {
                    names.block(page, out);
                }
                for wait in &item.waits {
                    let generation = wait.generation.map_or(255, |generation| names.event(wait.slot.0, generation));
                    out.extend([wait.slot.0, generation]);
                }
                out.push(255);
            }
        }
    }
}

fn nic(run: &NicRun, names: &mut Renamer, out: &mut Vec<u8>) {
    names.enter(0);
    let part = run.op.part;
    out.extend([run.done as u8, names.transfer(run.op.transfer), part.kind as u8, part.handle as u8]);
    out.push(names.room(run.op.room));
    fences(&run.op.after, names, out);
    pairs(&run.op.pairs, (0, 1), names, out);
    if part.kind == PartKind::Metadata {
        out.push(run.op.metadata.map_or(255, |slot| slot.0 as u8));
    }
    for content in &run.seen {
        out.extend(content.code().to_le_bytes());
    }
}

/// Cells in the order of the numbers that their pages have by now.
fn memory<P>(engine: &Engine<P>, names: &mut Renamer, out: &mut Vec<u8>) {
    for (t, pages) in engine.memory.tiers.iter().enumerate() {
        let tier = Tier(t as u8);
        let count = pages.pages.len();
        for page in 0..count as u32 {
            names.page(tier, PageId(page));
        }
        for number in 0..count {
            let id = names.numbered(tier, number);
            let page = &pages.pages[id.0 as usize];
            let block = BlockRef { group: kvweft_core::Group(0), tier, page: id, generation: page.generation };
            names.block(block, out);
            out.push(match page.owner {
                Owner::Free => 0,
                Owner::Taken => 1,
                Owner::Draining => 2,
            });
            let cells = pages.cells(id.0 as usize);
            let start = out.len();
            out.resize(start + 2 * cells.len(), 0);
            for (cell, bytes) in cells.iter().zip(out[start..].chunks_exact_mut(2)) {
                let code = cell.content.code();
                bytes.copy_from_slice(&[code as u8, (code >> 8) as u8 | cell.writers << 2 | cell.readers << 5]);
            }
        }
    }
}
