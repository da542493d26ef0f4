//! Taking, holding and freeing pages; lists that are used again.

use alloc::vec::Vec;

use super::Manager;
use crate::effect::{Body, Effect, Fence, LayerWait, Move, MoveKind, MovedPart, Pair, StepItem};
use crate::geometry::{Component, Layout};
use crate::ids::{BlockHash, BlockRef, Life, PageId, Tier};
use crate::machine::slot::{SlotEvent, SlotState};
use crate::page_list::PageList;
use crate::rules::{Rule, RuleSet, Site};
use crate::shelf::Shelf;
use crate::tree::{Lease, NIL, NodeId, Residence};

/// Emptied lists of drained effects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare {
    pub(super) refs: Shelf<BlockRef>,
    pub(super) blocks: Shelf<BlockHash>,
    pub(super) pairs: Shelf<Pair>,
    pub(super) parts: Shelf<MovedPart>,
    pub(super) fences: Shelf<Fence>,
    pub(super) items: Shelf<StepItem>,
    pub(super) waits: Shelf<LayerWait>,
    pub(super) layouts: Shelf<(Component, Layout)>,
    // Lists of the manager itself.
    pub(super) nodes: Shelf<NodeId>,
    pub(super) members: Shelf<(u32, Life)>,
    /// Emptied page tables that nobody looks at.
    tables: Tables,
}

impl Spare {
    /// An empty table with room for `len` pages.
    pub(super) fn table(&mut self, len: usize) -> PageList {
        let mut table = self.tables.pop().unwrap_or_default();
        let pages = table.table_mut().expect("kept by nobody else");
        *pages = self.refs.take(len);
        table
    }

    /// Takes a table back, unless somebody still looks at it: then the last one gives it back.
    pub(super) fn keep_table(&mut self, mut table: PageList) {
        if table.is_empty() {
            return;
        }
        if let Some(pages) = table.table_mut() {
            self.refs.keep(core::mem::take(pages));
            table.look_at_all();
            self.tables.keep(table);
        }
    }

    /// Takes the lists of an effect that nobody needs any more.
    pub(super) fn keep(&mut self, effect: Effect) {
        match effect {
            Effect::Copy(copy) => {
                self.fences.keep(copy.after);
                self.pairs.keep(copy.pairs);
                self.parts.keep(copy.parts);
            }
            Effect::Send(send) => {
                self.fences.keep(send.after);
                self.pairs.keep(send.pairs);
                self.parts.keep(send.parts);
            }
            Effect::RunStep(mut step) => {
                for item in step.items.drain(..) {
                    self.keep_table(item.pages);
                    self.waits.keep(item.waits);
                }
                self.items.keep(step.items);
            }
            Effect::Move(moved) => {
                self.refs.keep(moved.pages);
                self.blocks.keep(moved.blocks);
            }
            Effect::Wake(wake) => self.refs.keep(wake.pages),
            Effect::Message(message) => {
                if let Body::Reserved { pages, layouts, .. } = message.body {
                    self.refs.keep(pages);
                    self.layouts.keep(layouts);
                }
            }
            Effect::Answer(_) | Effect::Poll(_) | Effect::Arm(_) | Effect::Disarm(_) | Effect::Collective(_) => {}
        }
    }
}

/// Emptied page tables. Like a shelf, a copy has none and keeps none.
#[derive(Debug)]
struct Tables {
    kept: Vec<PageList>,
    keeps: bool,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { kept: Vec::new(), keeps: true }
    }
}

impl Clone for Tables {
    fn clone(&self) -> Tables {
        Tables { kept: Vec::new(), keeps: false }
    }
}

impl Tables {
    fn pop(&mut self) -> Option<PageList> {
        self.kept.pop()
    }

    fn keep(&mut self, table: PageList) {
        if self.keeps {
            self.kept.push(table);
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
        let mut taken = self.spare.refs.take(count as usize);
        let pool = &mut self.pools[tier.0 as usize];
        let pages = self.tree.pages_for(node, tier, count as usize);
        for _ in 0..count {
            let page = pool.take(strict).expect("the caller made room");
            pages.push(page);
            taken.push(pool.block(page));
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
        let at = Rule::PinUntilLoaded.at(Site::Reload);
        if tier == Tier::HOST && !self.touched.held.has(at) && self.ledger.iter().any(pinned) {
            self.held(at);
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
        let pages = core::mem::take(&mut self.tree.node_mut(node).pages[t]);
        self.tree.set_residence(node, tier, Residence::Absent);
        let strict = self.strict();
        let mut freed = self.spare.refs.take(pages.len());
        let pool = &mut self.pools[t];
        for &page in &pages {
            freed.push(pool.block(page));
            let refused = pool.release(page, true);
            debug_assert!(!refused || !strict);
        }
        self.tree.keep_pages(pages);
        self.emit_move(MoveKind::Free, freed);
    }

    /// Frees pages by name, as a second report or a late abort would. The rule refuses what was freed before.
    pub(super) fn release_again(&mut self, index: u32, site: Site) {
        let at = Rule::FreeOnce.at(site);
        let kept = self.keeps(at);
        let released = core::mem::take(&mut self.requests[index as usize].released);
        let mut freed = self.spare.refs.take(released.len());
        for &block in &released {
            let pool = &mut self.pools[block.tier.0 as usize];
            if kept {
                // Given back before, and free by now, with a new owner, or draining under a copy that still touches it.
                if pool.slot(block.page).state == SlotState::Free {
                    pool.cells |= 1 << (SlotEvent::Release as u32);
                }
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
        let pool = &mut self.pools[tier.0 as usize];
        for &page in self.tree.node(node).pages_in(tier) {
            pool.apply(page, event, strict);
        }
    }

    /// The pages of a node, as references.
    pub(super) fn refs_of(&self, node: NodeId, tier: Tier, out: &mut Vec<BlockRef>) {
        let pool = &self.pools[tier.0 as usize];
        out.extend(self.tree.node(node).pages_in(tier).iter().map(|&page| pool.block(page)));
    }

    fn listed_refs(&mut self, node: NodeId, tier: Tier) -> Vec<BlockRef> {
        let mut pages = self.spare.refs.take(self.tree.node(node).pages_in(tier).len());
        self.refs_of(node, tier, &mut pages);
        pages
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
        let pages = self.listed_refs(node, tier);
        let mut blocks = self.spare.blocks.take(pages.len());
        blocks.extend_from_slice(&self.tree.node(node).blocks);
        self.emit(Effect::Move(Move { what: MoveKind::Publish, pages, blocks }));
    }

    /// Gives a lease back and lets go of what nobody holds any more.
    pub(super) fn unlease(&mut self, node: NodeId, lease: Lease) {
        let mut loose = self.spare.nodes.take(1);
        self.tree.unlease(node, lease, |id| loose.push(id));
        for &id in &loose {
            self.settle_node(id);
        }
        self.spare.nodes.keep(loose);
    }

    /// Lets go of a node that nobody holds: frees a doomed one, forgets an empty one.
    pub(super) fn settle_node(&mut self, node: NodeId) {
        let entry = self.tree.node(node);
        if !entry.live || !entry.is_loose() {
            return;
        }
        if entry.broken {
            self.tree.node_mut(node).broken = false;
            self.free_node_pages(node, Tier::DEVICE);
            self.settle_node(node);
            return;
        }
        if entry.linked {
            let parent = entry.parent;
            self.tree.unlink(node);
            self.tree.forget(node);
            if parent != NIL {
                self.settle_node(parent);
            }
        } else {
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
                let pages = self.listed_refs(node, tier);
                self.emit_move(MoveKind::Drain, pages);
            }
        }
    }

    pub(super) fn page_of(&self, node: NodeId, tier: Tier, at: usize) -> PageId {
        self.tree.node(node).pages_in(tier)[at]
    }
}
