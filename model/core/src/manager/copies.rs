//! Offloads and reloads: issuing them, and what their completion means.

use alloc::vec::Vec;

use super::{Manager, TransferKind, WritePolicy};
use crate::effect::{CopyOp, Direction, Effect, Fence, FenceOn, MovedPart, Pair, Record, Stream};
use crate::geometry::Component;
use crate::ids::{EventSlot, Generation, Life, Part, RequestId, StepId, Tier, TransferId};
use crate::input::Outcome;
use crate::machine::slot::SlotEvent;
use crate::rules::{Rule, RuleSite, Site};
use crate::tree::{Lease, NIL, NodeId, Residence};

/// The owner of copies that no request asked for.
const NOBODY: RequestId = RequestId(u32::MAX);

impl Manager {
    /// Device pages that come back when write-backs under way complete.
    pub(super) fn pages_written_back(&self) -> u32 {
        if self.config.write_policy != WritePolicy::Back {
            return 0;
        }
        let back = self.ledger.iter().filter(|transfer| transfer.kind == TransferKind::Store(true));
        back.map(|transfer| self.tree.node(transfer.anchor))
            .filter(|node| !node.leased(Lease::Request))
            .map(|node| node.pages_in(Tier::DEVICE).len() as u32)
            .sum()
    }

    /// Copies a node's device pages to the host tier, behind `step` if it still writes them. Gives up where the host
    /// tier has no room.
    pub(super) fn store(&mut self, index: u32, node: NodeId, step: Option<StepId>) {
        let pages = self.tree.node(node).pages_in(Tier::DEVICE).len() as u32;
        if self.config.host_pages == 0 || self.tree.node(node).has(Tier::HOST) || !self.make_room(Tier::HOST, pages) {
            return;
        }
        let request = &self.requests[index as usize];
        let id = self.ledger.open(request.id, request.life, TransferKind::Store(false));
        self.offload(id, node, step);
    }

    /// Copies a node to the host tier before its device pages are given to somebody else.
    pub(super) fn write_back(&mut self, node: NodeId) {
        let id = self.ledger.open(NOBODY, Life(0), TransferKind::Store(true));
        self.offload(id, node, None);
    }

    fn offload(&mut self, id: TransferId, node: NodeId, step: Option<StepId>) {
        let pages = self.tree.node(node).pages_in(Tier::DEVICE).len() as u32;
        self.take_pages(node, Tier::HOST, pages);
        self.apply_pages(node, Tier::HOST, SlotEvent::Fill);
        self.tree.set_residence(node, Tier::HOST, Residence::Filling);
        self.tree.node_mut(node).store = id.index;
        self.hold_for(id, node, Lease::Store, true);
        let early = Rule::VisibleAfterComplete.at(Site::Offload);
        if self.keeps(early) {
            self.held(early);
        } else {
            self.apply_pages(node, Tier::HOST, SlotEvent::Complete);
            self.tree.set_residence(node, Tier::HOST, Residence::Resident);
            self.publish(node, Tier::HOST);
        }
        let mut after = self.spare.fences.take(1);
        let owed_to = Rule::StoreWaitsForward.at(Site::Offload);
        if let Some(step) = step.filter(|_| self.keeps(owed_to)) {
            after.push(Fence { on: FenceOn::Step(step), owed_to });
        }
        let pairs = self.pairs(&[node], Tier::DEVICE, Tier::HOST);
        let copy = CopyOp {
            transfer: id,
            direction: Direction::Offload,
            stream: Stream::Store,
            after,
            pairs,
            parts: self.copy_parts(Direction::Offload),
            record: None,
            record_on: self.record_stream(Site::Offload, Stream::Store),
        };
        self.emit(Effect::Copy(copy));
    }

    /// Reloads every node of the path down to `node` that is in the host tier alone.
    pub(super) fn load_path(&mut self, index: u32, node: NodeId) {
        let path = self.missing_path(node);
        let request = &self.requests[index as usize];
        let slot = EventSlot(self.next_event);
        let generation = Generation(self.events[usize::from(slot.0)].generation.0.wrapping_add(1));
        let id = self.ledger.open(request.id, request.life, TransferKind::Load(slot, generation));
        let event = &mut self.events[usize::from(slot.0)];
        event.busy = id.index;
        event.generation = generation;
        self.next_event = (self.next_event + 1) % self.events.len() as u8;
        for &missing in &path {
            let pages = self.tree.node(missing).pages_in(Tier::HOST).len() as u32;
            self.take_pages(missing, Tier::DEVICE, pages);
            self.apply_pages(missing, Tier::DEVICE, SlotEvent::Fill);
            self.tree.set_residence(missing, Tier::DEVICE, Residence::Filling);
            self.tree.node_mut(missing).load = id.index;
        }
        self.hold_for(id, node, Lease::Load, self.keeps(Rule::PinUntilLoaded.at(Site::Reload)));
        let pairs = self.pairs(&path, Tier::HOST, Tier::DEVICE);
        let unused = core::mem::replace(&mut self.ledger.get_mut(id).expect("just opened").nodes, path);
        self.spare.nodes.keep(unused);
        let copy = self.reload(id, pairs, Some(Record { slot, generation }));
        self.await_load(index, id, false);
        if self.keeps(Rule::RecordedBeforeWaited.at(Site::Reload)) {
            self.emit(Effect::Copy(copy));
        } else {
            self.requests[index as usize].late_load = Some(copy);
        }
    }

    /// Lets a request wait for a reload.
    pub(super) fn await_load(&mut self, index: u32, id: TransferId, shared: bool) {
        self.requests[index as usize].loads.push((id, shared));
        let waiters = &mut self.ledger.get_mut(id).expect("it is under way").waiters;
        self.spare.nodes.reserve(waiters, 1);
        waiters.push(index);
    }

    fn reload(&mut self, transfer: TransferId, pairs: Vec<Pair>, record: Option<Record>) -> CopyOp {
        let mut after = self.spare.fences.take(1);
        let owed_to = Rule::LoadWaitsForward.at(Site::Reload);
        if let Some(step) = self.last_launched().filter(|_| self.keeps(owed_to)) {
            after.push(Fence { on: FenceOn::Step(step), owed_to });
        }
        CopyOp {
            transfer,
            direction: Direction::Reload,
            stream: Stream::Load,
            after,
            pairs,
            parts: self.copy_parts(Direction::Reload),
            record,
            record_on: self.record_stream(Site::Reload, Stream::Load),
        }
    }

    /// With the rule dropped that ownership is settled first: queues a copy of loading pages into fresh ones, then finds
    /// that the tree has them and gives the fresh ones back at once.
    pub(super) fn load_twice(&mut self, index: u32, node: NodeId) {
        let pages = self.tree.node(node).pages_in(Tier::HOST).len() as u32;
        if pages == 0 || !self.make_room(Tier::DEVICE, pages) {
            return;
        }
        let request = &self.requests[index as usize];
        let kind = TransferKind::Load(EventSlot(u8::MAX), Generation(0));
        let id = self.ledger.open(request.id, request.life, kind);
        let fresh = self.tree.detached(NIL);
        self.take_pages(fresh, Tier::DEVICE, pages);
        self.apply_pages(fresh, Tier::DEVICE, SlotEvent::Fill);
        self.tree.set_residence(fresh, Tier::DEVICE, Residence::Filling);
        let mut pairs = self.spare.pairs.take(pages as usize);
        for at in 0..pages as usize {
            let from = self.pools[1].block(self.page_of(node, Tier::HOST, at));
            let to = self.pools[0].block(self.page_of(fresh, Tier::DEVICE, at));
            pairs.push(Pair { from, to });
        }
        let copy = self.reload(id, pairs, None);
        self.emit(Effect::Copy(copy));
        self.doom(fresh);
    }

    /// Keeps a node for a transfer until it completes.
    fn hold_for(&mut self, id: TransferId, node: NodeId, lease: Lease, keep: bool) {
        if keep {
            self.tree.lease(node, lease);
        }
        let transfer = self.ledger.get_mut(id).expect("just opened");
        transfer.anchor = node;
        transfer.leased = keep;
        if lease == Lease::Store {
            self.spare.nodes.reserve(&mut transfer.nodes, 2);
            transfer.nodes.push(node);
        }
    }

    fn pairs(&mut self, nodes: &[NodeId], from: Tier, to: Tier) -> Vec<Pair> {
        let pages = nodes.iter().map(|&node| self.tree.node(node).pages_in(from).len()).sum();
        let mut pairs = self.spare.pairs.take(pages);
        for &node in nodes {
            let node = self.tree.node(node);
            let ends = node.pages_in(from).iter().zip(node.pages_in(to));
            pairs.extend(ends.map(|(&a, &b)| Pair {
                from: self.pools[from.0 as usize].block(a),
                to: self.pools[to.0 as usize].block(b),
            }));
        }
        pairs
    }

    /// Both ends and the assumption of a copy, component by component.
    fn copy_parts(&mut self, direction: Direction) -> Vec<MovedPart> {
        let site = if direction == Direction::Offload { Site::Offload } else { Site::Reload };
        let all = self.keeps(Rule::IndexWithKv.at(site));
        let moves_pool = self.keeps(Rule::CopyMovesPoolLayout.at(site));
        let mut parts = self.spare.parts.take(self.config.geometry.components.len());
        for entry in &self.config.geometry.components {
            if entry.component == Component::IndexK && !all {
                continue;
            }
            let device = entry.layout;
            let class = device.class_default(entry.component);
            let host = self.config.host_layout(entry);
            let (from, to) = if direction == Direction::Offload { (device, host) } else { (host, device) };
            let moved = if moves_pool { device } else { class };
            parts.push(MovedPart { component: entry.component, layers: entry.layers, from, moved, to });
        }
        let ruled = [
            (Rule::IndexWithKv.at(site), self.config.geometry.has_index()),
            (Rule::CopyMovesPoolLayout.at(site), parts.iter().any(|p| p.from.class_default(p.component) != p.from)),
            (
                Rule::HostLayoutFromDevice.at(Site::HostPool),
                parts.iter().any(|p| p.from.class_default(p.component) != p.from),
            ),
        ];
        for (at, matters) in ruled {
            if matters {
                self.held(at);
            }
        }
        parts
    }

    fn record_stream(&mut self, site: Site, stream: Stream) -> Stream {
        let at: RuleSite = Rule::EventOnCopyStream.at(site);
        if self.keeps(at) {
            self.held(at);
            stream
        } else {
            Stream::Forward
        }
    }

    pub(super) fn submit_late_load(&mut self, index: u32) {
        if let Some(copy) = self.requests[index as usize].late_load.take() {
            self.emit(Effect::Copy(copy));
        }
    }

    pub(super) fn layer_ready(&mut self, transfer: TransferId, layer: u8) {
        if let Some(transfer) = self.ledger.get_mut(transfer) {
            transfer.layers_ready |= 1 << layer;
        }
    }

    pub(super) fn submit_failed(&mut self, id: TransferId) {
        let Some(transfer) = self.ledger.get(id) else { return };
        match transfer.kind {
            TransferKind::Send => self.send_failed(id),
            TransferKind::Load(..) | TransferKind::Store(_) => self.copy_completed(id, Outcome::Failed),
        }
    }

    pub(super) fn completed(&mut self, id: TransferId, part: Part, outcome: Outcome) {
        let Some(transfer) = self.ledger.get(id) else { return };
        match transfer.kind {
            TransferKind::Send => self.part_completed(id, part, outcome),
            TransferKind::Load(..) | TransferKind::Store(_) => self.copy_completed(id, outcome),
        }
    }

    fn copy_completed(&mut self, id: TransferId, outcome: Outcome) {
        let transfer = self.ledger.get_mut(id).expect("the caller looked it up");
        let (kind, anchor) = (transfer.kind, transfer.anchor);
        let leased = core::mem::replace(&mut transfer.leased, false);
        let nodes = core::mem::take(&mut transfer.nodes);
        match kind {
            TransferKind::Load(slot, _) => {
                self.load_completed(id, &nodes, outcome);
                let cleared = self.events.get(usize::from(slot.0)).is_some_and(|event| event.busy == id.index);
                if cleared {
                    self.events[usize::from(slot.0)].busy = NIL;
                }
                if leased {
                    self.unlease(anchor, Lease::Load);
                }
            }
            TransferKind::Store(back) => {
                self.store_completed(&nodes, outcome);
                if leased {
                    self.unlease(anchor, Lease::Store);
                }
                if back && outcome == Outcome::Done {
                    self.give_up_device(&nodes);
                }
            }
            TransferKind::Send => {}
        }
        self.spare.nodes.keep(nodes);
        self.ledger.close(id);
        self.wake(if matches!(kind, TransferKind::Load(..)) { Site::Reload } else { Site::Offload });
    }

    fn load_completed(&mut self, id: TransferId, nodes: &[NodeId], outcome: Outcome) {
        if outcome == Outcome::Failed {
            self.fail_waiters(id);
        }
        for &node in nodes {
            if !self.tree.node(node).live || self.tree.node(node).load != id.index {
                continue;
            }
            self.tree.node_mut(node).load = NIL;
            if outcome == Outcome::Failed {
                // A send of a stopped request may still read them: then they go with its lease.
                self.tree.shape += 1;
                if self.tree.node(node).leased(Lease::Request) {
                    self.tree.node_mut(node).broken = true;
                } else {
                    self.free_node_pages(node, Tier::DEVICE);
                }
            } else if self.tree.node(node).is(Tier::DEVICE, Residence::Filling) {
                self.complete_node(node, Tier::DEVICE);
            }
        }
        let transfer = self.ledger.get_mut(id).expect("the caller looked it up");
        let waiters = core::mem::take(&mut transfer.waiters);
        for &index in &waiters {
            self.requests[index as usize].loads.retain(|&(load, _)| load != id);
        }
        self.spare.nodes.keep(waiters);
    }

    fn store_completed(&mut self, nodes: &[NodeId], outcome: Outcome) {
        for &node in nodes {
            if !self.tree.node(node).live {
                continue;
            }
            self.tree.node_mut(node).store = NIL;
            if outcome == Outcome::Failed {
                if self.tree.node(node).has(Tier::HOST) {
                    self.free_node_pages(node, Tier::HOST);
                }
            } else if self.tree.node(node).is(Tier::HOST, Residence::Filling) {
                self.complete_node(node, Tier::HOST);
            }
        }
    }

    /// After a write-back: frees the device pages that nobody asked for in the meantime.
    fn give_up_device(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            let entry = self.tree.node(node);
            // Blocks that were put below in the meantime need their head where they are.
            let wanted = entry.held_in(Tier::DEVICE) || entry.child_in[0] > 0;
            if entry.live && entry.is(Tier::DEVICE, Residence::Resident) && !wanted {
                self.free_node_pages(node, Tier::DEVICE);
                self.settle_node(node);
            }
        }
    }

    /// A reload failed: everyone who waited for it fails with it.
    fn fail_waiters(&mut self, id: TransferId) {
        let mut waiters = self.spare.nodes.take(self.order.len());
        for &index in &self.order {
            if self.requests[index as usize].loads.iter().any(|&(load, _)| load == id) {
                waiters.push(index);
            }
        }
        for &index in &waiters {
            self.fail(index);
        }
        self.spare.nodes.keep(waiters);
    }
}
