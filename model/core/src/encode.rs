//! The canonical encoding of a manager: equal bytes mean equal states up to the names of things.
//!
//! Pages, generations, lives, transfers, rooms and steps are numbered by where they are first met in a fixed walk over
//! the state. No step of the manager chooses by such a number, so renaming commutes with stepping, the state space is
//! finite, and what repeats is seen to repeat.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::effect::Status;
use crate::ids::{BlockRef, Generation, Life, PageId, RequestId, Room, StepId, Tier, TransferId};
use crate::manager::{Manager, Request, TransferKind};
use crate::rules::{Rule, Site};
use crate::tree::{NIL, NodeId};

/// Numbers things by where they are first met. One per encoded state; several managers share it, each with its own
/// `place`.
#[derive(Clone, Debug, Default)]
pub struct Renamer {
    tables: Vec<Vec<u64>>,
    /// By place, names that were taken over; they come before those in `tables`.
    adopted: Vec<Option<Arc<Renamer>>>,
    place: u8,
}

/// What kind of thing a number names.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Space {
    DevicePage,
    HostPage,
    DeviceBlock,
    HostBlock,
    Transfer,
    Life,
    Step,
    EventGeneration,
    Room,
}

const SPACES: usize = 9;

impl Renamer {
    /// Forgets all names; keeps memory.
    pub fn clear(&mut self) {
        self.tables.iter_mut().for_each(Vec::clear);
        self.adopted.iter_mut().for_each(|part| *part = None);
        self.place = 0;
    }

    /// Which engine's names follow. Rooms are common to all.
    pub fn enter(&mut self, place: u8) {
        self.place = place;
    }

    /// The engine whose names are given now.
    pub fn place(&self) -> u8 {
        self.place
    }

    /// Takes over the names that were given to one engine, the present one, in an encoding of its own. It must be the
    /// first that names things of this engine. Rooms are common to all: `out` gets the number that each of them has here.
    pub fn adopt(&mut self, part: &Arc<Renamer>, out: &mut Vec<u8>) {
        let place = usize::from(self.place);
        if self.adopted.len() <= place {
            self.adopted.resize(place + 1, None);
        }
        self.adopted[place] = Some(Arc::clone(part));
        if place > 0 {
            let rooms = part.tables.get(Space::Room as usize);
            out.extend(rooms.into_iter().flatten().map(|&raw| self.number_in(Space::Room as usize, raw)));
        }
    }

    fn number(&mut self, space: Space, raw: u64) -> u8 {
        let place = if matches!(space, Space::Room) { 0 } else { usize::from(self.place) };
        self.number_in(place * SPACES + space as usize, raw)
    }

    fn number_in(&mut self, at: usize, raw: u64) -> u8 {
        let adopted = adopted(&self.adopted, at);
        if let Some(position) = adopted.iter().position(|&known| known == raw) {
            return short(position);
        }
        let before = adopted.len();
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, Vec::new);
        }
        let table = &mut self.tables[at];
        let position = table.iter().position(|&known| known == raw).unwrap_or_else(|| {
            table.push(raw);
            table.len() - 1
        });
        short(before + position)
    }

    /// The number of a page in one life of its slot; two bytes, page and generation.
    pub fn block(&mut self, block: BlockRef, out: &mut Vec<u8>) {
        let page = self.page(block.tier, block.page);
        let space = if block.tier == Tier::DEVICE { Space::DeviceBlock } else { Space::HostBlock };
        let raw = u64::from(block.page.0) << 32 | u64::from(block.generation.0);
        out.push(page);
        out.push(self.number(space, raw));
    }

    /// The number of a page.
    pub fn page(&mut self, tier: Tier, page: PageId) -> u8 {
        let space = if tier == Tier::DEVICE { Space::DevicePage } else { Space::HostPage };
        self.number(space, u64::from(page.0))
    }

    /// The page that has a number.
    ///
    /// # Panics
    /// If no page of the tier has it yet.
    pub fn numbered(&self, tier: Tier, number: usize) -> PageId {
        let space = if tier == Tier::DEVICE { Space::DevicePage } else { Space::HostPage };
        let at = usize::from(self.place) * SPACES + space as usize;
        let adopted = adopted(&self.adopted, at);
        let raw = adopted.get(number).copied().unwrap_or_else(|| self.tables[at][number - adopted.len()]);
        PageId(raw as u32)
    }

    /// The number of a transfer.
    pub fn transfer(&mut self, id: TransferId) -> u8 {
        self.number(Space::Transfer, u64::from(id.serial))
    }

    /// The number of a life of a request.
    pub fn life(&mut self, request: RequestId, life: Life) -> u8 {
        self.number(Space::Life, u64::from(request.0) << 32 | u64::from(life.0))
    }

    /// The number of a step.
    pub fn step(&mut self, step: StepId) -> u8 {
        self.number(Space::Step, u64::from(step.0))
    }

    /// The number of a room.
    pub fn room(&mut self, room: Room) -> u8 {
        self.number(Space::Room, u64::from(room.0))
    }

    /// The number of a generation of an event slot.
    pub fn event(&mut self, slot: u8, generation: Generation) -> u8 {
        self.number(Space::EventGeneration, u64::from(slot) << 32 | u64::from(generation.0))
    }
}

fn adopted(parts: &[Option<Arc<Renamer>>], at: usize) -> &[u64] {
    let part = parts.get(at / SPACES).and_then(Option::as_ref);
    part.and_then(|part| part.tables.get(at)).map_or(&[], Vec::as_slice)
}

fn short(position: usize) -> u8 {
    u8::try_from(position).ok().filter(|&number| number < 255).expect("a world of at most 254 things of a kind")
}

impl Manager {
    /// Appends the canonical encoding of the manager, without its static configuration.
    pub fn encode(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        let mut walk = Walk { manager: self, names, out, nodes: Vec::new() };
        walk.requests();
        walk.tree();
        walk.transfers();
        walk.slots_and_steps();
        walk.pools();
    }
}

/// One walk over a manager.
struct Walk<'a> {
    manager: &'a Manager,
    names: &'a mut Renamer,
    out: &'a mut Vec<u8>,
    /// Nodes by their number.
    nodes: Vec<NodeId>,
}

impl Walk<'_> {
    fn byte(&mut self, value: impl TryInto<u8>) {
        self.out.push(value.try_into().unwrap_or(u8::MAX));
    }

    /// A content. Worlds number theirs from 0; what does not fit is folded, for managers outside of worlds.
    fn block(&mut self, block: crate::ids::BlockHash) {
        let folded = (block.0 ^ block.0 >> 64) as u64;
        let short = if block.0 < 1 << 16 { block.0 as u16 } else { (folded ^ folded >> 48 ^ folded >> 16) as u16 };
        self.out.extend_from_slice(&short.to_le_bytes());
    }

    fn node_number(&mut self, node: NodeId) {
        if node == NIL {
            self.out.push(u8::MAX);
            return;
        }
        let position = self.nodes.iter().position(|&known| known == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        self.byte(position);
    }

    fn requests(&mut self) {
        // Requests are told apart by what their client called them, which is part of the scenario and never renamed.
        let mut by_id: Vec<(u32, u32)> = Vec::with_capacity(self.manager.requests.len());
        by_id.extend(self.manager.requests.iter().enumerate().map(|(i, r)| (r.id.0, i as u32)));
        by_id.sort_unstable();
        self.byte(by_id.len());
        for &(id, index) in &by_id {
            self.byte(id);
            self.request(&self.manager.requests[index as usize]);
        }
        self.byte(self.manager.order.len());
        for &index in &self.manager.order {
            self.byte(self.manager.requests[index as usize].id.0);
        }
    }

    fn request(&mut self, request: &Request) {
        self.byte(request.state as u8);
        let life = self.names.life(request.id, request.life);
        self.byte(life);
        self.byte(u8::from(request.answered));
        self.room(request.room);
        if request.state != crate::machine::request::RequestState::Ended {
            self.byte(request.blocks.len());
            for number in [request.pages_needed, request.prompt_tokens, request.output_tokens] {
                self.byte(number);
            }
            self.out.push(request.priority);
            for block in &request.blocks {
                self.block(*block);
            }
            self.byte(request.computed);
            self.byte(request.launched);
            for node in [request.shared, request.own, request.out] {
                self.node_number(node);
            }
            self.byte(request.pages.len());
            for &page in &request.pages {
                self.names.block(page, self.out);
            }
            self.byte(request.loads.len());
            for &(id, shared) in &request.loads {
                let id = self.names.transfer(id);
                self.out.extend([id, u8::from(shared)]);
            }
            self.byte(u8::from(request.late_load.is_some()));
            self.byte(request.peer_pages.len());
            self.byte(request.metadata.map_or(255, |slot| slot.0));
            self.transfer(request.send);
            let settling = request.settling;
            self.out.extend([
                u8::from(request.arrived),
                u8::from(request.status_sent),
                request.queries as u8,
                u8::from(settling.owes_drained),
                settling.owes_failed.map_or(0, |site| 1 + site as u8),
                u8::from(settling.released),
                u8::from(settling.step_in_flight),
            ]);
        }
        let rules = self.manager.config().rules;
        let released_twice = [Site::Abort, Site::Drain].iter().any(|&site| !rules.has(Rule::FreeOnce.at(site)));
        if released_twice {
            self.byte(request.released.len());
            for &page in &request.released {
                self.names.block(page, self.out);
            }
        }
    }

    fn room(&mut self, room: Option<Room>) {
        let number = room.map_or(255, |room| self.names.room(room));
        self.byte(number);
    }

    fn transfer(&mut self, id: Option<TransferId>) {
        let number = id.map_or(255, |id| self.names.transfer(id));
        self.byte(number);
    }

    /// Nodes in the tree by contents, then the detached ones that a request or a transfer names.
    fn tree(&mut self) {
        let tree = &self.manager.tree;
        let mut linked: Vec<NodeId> = tree.live().filter(|(_, node)| node.linked).map(|(id, _)| id).collect();
        linked.sort_unstable_by_key(|&id| tree.node(id).blocks[0]);
        self.byte(linked.len());
        for &id in &linked {
            self.node_number(id);
        }
        for transfer in self.sorted_transfers() {
            let record = self.manager.ledger.get(transfer).expect("just listed");
            self.node_number(record.anchor);
            for &node in &record.nodes {
                self.node_number(node);
            }
        }
        let mut at = 0;
        while at < self.nodes.len() {
            self.node(self.nodes[at]);
            at += 1;
        }
        self.byte(255);
        for tier in [Tier::DEVICE, Tier::HOST] {
            for id in self.manager.tree.listed(tier) {
                self.node_number(id);
            }
            self.byte(254);
        }
    }

    fn node(&mut self, id: NodeId) {
        let node = self.manager.tree.node(id);
        self.node_number(node.parent);
        self.out.push(
            u8::from(node.linked) | u8::from(node.doomed) << 1 | u8::from(node.live) << 2 | u8::from(node.broken) << 3,
        );
        self.byte(node.blocks.len());
        for block in &node.blocks {
            self.block(*block);
        }
        for (t, pages) in node.pages.iter().enumerate() {
            self.out.push(node.residence[t] as u8);
            self.byte(pages.len());
            for &page in pages {
                let page = self.names.page(Tier(t as u8), page);
                self.byte(page);
            }
        }
        for lease in node.leases {
            self.byte(lease);
        }
        for pending in [node.store, node.load] {
            let id = self.manager.ledger.at(pending).map(|transfer| transfer.id);
            self.transfer(id.filter(|_| pending != NIL));
        }
    }

    fn sorted_transfers(&self) -> Vec<TransferId> {
        let mut ids: Vec<TransferId> = self.manager.ledger.iter().map(|transfer| transfer.id).collect();
        ids.sort_unstable();
        ids
    }

    fn transfers(&mut self) {
        let ids = self.sorted_transfers();
        self.byte(ids.len());
        for id in ids {
            let transfer = self.manager.ledger.get(id).expect("just listed");
            self.transfer(Some(id));
            self.byte(id.request.0);
            let life = self.names.life(id.request, id.life);
            self.byte(life);
            match transfer.kind {
                TransferKind::Load(slot, generation) => {
                    let generation = self.names.event(slot.0, generation);
                    self.out.extend([0, slot.0, generation]);
                }
                TransferKind::Store(back) => self.out.extend([1, u8::from(back)]),
                TransferKind::Send => self.out.push(2),
            }
            self.out.push(u8::from(transfer.leased));
            self.node_number(transfer.anchor);
            self.byte(transfer.nodes.len());
            for &node in &transfer.nodes {
                self.node_number(node);
            }
            for bits in [u128::from(transfer.layers_ready), transfer.posted, transfer.settled, transfer.arrived] {
                self.out.extend_from_slice(&(bits as u16).to_le_bytes());
            }
            if !self.manager.config().rules.has(Rule::CompletionIdempotent.at(Site::Part)) {
                self.byte(transfer.reports);
            }
        }
    }

    fn slots_and_steps(&mut self) {
        let slots = self.manager.events.len();
        self.out.push(self.manager.next_event);
        for slot in 0..slots {
            let event = self.manager.events[slot];
            let generation = self.names.event(slot as u8, event.generation);
            self.byte(generation);
            if event.busy == NIL || event.busy == NIL - 1 {
                self.out.push((event.busy == NIL) as u8 + 253);
            } else {
                let id = self.manager.ledger.at(event.busy).map(|transfer| transfer.id);
                self.transfer(id);
            }
        }
        for row in &self.manager.metadata {
            let owner = if row.owner == NIL { 255 } else { self.manager.requests[row.owner as usize].id.0 };
            self.byte(owner);
            self.room(row.seen);
        }
        for launched in &self.manager.launched {
            let step = self.names.step(launched.step);
            self.byte(step);
            for &(index, life) in &launched.items {
                let request = self.manager.requests[index as usize].id;
                let life = self.names.life(request, life);
                self.byte(request.0);
                self.byte(life);
            }
        }
        self.byte(255);
        for &(room, status) in &self.manager.concluded {
            self.room(Some(room));
            self.out.push(match status {
                Status::Success => 0,
                Status::Failed => 1,
                Status::Refused => 2,
            });
        }
        self.byte(255);
    }

    fn pools(&mut self) {
        for (t, pool) in self.manager.pools.iter().enumerate() {
            let tier = Tier(t as u8);
            for &page in pool.free_list() {
                let number = self.names.page(tier, page);
                self.byte(number);
            }
            self.byte(255);
            // By the numbers the walk has given, so that generations are numbered in that order too.
            let mut pages: Vec<(u8, PageId)> = Vec::with_capacity(pool.pages() as usize);
            for page in (0..pool.pages()).map(PageId) {
                pages.push((self.names.page(tier, page), page));
            }
            pages.sort_unstable();
            for (_, page) in pages {
                self.names.block(pool.block(page), self.out);
                self.out.push(pool.slot(page).state as u8);
            }
        }
    }
}
