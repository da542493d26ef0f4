//! One-sided writes into the pages of the decode engine.

use std::sync::Arc;

use kvweft_core::{Outcome, Part, PartKind, SendOp, TransferId};
use kvweft_trace::event::{Event, Phase, Sum};
use kvweft_world::Operation;

use super::{Core, Engine, FROM_NIC, Report, Stopped, Stopping};
use crate::model::Model;
use crate::platform::{Cell, Platform};
use crate::pool::{Half, moved_words};

impl<P: Platform, M: Model> Engine<P, M> {
    /// Runs sends until the engine is told to end. Several threads may do so: parts of a transfer overtake each other.
    pub fn run_nic(&self) {
        while self.send_next() {}
    }

    /// Waits for a send whose fences are met, and runs it. Returns whether there was one before the engine was told to end.
    pub fn send_next(&self) -> bool {
        let Some(op) = self.take_send() else { return false };
        self.send(&op);
        let mut core = self.lock();
        core.running -= 1;
        drop(core);
        P::notify_all(&self.changed);
        true
    }

    /// A send that is under way fails.
    pub(crate) fn fail_send(&self, transfer: TransferId, part: Part) {
        self.lock().failing.push((transfer, part));
    }

    /// The next report of the network arrives a second time, behind the others.
    pub(crate) fn duplicate_report(&self) {
        let mut core = self.lock();
        let again = core.reports[FROM_NIC].front().cloned();
        core.reports[FROM_NIC].extend(again);
    }

    fn take_send(&self) -> Option<Arc<SendOp>> {
        let gate = self.parts.gate.as_ref();
        let mut core = self.lock();
        loop {
            let mut next = None;
            for (at, op) in core.nic.iter().enumerate() {
                let operation = first_operation(op);
                let unmet = op.after.iter().find(|fence| !core.met(fence));
                match unmet {
                    _ if !gate.allows(&operation) => {}
                    None => {
                        next = Some(at);
                        break;
                    }
                    Some(fence) => gate.held(&operation, crate::gate::Held { owed_to: fence.owed_to }),
                }
            }
            if let Some(at) = next {
                core.running += 1;
                return Some(core.nic.remove(at));
            }
            if core.stopping == Stopping::WhenIdle && self.is_idle(&core) {
                return None;
            }
            match self.wait(core) {
                Ok(next) => core = next,
                Err(Stopped) => return None,
            }
        }
    }

    fn send(&self, op: &SendOp) {
        let (transfer, part) = (op.transfer, op.part);
        if part.kind == PartKind::Metadata {
            let turn = self.turn(Operation::SendEnd { transfer, part });
            self.write_metadata(op);
            drop(turn);
            return;
        }
        let turn = self.turn(Operation::SendBegin { transfer, part });
        self.write_pages(op, Half::First);
        drop(turn);
        if self.told_to_fail(op) {
            return;
        }
        let turn = self.turn(Operation::SendEnd { transfer, part });
        let sums = self.write_pages(op, Half::Second);
        self.end_send(op, Outcome::Done, sent(op, Phase::End, sums));
        drop(turn);
    }

    /// Waits until the send may end or is told to fail; in that case it stays half written, and is reported.
    fn told_to_fail(&self, op: &SendOp) -> bool {
        let (transfer, part) = (op.transfer, op.part);
        let gate = self.parts.gate.as_ref();
        if gate.open() {
            return false;
        }
        let mut core = self.lock();
        loop {
            if let Some(at) = core.failing.iter().position(|&known| known == (transfer, part)) {
                core.failing.remove(at);
                drop(core);
                self.end_send(op, Outcome::Failed, Event::SendFailed { transfer, part });
                gate.done(&Operation::SendFail { transfer, part });
                return true;
            }
            if gate.allows(&Operation::SendEnd { transfer, part }) {
                return false;
            }
            match self.wait(core) {
                Ok(next) => core = next,
                Err(Stopped) => return false,
            }
        }
    }

    /// Half of every page of every layer; at the end, the sums of what was written.
    fn write_pages(&self, op: &SendOp, half: Half) -> Vec<Sum> {
        let peer = self.parts.peer.as_ref().expect("a prefill engine has a peer");
        if half == Half::First {
            self.parts.log.note(|| sent(op, Phase::Begin, Vec::new()));
        }
        let (mut moves, mut written) = (Vec::new(), Vec::new());
        for moved in &op.parts {
            for layer in (0..self.layers).filter(|&layer| moved.layers.has(layer)) {
                let units = (self.pools.unit(layer, moved.component), peer.pools.unit(layer, moved.component));
                let (Some(from), Some(to)) = units else { continue };
                for pair in &op.pairs {
                    let (source, target) = (self.pools.cell_of(pair.from, from), peer.pools.cell_of(pair.to, to));
                    moves.push((source, target, moved_words(source, target, moved, half)));
                    written.push((pair.to, to));
                }
            }
        }
        P::Cell::copy_all(&moves);
        let told = half == Half::Second && self.parts.log.is_on();
        peer.pools.sums(written.into_iter().filter(|_| told))
    }

    fn write_metadata(&self, op: &SendOp) {
        let peer = self.parts.peer.as_ref().expect("a prefill engine has a peer");
        let mut core = self.lock();
        let draft = core.sequences.get(&op.transfer.request.0).map(|known| known.draft.clone());
        let mut theirs = peer.lock();
        self.report_sent(&mut core, op, Outcome::Done, sent(op, Phase::End, Vec::new()));
        if let Some(slot) = op.metadata {
            theirs.metadata[slot.0 as usize] = draft.unwrap_or_default();
            theirs.reports[FROM_NIC].push_back(Report::Metadata(slot, op.room));
        }
        drop((core, theirs));
        P::notify_all(&self.changed);
        P::notify_all(&peer.changed);
    }

    /// The log has the end of a send where its report stands among those of other sends.
    fn report_sent(&self, core: &mut Core, op: &SendOp, outcome: Outcome, event: Event) {
        self.parts.log.note(|| event);
        core.counts.pages_sent += op.pairs.len() as u64;
        core.reports[FROM_NIC].push_back(Report::Completed(op.transfer, op.part, outcome));
    }

    fn end_send(&self, op: &SendOp, outcome: Outcome, event: Event) {
        let mut core = self.lock();
        self.report_sent(&mut core, op, outcome, event);
        drop(core);
        P::notify_all(&self.changed);
    }
}

fn sent(op: &SendOp, phase: Phase, sums: Vec<Sum>) -> Event {
    Event::Send { transfer: op.transfer, part: op.part, phase, sums }
}

fn first_operation(op: &SendOp) -> Operation {
    let (transfer, part) = (op.transfer, op.part);
    match part.kind {
        PartKind::Metadata => Operation::SendEnd { transfer, part },
        _ => Operation::SendBegin { transfer, part },
    }
}
