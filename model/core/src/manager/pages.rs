//! Taking, holding and freeing pages; lists that are used again.

use alloc::vec::Vec;

use super::Manager;
use crate::effect::{Effect, Move, MoveKind};
use crate::ids::{BlockHash, BlockRef, PageId, Tier};
use crate::machine::slot::SlotEvent;
use crate::rules::{Rule, RuleSet, Site};
use crate::tree::{Lease, NIL, NodeId, Residence};

/// Emptied lists of drained effects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare {
    refs: Vec<Vec<BlockRef>>,
    blocks: Vec<Vec<BlockHash>>,
    pairs: Vec<Vec<crate::effect::Pair>>,
    parts: Vec<Vec<crate::effect::MovedPart>>,
    fences: Vec<Vec<crate::effect::Fence>>,
    items: Vec<Vec<crate::effect::StepItem>>,
    waits: Vec<Vec<crate::effect::LayerWait>>,
    nodes: Vec<Vec<NodeId>>,
}

macro_rules! spare {
    ($($take:ident, $field:ident, $item:ty;)*) => {
        impl Spare {
            $(pub(crate) fn $take(&mut self) -> Vec<$item> {
                self.$field.pop().unwrap_or_default()
            })*
        }
    };
}

spare! {
    refs, refs, BlockRef;
    blocks, blocks, BlockHash;
    pairs, pairs, crate::effect::Pair;
    parts, parts, crate::effect::MovedPart;
    fences, fences, crate::effect::Fence;
    items, items, crate::effect::StepItem;
    waits, waits, crate::effect::LayerWait;
    nodes, nodes, NodeId;
}

fn keep<T>(store: &mut Vec<Vec<T>>, mut list: Vec<T>) {
    if list.capacity() > 0 && store.len() < 256 {
        list.clear();
        store.push(list);
    }
}

impl Spare {
    pub(crate) fn keep_nodes(&mut self, nodes: Vec<NodeId>) {
        keep(&mut self.nodes, nodes);
    }

    /// Takes the lists of an effect that nobody needs any more.
    pub(crate) fn keep(&mut self, effect: Effect) {
        match effect {
            Effect::Copy(copy) => {
                keep(&mut self.fences, copy.after);
                keep(&mut self.pairs, copy.pairs);
                keep(&mut self.parts, copy.parts);
            }
            Effect::Send(send) => {
                keep(&mut self.fences, send.after);
                keep(&mut self.pairs, send.pairs);
                keep(&mut self.parts, send.parts);
            }
            Effect::RunStep(mut step) => {
                for item in step.items.drain(..) {
                    keep(&mut self.refs, item.pages);
                    keep(&mut self.waits, item.waits);
                }
                keep(&mut self.items, step.items);
            }
            Effect::Move(moved) => {
                keep(&mut self.refs, moved.pages);
                keep(&mut self.blocks, moved.blocks);
            }
            Effect::Wake(wake) => keep(&mut self.refs, wake.pages),
            Effect::Message(_)
            | Effect::Answer(_)
            | Effect::Poll(_)
            | Effect::Arm(_)
            | Effect::Disarm(_)
            | Effect::Collective(_) => {}
        }
    }
}

fn coming_now(manager: &Manager, tier: Tier) -> u32 {
    if tier == Tier::DEVICE { manager.pages_written_back() } else { 0 }
}

impl Manager {
    pub(super) fn strict(&self) -> bool {
        self.config.rules == RuleSet::ALL
    }

    /// Takes `count` pages of a tier into a detached node, and says so. The caller has made room.
    pub(super) fn take_pages(&mut self, node: NodeId, tier: Tier, count: u32) {
        let strict = self.strict();
        let mut taken = self.spare.refs();
        for _ in 0..count {
            let page = self.pools[tier.0 as usize].take(strict).expect("the caller made room");
            self.tree.node_mut(node).pages[tier.0 as usize].push(page);
            taken.push(self.pools[tier.0 as usize].block(page));
        }
        self.emit_move(MoveKind::Take, taken);
    }

    pub(super) fn emit_move(&mut self, what: MoveKind, pages: Vec<BlockRef>) {
        if !pages.is_empty() {
            self.emit(Effect::Move(Move { what, pages, blocks: Vec::new() }));
        }
    }

    /// Makes `pages` of `tier` free, evicting what may be evicted. False where that is not possible now.
    pub(super) fn make_room(&mut self, tier: Tier, pages: u32) -> bool {
        let t = tier.0 as usize;
        if self.pools[t].free_pages() < pages {
            self.note_withheld(tier);
        }
        let coming = coming_now(self, tier);
        if self.pools[t].free_pages() + self.tree.reclaimable[t] + coming < pages {
            return false;
        }
        while self.pools[t].free_pages() + coming_now(self, tier) < pages {
            let Some(victim) = self.tree.victim(tier) else { return false };
            self.evict(victim, tier);
        }
        self.pools[t].free_pages() >= pages
    }

    /// Notes the rules that keep pages from being evicted while somebody needs room.
    fn note_withheld(&mut self, tier: Tier) {
        if self.tree.withheld[usize::from(tier.0)] == 0 {
            return;
        }
        self.held(Rule::EvictSkipsLeased.at(if tier == Tier::DEVICE { Site::Device } else { Site::Host }));
        let pinned = |transfer: &super::records::Transfer| {
            transfer.leased && matches!(transfer.kind, super::TransferKind::Load(..))
        };
        if tier == Tier::HOST && self.ledger.iter().any(pinned) {
            self.held(Rule::PinUntilLoaded.at(Site::Reload));
        }
    }

    /// Evicts a node from a tier, or starts to write it back; then its pages come later.
    fn evict(&mut self, node: NodeId, tier: Tier) {
        if tier == Tier::DEVICE
            && self.config.write_policy == super::WritePolicy::Back
            && !self.tree.node(node).has(Tier::HOST)
            && self.make_room(Tier::HOST, self.tree.node(node).pages_in(tier).len() as u32)
        {
            self.write_back(node);
            return;
        }
        self.free_node_pages(node, tier);
        self.settle_node(node);
    }

    /// Frees the pages of a node in a tier.
    pub(super) fn free_node_pages(&mut self, node: NodeId, tier: Tier) {
        let t = tier.0 as usize;
        self.tree.unlist(node);
        let mut pages = core::mem::take(&mut self.tree.node_mut(node).pages[t]);
        self.tree.set_residence(node, tier, Residence::Absent);
        let mut freed = self.spare.refs();
        for &page in &pages {
            freed.push(self.pools[t].block(page));
            let refused = self.pools[t].release(page, true);
            debug_assert!(!refused || !self.strict());
        }
        pages.clear();
        self.tree.node_mut(node).pages[t] = pages;
        self.emit_move(MoveKind::Free, freed);
    }

    /// Frees pages by name, as a second report or a late abort would. The rule refuses what was freed before.
    pub(super) fn release_again(&mut self, index: u32, site: Site) {
        let at = Rule::FreeOnce.at(site);
        let kept = self.keeps(at);
        let released = core::mem::take(&mut self.requests[index as usize].released);
        let mut freed = self.spare.refs();
        for &block in &released {
            let pool = &mut self.pools[block.tier.0 as usize];
            let gone =
                pool.block(block.page) != block || pool.slot(block.page).state == crate::machine::slot::SlotState::Free;
            if kept && gone {
                pool.cells |= 1 << (SlotEvent::Release as u32);
                self.touched.held = self.touched.held.with(at);
                continue;
            }
            pool.release(block.page, false);
            freed.push(block);
        }
        self.emit_move(MoveKind::Free, freed);
        self.requests[index as usize].released = released;
    }

    /// Moves the slots of a node's pages.
    pub(super) fn apply_pages(&mut self, node: NodeId, tier: Tier, event: SlotEvent) {
        let strict = self.strict();
        let t = tier.0 as usize;
        for i in 0..self.tree.node(node).pages[t].len() {
            let page = self.tree.node(node).pages[t][i];
            self.pools[t].apply(page, event, strict);
        }
    }

    /// The pages of a node, as references.
    pub(super) fn refs_of(&self, node: NodeId, tier: Tier, out: &mut Vec<BlockRef>) {
        let pool = &self.pools[tier.0 as usize];
        out.extend(self.tree.node(node).pages_in(tier).iter().map(|&page| pool.block(page)));
    }

    /// Marks a tier's pages of a node complete and, if it can be matched, says so.
    pub(super) fn complete_node(&mut self, node: NodeId, tier: Tier) {
        self.apply_pages(node, tier, SlotEvent::Complete);
        self.tree.set_residence(node, tier, Residence::Resident);
        if self.tree.node(node).linked {
            self.publish(node, tier);
        }
    }

    /// Says that a node can be matched in a tier.
    pub(super) fn publish(&mut self, node: NodeId, tier: Tier) {
        let mut pages = self.spare.refs();
        self.refs_of(node, tier, &mut pages);
        let mut blocks = self.spare.blocks();
        blocks.extend_from_slice(&self.tree.node(node).blocks);
        self.emit(Effect::Move(Move { what: MoveKind::Publish, pages, blocks }));
    }

    /// Gives a lease back and lets go of what nobody holds any more.
    pub(super) fn unlease(&mut self, node: NodeId, lease: Lease) {
        let mut bare = self.spare.nodes();
        self.tree.unlease(node, lease, |id| bare.push(id));
        for &id in &bare {
            self.settle_node(id);
        }
        self.spare.keep_nodes(bare);
    }

    /// Lets go of a node that nobody holds: frees a doomed one, forgets an empty one.
    pub(super) fn settle_node(&mut self, node: NodeId) {
        let entry = self.tree.node(node);
        if !entry.live || entry.lease_count() > 0 {
            return;
        }
        if entry.linked {
            if entry.has(Tier::DEVICE) || entry.has(Tier::HOST) || entry.children > 0 {
                return;
            }
            let parent = entry.parent;
            self.tree.unlink(node);
            self.tree.forget(node);
            if parent != NIL {
                self.settle_node(parent);
            }
        } else if entry.doomed {
            for tier in [Tier::DEVICE, Tier::HOST] {
                if self.tree.node(node).has(tier) {
                    self.free_node_pages(node, tier);
                }
            }
            self.tree.forget(node);
        }
    }

    /// Ends the ownership of a detached node: frees it now, or as soon as its last lease is gone.
    pub(super) fn doom(&mut self, node: NodeId) {
        self.tree.node_mut(node).doomed = true;
        if self.tree.node(node).lease_count() == 0 {
            self.settle_node(node);
            return;
        }
        for tier in [Tier::DEVICE, Tier::HOST] {
            if self.tree.node(node).has(tier) {
                self.apply_pages(node, tier, SlotEvent::Drain);
                let mut pages = self.spare.refs();
                self.refs_of(node, tier, &mut pages);
                self.emit_move(MoveKind::Drain, pages);
            }
        }
    }

    pub(super) fn page_of(&self, node: NodeId, tier: Tier, at: usize) -> PageId {
        self.tree.node(node).pages_in(tier)[at]
    }
}
