//! The canonical encoding of a world, and what is owed at its end.

use kvweft_core::{
    BlockRef, Body, Fence, FenceOn, Message, Names, PageId, Pair, PartKind, Renamer, Space, Status, Tier, Wait,
};

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
        let quiet = self.quiet()
            && self.engines.iter().all(|engine| {
                engine.streams.iter().all(|stream| stream.is_empty())
                    && engine.nic.is_empty()
                    && engine.reports.iter().all(|reports| reports.is_empty())
            });
        quiet && self.owed(machine).is_empty()
    }

    /// Whether no client waits and no message is under way.
    pub(crate) fn quiet(&self) -> bool {
        self.clients.iter().all(|client| client.open == 0) && self.links.iter().all(|link| link.is_empty())
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
        self.encode_apart(names, out);
        ties(self.engines.len(), |_| names, out);
    }

    /// As [`World::encode`], for worlds of which eager actions are taken at once: with what has
    /// ended unreported.
    pub fn encode_watched(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        self.encode_apart(names, out);
        for (e, engine) in self.engines.iter().enumerate() {
            names.enter(e as u8);
            for op in &engine.landed {
                encode_op(op, e as u8, names, out);
            }
            out.push(255);
        }
        names.enter(0);
        for op in &self.arrived {
            pairs(&op.pairs, (0, PEER), names, out);
        }
        ties(self.engines.len(), |_| names, out);
    }

    fn encode_apart(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        names.clear();
        for e in 0..self.engines.len() {
            self.encode_engine(e, names, out);
        }
        self.encode_between(names, out);
    }

    /// Appends one engine and what it has on the network, in names of its own.
    pub(crate) fn encode_engine(&self, e: usize, names: &mut Renamer, out: &mut Vec<u8>) {
        let engine = &self.engines[e];
        names.enter(e as u8);
        engine.manager.encode(names, out);
        streams(engine, names, out);
        for run in &engine.nic {
            nic(run, names, out);
        }
        out.push(255);
        memory(engine, names, out);
    }

    /// Appends what belongs to no engine, in names of its own.
    pub(crate) fn encode_between(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        names.enter(BETWEEN);
        for client in &self.clients {
            out.extend([client.submissions, client.open | u8::from(client.finished) << 2 | client.faults << 3]);
            out.push(client.room.map_or(255, |room| names.room(room)));
        }
        let left = &self.left;
        out.extend_from_slice(&left.aborts.to_le_bytes());
        out.extend_from_slice(&left.preempts.to_le_bytes());
        out.extend(left.flushes);
        out.extend([left.losses, left.duplicates, left.reorders, left.slow, left.part_failures]);
        for link in &self.links {
            for message in link {
                encode_message(message, names, out);
            }
            out.push(255);
        }
        for (engine, timer) in &self.timers {
            names.enter(TIMERS + engine);
            let life = names.life(timer.request, timer.life);
            out.extend([*engine, timer.request.0 as u8, life, u8::from(timer.wait == Wait::Drain)]);
        }
        out.push(255);
    }
}

/// Places where things are named that are not an engine's own: what it has on the network at its peer, what is between
/// engines, and lives of which timers of each engine tell.
pub(crate) const PEER: u8 = 2;
const BETWEEN: u8 = 3;
const TIMERS: u8 = 4;

/// Appends which things that were named apart are the same: of each that is named where it is not at home, its number at
/// home, or the next ones for what its home does not know. `names` gives the names of a place.
pub(crate) fn ties<'a>(engines: usize, names: impl Fn(u8) -> &'a Renamer, out: &mut Vec<u8>) {
    let named = |place: u8, space: Space| names(place).named(place, space);
    let none = Names::default();
    let rooms = [named(0, Space::Room), if engines > 1 { named(1, Space::Room) } else { none }];
    tie(rooms[1], [rooms[0], none], out);
    tie(named(BETWEEN, Space::Room), rooms, out);
    for e in 0..engines as u8 {
        tie(named(TIMERS + e, Space::Life), [named(e, Space::Life), none], out);
    }
    for (page, block) in [(Space::DevicePage, Space::DeviceBlock), (Space::HostPage, Space::HostBlock)] {
        // A block is never named without its page.
        if named(PEER, page).is_empty() && named(BETWEEN, page).is_empty() {
            continue;
        }
        for space in [page, block] {
            let (home, sent) = (named(1, space), named(PEER, space));
            tie(sent, [home, none], out);
            tie(named(BETWEEN, space), [home, sent], out);
        }
    }
}

#[inline]
fn tie(things: Names<'_>, homes: [Names<'_>; 2], out: &mut Vec<u8>) {
    for own in 0..things.len() {
        let thing = things.at(own);
        let second = || homes[1].number(thing).map(|number| homes[0].len() + number);
        let known = homes[0].number(thing).or_else(second);
        let number = known.unwrap_or(homes[0].len() + homes[1].len() + own);
        out.push(u8::try_from(number).expect("a world of at most 255 things of a kind"));
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
    pairs(&run.op.pairs, (0, PEER), names, out);
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
