//! The exits of a request. All of them give back the same things; what differs is which pins outlive it.

use super::{Manager, Rejected, Role, TransferKind};
use crate::effect::{Ending, Failure};
use crate::ids::{Life, RequestId, Tier};
use crate::machine::request::{RequestEvent, RequestState};
use crate::rules::{Rule, RuleSite, Site};
use crate::tree::{Lease, NIL};

/// How a request leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Finish,
    Abort,
    Preempt,
}

impl Exit {
    fn pin_until_stored(self) -> RuleSite {
        Rule::PinUntilStored.at(match self {
            Exit::Finish => Site::Finish,
            Exit::Abort => Site::Abort,
            Exit::Preempt => Site::Preempt,
        })
    }

    fn pin_until_loaded(self) -> Option<RuleSite> {
        match self {
            Exit::Finish => None,
            Exit::Abort => Some(Rule::PinUntilLoaded.at(Site::Abort)),
            Exit::Preempt => Some(Rule::PinUntilLoaded.at(Site::Preempt)),
        }
    }
}

impl Manager {
    pub(super) fn abort(&mut self, request: RequestId) -> Result<(), Rejected> {
        let index = self.find(request)?;
        self.woken = true;
        if self.requests[index as usize].state == RequestState::Ended {
            self.apply(index, RequestEvent::End);
            self.release_again(index, Site::Abort);
            return Ok(());
        }
        match self.config.role {
            Role::Together => {
                self.leave(index, Exit::Abort);
                self.answer(index, Ending::Aborted);
                self.end(index);
            }
            Role::Prefill => self.stop_prefill(index, Ending::Aborted, Some(Site::PrefillAbort)),
            Role::Decode => self.stop_decode(index, Ending::Aborted, Site::Abort),
        }
        Ok(())
    }

    pub(super) fn preempt(&mut self, request: RequestId) -> Result<(), Rejected> {
        let index = self.find(request)?;
        let state = self.requests[index as usize].state;
        let takeable = matches!(state, RequestState::Ready | RequestState::Running);
        if self.config.role != Role::Together || !takeable {
            return Err(Rejected::NotPreemptible(request));
        }
        self.leave(index, Exit::Preempt);
        let entry = &mut self.requests[index as usize];
        entry.life = Life(entry.life.0 + 1);
        entry.restart();
        self.apply(index, RequestEvent::Preempt);
        self.order.retain(|&other| other != index);
        self.order.insert(0, index);
        self.woken = true;
        Ok(())
    }

    /// Ends a request whose reload failed.
    pub(super) fn fail(&mut self, index: u32) {
        if self.config.role == Role::Prefill {
            self.stop_prefill(index, Ending::Failed(Failure::Device), Some(Site::PrefillAbort));
            return;
        }
        self.leave(index, Exit::Abort);
        self.answer(index, Ending::Failed(Failure::Device));
        self.end(index);
    }

    /// Gives back everything a request holds. Pins of copies under way outlive it.
    pub(super) fn leave(&mut self, index: u32, exit: Exit) {
        self.submit_late_load(index);
        self.drop_pins(index, exit);
        let request = &mut self.requests[index as usize];
        let (shared, own, out) = (request.shared, request.own, request.out);
        request.shared = NIL;
        request.own = NIL;
        request.out = NIL;
        request.loads.clear();
        request.released.clear();
        self.spare.keep_table(core::mem::take(&mut request.pages));
        for node in [out, own] {
            if node != NIL {
                self.note_released(index, node);
                let leases = &mut self.tree.node_mut(node).leases[Lease::Request as usize];
                *leases = leases.saturating_sub(1);
                self.doom(node);
            }
        }
        if shared != NIL {
            self.unlease(shared, Lease::Request);
        }
    }

    /// Looks at the pins that copies of this request hold; drops them where the rule is dropped.
    fn drop_pins(&mut self, index: u32, exit: Exit) {
        let (id, life) = (self.requests[index as usize].id, self.requests[index as usize].life);
        for record in 0..self.ledger.records() {
            let Some(transfer) = self.ledger.at(record) else { continue };
            if transfer.id.request != id || transfer.id.life != life || !transfer.leased {
                continue;
            }
            let (at, lease) = match transfer.kind {
                TransferKind::Store(_) => (Some(exit.pin_until_stored()), Lease::Store),
                TransferKind::Load(..) => (exit.pin_until_loaded(), Lease::Load),
                TransferKind::Send => (None, Lease::Request),
            };
            let Some(at) = at else { continue };
            if self.keeps(at) {
                self.held(at);
                continue;
            }
            let anchor = transfer.anchor;
            if let Some(transfer) = self.ledger.at_mut(record) {
                transfer.leased = false;
            }
            self.unlease(anchor, lease);
        }
    }

    fn note_released(&mut self, index: u32, node: crate::tree::NodeId) {
        let mut released = core::mem::take(&mut self.requests[index as usize].released);
        self.spare.refs.reserve(&mut released, self.tree.node(node).pages_in(Tier::DEVICE).len());
        self.refs_of(node, Tier::DEVICE, &mut released);
        self.requests[index as usize].released = released;
    }

    /// Takes a request off the queue for good.
    pub(super) fn end(&mut self, index: u32) {
        self.apply(index, RequestEvent::End);
        self.order.retain(|&other| other != index);
        let request = &mut self.requests[index as usize];
        self.spare.blocks.keep(core::mem::take(&mut request.blocks));
        if let Some(room) = request.room {
            self.by_room.remove(&room.0);
        }
    }
}
