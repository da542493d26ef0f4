//! The network between a prefill and a decode engine: one-sided writes that share the link, and messages in order.

use kvweft_core::{Effect, Input, Message, Outcome, PartKind, SendOp};

use crate::moves::What;
use crate::simulation::{Event, Simulation};

/// Writes under way, which share the link evenly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// Writes that wait for their fences.
    pub(crate) waiting: Vec<u32>,
    /// Writes under way, each with the service at which it is done.
    active: Vec<(u64, u32)>,
    /// What each write under way has been served so far, in thousandths of a byte.
    served: u64,
    since: u64,
    /// Tells a planned end from one that was planned before the number of writes changed.
    epoch: u32,
    /// Writes that have been posted and have not arrived at the link yet.
    pub(crate) posted: Vec<u32>,
    busy_since: u64,
}

impl Network {
    /// Brings the service up to a time.
    fn serve(&mut self, now: u64, mb_per_s: u64) {
        if let count @ 1.. = self.active.len() as u64 {
            self.served += (now - self.since) * mb_per_s / count;
        }
        self.since = now;
    }

    pub(crate) fn idle(&self) -> bool {
        self.active.is_empty() && self.posted.is_empty()
    }

    /// Every write that has not ended.
    pub(crate) fn writes(&self) -> impl Iterator<Item = u32> + '_ {
        let active = self.active.iter().map(|(_, id)| id);
        active.chain(&self.posted).chain(&self.waiting).copied()
    }
}

impl Simulation<'_> {
    pub(crate) fn queue_send(&mut self, e: usize, op: SendOp) {
        let id = self.new_move(What::Send(op), e);
        self.network.waiting.push(id);
    }

    /// Posts every write whose fences are met.
    pub(crate) fn start_sends(&mut self) {
        let mut at = 0;
        while at < self.network.waiting.len() {
            let id = self.network.waiting[at];
            let moved = &self.moves[id as usize];
            let What::Send(op) = &moved.what else { return };
            if !self.engines[moved.engine].met(&op.after) {
                at += 1;
                continue;
            }
            self.network.waiting.remove(at);
            self.network.posted.push(id);
            self.at(self.now + self.costs.network_latency_ns, Event::Posted { moved: id });
        }
    }

    /// A write has reached the link.
    pub(crate) fn posted(&mut self, id: u32) {
        self.network.posted.retain(|other| *other != id);
        self.begin_contents(id);
        let bytes = self.moves[id as usize].bytes();
        self.network.serve(self.now, self.costs.network_mb_per_s);
        if self.network.active.is_empty() {
            self.network.busy_since = self.now;
        }
        self.network.active.push((self.network.served + bytes * 1000, id));
        self.plan_network();
    }

    /// Plans the end of the write that will be done first.
    fn plan_network(&mut self) {
        self.network.epoch = self.network.epoch.wrapping_add(1);
        let Some(first) = self.network.active.iter().map(|(done, _)| *done).min() else { return };
        let left = u128::from(first.saturating_sub(self.network.served)) * self.network.active.len() as u128;
        let took = left.div_ceil(u128::from(self.costs.network_mb_per_s)) as u64;
        self.at(self.now + took, Event::Sent { epoch: self.network.epoch });
    }

    /// The write that was planned to be done first is done.
    pub(crate) fn sent(&mut self, epoch: u32) {
        if epoch != self.network.epoch {
            return;
        }
        self.network.serve(self.now, self.costs.network_mb_per_s);
        let first = (0..self.network.active.len()).min_by_key(|at| self.network.active[*at].0).expect("it was planned");
        let (_, id) = self.network.active.remove(first);
        if self.network.active.is_empty() {
            self.report.links.network.busy_ns += self.now - self.network.busy_since;
        }
        self.plan_network();
        let failed = self.strikes(self.settings.faults.fail_permille);
        self.report.faults.failed_parts += u64::from(failed);
        self.moves[id as usize].failed = failed;
        self.end_contents(id);
        let moved = &mut self.moves[id as usize];
        moved.landed = vec![self.now; usize::from(self.engines[moved.engine].layers)];
        let (e, bytes, pages) = (moved.engine, moved.bytes(), moved.pairs().len() as u64);
        let link = &mut self.report.links.network;
        link.operations += 1;
        link.pages += pages;
        link.bytes += bytes;
        self.bytes_ended += bytes;
        let What::Send(op) = &self.moves[id as usize].what else { return };
        let (transfer, part, room, metadata) = (op.transfer, op.part, op.room, op.metadata);
        self.finish_move(id);
        if let (PartKind::Metadata, Some(slot), false) = (part.kind, metadata, failed) {
            self.input(1 - e, Input::Metadata { slot, room });
        }
        let outcome = if failed { Outcome::Failed } else { Outcome::Done };
        self.input(e, Input::Completed { transfer, part, outcome });
    }

    pub(crate) fn queue_message(&mut self, e: usize, message: Message) {
        if self.strikes(self.settings.faults.lose_permille) {
            self.report.faults.lost_messages += 1;
            self.engines[e].manager.recycle(Effect::Message(message));
            return;
        }
        self.links[1 - e].push_back(message);
        self.at(self.now + self.costs.message_ns, Event::Deliver { engine: 1 - e as u8 });
    }

    pub(crate) fn deliver(&mut self, e: usize) {
        let message = self.links[e].pop_front().expect("it was sent");
        self.input(e, Input::Peer { life: message.life, message: &message });
        self.engines[1 - e].manager.recycle(Effect::Message(message));
    }
}
