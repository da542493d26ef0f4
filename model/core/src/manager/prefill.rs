//! The prefill role: sending what was computed, and who is told how it ended.

use alloc::vec::Vec;

use super::leave::Exit;
use super::{Manager, Role, TransferKind};
use crate::effect::{Body, Effect, Ending, Failure, Fence, FenceOn, Message, MovedPart, Pair, SendOp, Status};
use crate::geometry::{Component, Layout};
use crate::ids::{BlockRef, MetadataSlot, Part, PartKind, Rank, Room, StepId, TransferId};
use crate::input::Outcome;
use crate::machine::request::{RequestEvent, RequestState};
use crate::rules::{Rule, Site};

use super::records::{KV_PARTS_MAX, part_bit};

const METADATA: u128 = 2;
const INDEX_K: u128 = 4;

impl Manager {
    pub(super) fn peer(&mut self, message: &Message) {
        match (&message.body, self.config.role) {
            (Body::Reserved { pages, metadata, layouts }, Role::Prefill) => {
                self.peer_reserved(message, pages, *metadata, layouts);
            }
            (Body::Abort, Role::Prefill) => self.peer_abort(message),
            (Body::Status(status), Role::Decode) => self.peer_status(message, *status),
            (Body::Drained, Role::Decode) => self.peer_drained(message),
            (Body::Reserved { .. } | Body::Abort | Body::Status(_) | Body::Drained, _) => {}
        }
    }

    fn peer_reserved(
        &mut self,
        message: &Message,
        pages: &[BlockRef],
        row: MetadataSlot,
        layouts: &[(Component, Layout)],
    ) {
        let Some(&index) = self.by_room.get(&message.room.0) else {
            let status = self.concluded_as(message.room).unwrap_or(Status::Failed);
            self.conclude(message.room, status);
            self.tell(message.room, message.request, Body::Status(status));
            return;
        };
        let state = self.requests[index as usize].state;
        if !self.apply(index, RequestEvent::PeerReserved) {
            if state == RequestState::Sending && self.requests[index as usize].status_sent {
                self.tell(message.room, message.request, Body::Status(Status::Success));
            }
            return;
        }
        let own = self.config.geometry.components.iter().map(|c| (c.component, c.layout));
        if !own.eq(layouts.iter().copied()) {
            let at = Rule::PeersAgreeOnLayout.at(Site::Handshake);
            if self.keeps(at) {
                self.held(at);
                self.tell(message.room, message.request, Body::Status(Status::Refused));
                self.conclude(message.room, Status::Refused);
                self.answer(index, Ending::Failed(Failure::Layout));
                self.end(index);
                return;
            }
        }
        let request = &mut self.requests[index as usize];
        request.peer_pages.clear();
        request.peer_pages.extend_from_slice(pages);
        request.peer_layouts.clear();
        request.peer_layouts.extend_from_slice(layouts);
        request.metadata = Some(row);
        self.woken = true;
    }

    fn peer_abort(&mut self, message: &Message) {
        let Some(&index) = self.by_room.get(&message.room.0) else {
            self.conclude(message.room, Status::Failed);
            self.tell(message.room, message.request, Body::Drained);
            return;
        };
        self.requests[index as usize].settling.owes_drained = true;
        if self.requests[index as usize].state == RequestState::Draining {
            return;
        }
        self.stop_prefill(index, Ending::Aborted, None);
        self.woken = true;
    }

    /// Cached pages of a prompt go out before those that are computed.
    pub(super) fn send_cached(&mut self, index: u32, from: u32, to: u32) {
        if from == to {
            return;
        }
        let mut after = self.spare.fences.take(self.requests[index as usize].loads.len());
        self.add_load_fences(index, &mut after);
        let handle = if from == 0 { 0 } else { self.next_kv_part(index) };
        self.post(index, Part { rank: Rank(0), kind: PartKind::Kv, handle }, from as usize, to as usize, after);
    }

    /// Sends the pages of the chunk that `step` computes; with the last one, index keys and metadata.
    pub(super) fn send_chunk(&mut self, index: u32, from: usize, to: usize, step: StepId, last: bool) {
        if to > from {
            let handle = self.next_kv_part(index);
            let after = self.step_fence(step);
            self.post(index, Part { rank: Rank(0), kind: PartKind::Kv, handle }, from, to, after);
        }
        if !last {
            return;
        }
        let has_state = self.config.geometry.has_index();
        if has_state && self.keeps(Rule::IndexWithKv.at(Site::Send)) {
            self.held(Rule::IndexWithKv.at(Site::Send));
            let mut after = self.step_fence(step);
            self.add_load_fences(index, &mut after);
            self.post(index, Part { rank: Rank(0), kind: PartKind::IndexK, handle: 0 }, 0, to, after);
        }
        let behind_state = !self.keeps(Rule::MetadataNotBehindState.at(Site::Send));
        if !has_state {
            self.held(Rule::MetadataNotBehindState.at(Site::Send));
        }
        if has_state || !behind_state {
            let mut after = self.spare.fences.take(1);
            after.push(Fence { on: FenceOn::Step(step), owed_to: Rule::SendWaitsWrites.at(Site::Forward) });
            self.post(index, Part { rank: Rank(0), kind: PartKind::Metadata, handle: 0 }, 0, 0, after);
        }
    }

    /// The number of the next part of computed KV pages; 0 stands for those that were cached at first.
    fn next_kv_part(&self, index: u32) -> u32 {
        let posted =
            self.requests[index as usize].send.and_then(|id| self.ledger.get(id)).map_or(0, |send| send.posted);
        (u128::BITS - (posted >> 3).leading_zeros()).max(1)
    }

    /// Pages that one step computes at most, so that a transfer has no more parts than can be told apart.
    pub(super) fn chunk_pages(&self, index: u32) -> u32 {
        let (chunk, pages) = (self.config.chunk_pages, self.requests[index as usize].pages.len() as u32);
        if chunk == 0 || self.config.role != Role::Prefill {
            chunk
        } else {
            chunk.max(pages.div_ceil(KV_PARTS_MAX - 4))
        }
    }

    fn step_fence(&mut self, step: StepId) -> Vec<Fence> {
        let mut after = self.spare.fences.take(4);
        let owed_to = Rule::SendWaitsWrites.at(Site::Forward);
        if self.keeps(owed_to) {
            after.push(Fence { on: FenceOn::Step(step), owed_to });
        }
        after
    }

    fn add_load_fences(&self, index: u32, after: &mut Vec<Fence>) {
        let owed_to = Rule::SendWaitsWrites.at(Site::Reload);
        for &(id, _) in &self.requests[index as usize].loads {
            let Some(transfer) = self.ledger.get(id) else { continue };
            if let TransferKind::Load(slot, generation) = transfer.kind
                && self.keeps(owed_to)
            {
                after.push(Fence { on: FenceOn::Load(slot, generation), owed_to });
            }
        }
    }

    fn post(&mut self, index: u32, part: Part, from: usize, to: usize, after: Vec<Fence>) {
        let request = &self.requests[index as usize];
        let (id, life, room) = (request.id, request.life, request.room.expect("a split request has a room"));
        let transfer = match request.send {
            Some(transfer) => transfer,
            None => self.ledger.open(id, life, TransferKind::Send),
        };
        self.requests[index as usize].send = Some(transfer);
        if let Some(record) = self.ledger.get_mut(transfer) {
            record.posted |= part_bit(part);
        }
        let mut pairs = self.spare.pairs.take(to - from);
        let request = &self.requests[index as usize];
        // Where `evict-skips-leased` is dropped, the request may have lost pages: what is not there is not sent.
        let ends = request.pages.iter().zip(&request.peer_pages).take(to).skip(from);
        pairs.extend(ends.map(|(&from, &to)| Pair { from, to }));
        let metadata = if part.kind == PartKind::Metadata { request.metadata } else { None };
        let parts = self.send_parts(index, part.kind);
        self.emit(Effect::Send(SendOp { transfer, room, part, after, pairs, parts, metadata }));
    }

    fn send_parts(&mut self, index: u32, kind: PartKind) -> Vec<MovedPart> {
        let wanted = match kind {
            PartKind::Kv => Component::Kv,
            PartKind::IndexK => Component::IndexK,
            PartKind::Whole | PartKind::Metadata => return Vec::new(),
        };
        let at = Rule::SendMovesPoolLayout.at(Site::Send);
        let moves_pool = self.keeps(at);
        let mut parts = self.spare.parts.take(self.config.geometry.components.len());
        let request = &self.requests[index as usize];
        for (entry, &(_, to)) in self.config.geometry.components.iter().zip(&request.peer_layouts) {
            if entry.component == wanted {
                let from = entry.layout;
                let moved = if moves_pool { from } else { from.class_default(wanted) };
                parts.push(MovedPart { component: wanted, layers: entry.layers, from, moved, to });
            }
        }
        if parts.iter().any(|part| part.from.class_default(wanted) != part.from) {
            self.held(at);
        }
        parts
    }

    /// The last step of the prompt has ended: only the transfer is left.
    pub(super) fn prefill_computed(&mut self, index: u32) {
        let at = Rule::PinUntilSent.at(Site::Finish);
        if self.keeps(at) {
            if self.unsettled(index) != 0 {
                self.held(at);
            }
        } else {
            self.leave(index, Exit::Finish);
            self.requests[index as usize].settling.released = true;
        }
        self.settle_send(index);
    }

    fn unsettled(&self, index: u32) -> u128 {
        let transfer = self.requests[index as usize].send.and_then(|id| self.ledger.get(id));
        transfer.map_or(0, |transfer| {
            if self.keeps(Rule::CompletionIdempotent.at(Site::Part)) {
                transfer.posted & !transfer.settled
            } else {
                u128::from(transfer.posted.count_ones().saturating_sub(transfer.reports))
            }
        })
    }

    pub(super) fn send_failed(&mut self, id: TransferId) {
        if let Some(transfer) = self.ledger.get_mut(id) {
            transfer.settled = transfer.posted;
            transfer.arrived = 0;
        }
        self.part_settled(id);
    }

    pub(super) fn part_completed(&mut self, id: TransferId, part: Part, outcome: Outcome) {
        let at = Rule::CompletionIdempotent.at(Site::Part);
        let bit = part_bit(part);
        let Some(transfer) = self.ledger.get_mut(id) else { return };
        let again = transfer.settled & bit != 0;
        transfer.reports += 1;
        transfer.settled |= bit;
        if outcome == Outcome::Done && !again {
            transfer.arrived |= bit;
        }
        if again {
            self.held(at);
            if self.keeps(at) {
                return;
            }
        }
        self.part_settled(id);
    }

    /// Whether the report that `part`, of KV, is done would only be remembered until the index keys of the transfer are
    /// reported, and the other way round: nothing can be said of the transfer, and nothing let go, before both have come.
    /// That the report also wakes the queue is left aside.
    pub fn index_decides(&self, id: TransferId, part: Part) -> bool {
        let Some(transfer) = self.ledger.get(id) else { return false };
        let needed = [Site::Kv, Site::IndexK].iter().all(|&site| self.keeps(Rule::SuccessNeedsAllParts.at(site)));
        let waits = needed && self.keeps(Rule::CompletionIdempotent.at(Site::Part));
        let index_to_come = transfer.posted & INDEX_K != 0 && transfer.settled & INDEX_K == 0;
        let new = transfer.settled & part_bit(part) == 0 && transfer.settled == transfer.arrived;
        waits && index_to_come && new && part.kind == PartKind::Kv && transfer.kind == TransferKind::Send
    }

    fn part_settled(&mut self, id: TransferId) {
        let Some(&index) = self.by_id.get(&id.request.0) else { return };
        if self.requests[index as usize].send == Some(id) {
            self.settle_send(index);
            self.woken = true;
        }
    }

    /// Says how the transfer ended as soon as that is known, and lets go when nothing of it is outstanding.
    fn settle_send(&mut self, index: u32) {
        let Some(id) = self.requests[index as usize].send else { return };
        let Some(transfer) = self.ledger.get(id) else { return };
        let failed = transfer.settled & !transfer.arrived != 0;
        let state = self.requests[index as usize].state;
        if failed && state != RequestState::Draining {
            self.stop_prefill(index, Ending::Failed(Failure::Device), Some(Site::SendFailure));
            return;
        }
        if state == RequestState::Draining {
            if self.unsettled(index) == 0 {
                self.stopped(index);
            }
            return;
        }
        if state != RequestState::Sending {
            return;
        }
        let (request, room) = (self.requests[index as usize].id, self.requests[index as usize].room);
        let room = room.expect("a split request has a room");
        if !self.requests[index as usize].status_sent && self.arrived(index) {
            self.requests[index as usize].status_sent = true;
            self.tell(room, request, Body::Status(Status::Success));
        }
        if self.requests[index as usize].status_sent && self.unsettled(index) == 0 {
            self.ledger.close(id);
            if !self.requests[index as usize].settling.released {
                self.leave(index, Exit::Finish);
            }
            self.conclude(room, Status::Success);
            self.answer(index, Ending::Finished);
            self.end(index);
        }
    }

    /// Whether KV and index keys have arrived, as far as the kept rules ask.
    fn arrived(&mut self, index: u32) -> bool {
        let Some(transfer) = self.requests[index as usize].send.and_then(|id| self.ledger.get(id)) else {
            return false;
        };
        let (posted, settled, reports) = (transfer.posted & !METADATA, transfer.settled, transfer.reports);
        if !self.keeps(Rule::CompletionIdempotent.at(Site::Part)) {
            return reports >= posted.count_ones();
        }
        let mut missing = posted & !settled;
        for (site, bits) in [(Site::Kv, !(METADATA | INDEX_K)), (Site::IndexK, INDEX_K)] {
            let at = Rule::SuccessNeedsAllParts.at(site);
            if missing & bits == 0 {
                continue;
            }
            if !self.keeps(at) {
                missing &= !bits;
            } else if missing & !bits == 0 {
                self.held(at);
            }
        }
        missing == 0
    }

    /// Ends a request for its client. Its pages stay until nothing of its transfer is outstanding.
    pub(super) fn stop_prefill(&mut self, index: u32, ending: Ending, tell: Option<Site>) {
        self.answer(index, ending);
        let settling = &mut self.requests[index as usize].settling;
        settling.owes_failed = settling.owes_failed.or(tell);
        if self.unsettled(index) == 0 {
            self.stopped(index);
            return;
        }
        if self.requests[index as usize].state != RequestState::Draining {
            self.apply(index, RequestEvent::Stop);
        }
        let site = if tell == Some(Site::SendFailure) { Site::Failure } else { Site::Abort };
        let at = Rule::PinUntilSent.at(site);
        if self.keeps(at) {
            self.held(at);
        } else if !self.requests[index as usize].settling.released {
            self.leave(index, Exit::Abort);
            self.requests[index as usize].settling.released = true;
        }
    }

    /// Nothing of a stopped request is outstanding any more.
    fn stopped(&mut self, index: u32) {
        let settling = self.requests[index as usize].settling;
        let request = self.requests[index as usize].id;
        if !settling.released {
            self.leave(index, Exit::Abort);
        }
        if let Some(id) = self.requests[index as usize].send {
            self.ledger.close(id);
        }
        let room = self.requests[index as usize].room.expect("a split request has a room");
        self.conclude(room, Status::Failed);
        if settling.owes_drained {
            self.tell(room, request, Body::Drained);
        } else if let Some(site) = settling.owes_failed {
            let at = Rule::FailureReachesPeer.at(site);
            self.held(at);
            if self.keeps(at) {
                self.tell(room, request, Body::Status(Status::Failed));
            }
        }
        self.end(index);
    }

    /// How a room has ended, as far as that is remembered.
    pub(super) fn concluded_as(&self, room: Room) -> Option<Status> {
        self.concluded.iter().find(|(known, _)| *known == room).map(|&(_, status)| status)
    }

    /// Remembers how a room has ended: what a peer was told stays true.
    fn conclude(&mut self, room: Room, status: Status) {
        if self.concluded_as(room).is_some() {
            return;
        }
        while self.concluded.len() >= self.config.concluded_kept.max(1) as usize {
            self.concluded.pop_front();
        }
        self.concluded.push_back((room, status));
    }

    pub(super) fn tell(&mut self, room: Room, request: crate::ids::RequestId, body: Body) {
        self.emit(Effect::Message(Message { life: self.life, room, request, body }));
    }
}
