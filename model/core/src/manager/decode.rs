//! The decode role: reserving pages for the peer to fill, and holding them until it has stopped.

use super::Manager;
use super::leave::Exit;
use crate::effect::{Body, Effect, Ending, Failure, Message, Status, Timer, Wait, Wake};
use crate::ids::{MetadataSlot, Room, Tier};
use crate::machine::request::{RequestEvent, RequestState};
use crate::rules::{Rule, Site};
use crate::tree::{Lease, NIL, Residence};

impl Manager {
    /// Reserves all pages and a metadata row, and tells the prefill engine where to write.
    pub(super) fn admit_decode(&mut self, index: u32) -> bool {
        let Some(row) = self.metadata.iter().position(|row| row.owner == NIL) else { return false };
        let request = &self.requests[index as usize];
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let mut pages = request.pages_needed;
        if !self.keeps(Rule::ReserveBeforeHold.at(Site::Admit)) {
            pages = request.prompt_tokens.div_ceil(page_tokens);
        }
        if !self.make_room(Tier::DEVICE, pages) {
            return false;
        }
        let node = self.tree.detached(NIL);
        self.tree.node_mut(node).leases[Lease::Request as usize] = 1;
        self.take_pages(node, Tier::DEVICE, pages);
        self.tree.set_residence(node, Tier::DEVICE, Residence::Filling);
        self.metadata[row].owner = index;
        let request = &mut self.requests[index as usize];
        request.out = node;
        request.metadata = Some(MetadataSlot(row as u32));
        self.fill_page_table(index);
        let prompt_pages = self.requests[index as usize].prompt_tokens.div_ceil(page_tokens) as usize;
        self.fill_pages(index, 0, prompt_pages);
        self.progress += 1;
        self.apply(index, RequestEvent::AdmitForPeer);
        self.tell_reserved(index);
        self.arm(index, Wait::Receive, Site::Receive);
        true
    }

    fn tell_reserved(&mut self, index: u32) {
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let components = &self.config.geometry.components;
        let mut layouts = self.spare.layouts.take(components.len());
        layouts.extend(components.iter().map(|c| (c.component, c.layout)));
        let request = &self.requests[index as usize];
        let prompt_pages = request.prompt_tokens.div_ceil(page_tokens) as usize;
        let metadata = request.metadata.expect("reserved with the pages");
        let mut pages = self.spare.refs.take(prompt_pages);
        pages.extend_from_slice(&request.pages[..prompt_pages]);
        let body = Body::Reserved { pages, metadata, layouts };
        let (room, id) = (request.room.expect("a split request has a room"), request.id);
        self.tell(room, id, body);
    }

    fn timer(&self, index: u32, wait: Wait) -> Timer {
        let request = &self.requests[index as usize];
        Timer { request: request.id, life: request.life, wait }
    }

    fn arm(&mut self, index: u32, wait: Wait, site: Site) {
        let at = Rule::WaitsAreBounded.at(site);
        if self.config.deadlines && self.keeps(at) {
            self.emit(Effect::Arm(self.timer(index, wait)));
        }
    }

    fn disarm(&mut self, index: u32, wait: Wait) {
        if self.config.deadlines {
            self.emit(Effect::Disarm(self.timer(index, wait)));
        }
    }

    /// Whether a request waits for nothing but this row of the metadata buffer.
    pub fn awaits_metadata(&self, slot: MetadataSlot) -> bool {
        let owner = self.metadata.get(slot.0 as usize).map_or(NIL, |row| row.owner);
        owner != NIL && self.requests[owner as usize].arrived
    }

    pub(super) fn metadata_landed(&mut self, slot: MetadataSlot, room: Room) {
        let Some(row) = self.metadata.get_mut(slot.0 as usize) else { return };
        row.seen = Some(room);
        let owner = row.owner;
        if self.awaits_metadata(slot) {
            self.try_arrive(owner);
        }
    }

    /// The request of a message. With the rule dropped that a report names its life, the present one will do.
    fn addressee(&mut self, message: &Message) -> Option<u32> {
        if let Some(&index) = self.by_room.get(&message.room.0) {
            return Some(index);
        }
        let index = *self.by_id.get(&message.request.0)?;
        let request = &self.requests[index as usize];
        if request.state == RequestState::Ended || request.room == Some(message.room) {
            return None;
        }
        let at = Rule::CompletionNamesLife.at(Site::Status);
        self.held(at);
        (!self.keeps(at)).then_some(index)
    }

    pub(super) fn peer_status(&mut self, message: &Message, status: Status) {
        let Some(index) = self.addressee(message) else { return };
        match (self.requests[index as usize].state, status) {
            (RequestState::Waiting, Status::Success) => {
                self.requests[index as usize].arrived = true;
                self.try_arrive(index);
            }
            (RequestState::Waiting, Status::Failed) => self.receive_failed(index, Failure::Peer),
            (RequestState::Waiting, Status::Refused) => self.receive_failed(index, Failure::Layout),
            // The writer has stopped: that is what a draining request waits for.
            (RequestState::Draining, Status::Failed | Status::Refused) => self.drained(index),
            (RequestState::Draining, Status::Success) => {
                self.apply(index, RequestEvent::Arrive);
            }
            _ => {}
        }
    }

    /// Lets the request run once its status and its metadata are both there.
    fn try_arrive(&mut self, index: u32) {
        if self.requests[index as usize].state != RequestState::Waiting {
            return;
        }
        let request = &self.requests[index as usize];
        let slot = request.metadata.expect("reserved with the pages");
        let seen = self.metadata[slot.0 as usize].seen;
        let needs_metadata = Rule::SuccessNeedsAllParts.at(Site::Metadata);
        let names_room = Rule::MetadataNamesRoom.at(Site::Receive);
        let missing = seen != request.room;
        if missing && self.keeps(needs_metadata) && (seen.is_none() || self.keeps(names_room)) {
            self.held(if seen.is_none() { needs_metadata } else { names_room });
            self.held(needs_metadata);
            return;
        }
        self.apply(index, RequestEvent::Arrive);
        self.disarm(index, Wait::Receive);
        let request = &self.requests[index as usize];
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let prompt_pages = request.prompt_tokens.div_ceil(page_tokens) as usize;
        let (id, life) = (request.id, request.life);
        let mut pages = self.spare.refs.take(prompt_pages);
        pages.extend_from_slice(&self.requests[index as usize].pages[..prompt_pages]);
        self.emit(Effect::Wake(Wake { request: id, life, pages, metadata: Some(slot) }));
        self.free_row(index);
        let request = &mut self.requests[index as usize];
        request.computed = request.prompt_tokens;
        request.launched = request.prompt_tokens;
        self.wake(Site::Receive);
    }

    fn free_row(&mut self, index: u32) {
        if let Some(slot) = self.requests[index as usize].metadata.take() {
            self.metadata[slot.0 as usize].owner = NIL;
        }
    }

    fn receive_failed(&mut self, index: u32, failure: Failure) {
        self.answer(index, Ending::Failed(failure));
        self.disarm(index, Wait::Receive);
        self.free_row(index);
        self.leave(index, Exit::Abort);
        self.end(index);
        self.woken = true;
    }

    /// Ends a request for its client; its pages stay until the writer is known to have stopped.
    pub(super) fn stop_decode(&mut self, index: u32, ending: Ending, site: Site) {
        self.answer(index, ending);
        let state = self.requests[index as usize].state;
        match state {
            RequestState::Queued | RequestState::Waiting => {
                if state == RequestState::Waiting {
                    self.disarm(index, Wait::Receive);
                }
                self.tell_abort(index);
                self.apply(index, RequestEvent::Stop);
                let at = Rule::HoldUntilDrained.at(site);
                if self.keeps(at) {
                    if state == RequestState::Waiting {
                        self.held(at);
                    }
                    self.arm(index, Wait::Drain, Site::Drain);
                } else {
                    self.free_row(index);
                    self.leave(index, Exit::Abort);
                    self.end(index);
                }
            }
            RequestState::Running => {
                // The step in flight still writes its pages, and the peer's writes cannot be ordered behind it.
                self.requests[index as usize].settling.step_in_flight = true;
                self.apply(index, RequestEvent::Stop);
            }
            RequestState::Draining | RequestState::Ended => {}
            RequestState::Bootstrapping | RequestState::Ready | RequestState::Idle | RequestState::Sending => {
                self.leave(index, Exit::Abort);
                self.end(index);
            }
        }
        self.woken = true;
    }

    fn tell_abort(&mut self, index: u32) {
        let at = Rule::FailureReachesPeer.at(Site::DecodeAbort);
        self.held(at);
        if self.keeps(at) {
            let request = &self.requests[index as usize];
            let (room, id) = (request.room.expect("a split request has a room"), request.id);
            self.tell(room, id, Body::Abort);
        }
    }

    pub(super) fn decode_step_drained(&mut self, index: u32) {
        if self.requests[index as usize].settling.step_in_flight {
            self.leave(index, Exit::Abort);
            self.end(index);
        }
    }

    pub(super) fn peer_drained(&mut self, message: &Message) {
        if let Some(&index) = self.by_room.get(&message.room.0) {
            if self.requests[index as usize].state == RequestState::Draining {
                self.drained(index);
            }
            return;
        }
        // A second word that the writer has stopped, for a room that has ended here.
        if let Some(&index) = self.by_id.get(&message.request.0)
            && self.requests[index as usize].room == Some(message.room)
            && self.requests[index as usize].state == RequestState::Ended
        {
            self.apply(index, RequestEvent::End);
            self.release_again(index, Site::Drain);
        }
    }

    /// The writer has stopped: the pages of a draining request can be used again.
    fn drained(&mut self, index: u32) {
        if self.requests[index as usize].settling.step_in_flight {
            // The cache had arrived before, and what the request waits for is its own step.
            return;
        }
        self.disarm(index, Wait::Drain);
        self.free_row(index);
        self.leave(index, Exit::Abort);
        self.end(index);
        self.wake(Site::Drain);
    }

    pub(super) fn decode_deadline(&mut self, timer: Timer, polled: bool) {
        let Some(&index) = self.by_id.get(&timer.request.0) else { return };
        let request = &self.requests[index as usize];
        if request.life != timer.life {
            return;
        }
        match (timer.wait, request.state) {
            (Wait::Receive, RequestState::Waiting) => {
                let at = Rule::CompletionBeforeDeadline.at(Site::Receive);
                self.held(Rule::WaitsAreBounded.at(Site::Receive));
                if self.keeps(at) && !polled {
                    self.emit(Effect::Poll(timer));
                } else {
                    self.receive_expired(index);
                }
            }
            (Wait::Receive, _) => {
                if polled {
                    self.held(Rule::CompletionBeforeDeadline.at(Site::Receive));
                }
            }
            (Wait::Drain, RequestState::Draining) => {
                self.held(Rule::WaitsAreBounded.at(Site::Drain));
                self.tell_abort(index);
                self.arm(index, Wait::Drain, Site::Drain);
            }
            (Wait::Drain, _) => {}
        }
    }

    fn receive_expired(&mut self, index: u32) {
        let at = Rule::LostStatusRecovers.at(Site::Receive);
        if self.keeps(at) && self.requests[index as usize].queries < self.config.status_queries {
            self.held(at);
            self.requests[index as usize].queries += 1;
            self.tell_reserved(index);
            self.arm(index, Wait::Receive, Site::Receive);
            return;
        }
        self.stop_decode(index, Ending::Timeout, Site::Deadline);
    }
}
