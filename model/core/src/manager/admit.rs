//! The queue: who gets pages, and who runs next.

use alloc::vec::Vec;

use super::records::Found;
use super::{Manager, Role, WritePolicy};
use crate::effect::StepKind;
use crate::ids::{PageId, Tier};
use crate::machine::request::{RequestEvent, RequestState};
use crate::machine::slot::SlotEvent;
use crate::rules::{Rule, Site};
use crate::tree::{Lease, NIL, NodeId, Residence};

impl Manager {
    /// Whether a look at the queue would do nothing now.
    pub fn at_rest(&self) -> bool {
        let mut woken = self.clone();
        woken.schedule();
        woken.progress == self.progress && woken.effects.len() == self.effects.len()
    }

    /// Admits what fits and launches what can run.
    pub(super) fn schedule(&mut self) {
        self.woken = false;
        let stream_full = self.launched.len() >= usize::from(self.config.pipeline_depth.max(1));
        if self.queued == 0 && stream_full {
            return;
        }
        let mut first_ready: Option<u32> = None;
        let mut passed_over = false;
        let at = Rule::ScanPastHead.at(Site::Schedule);
        let mut i = 0;
        while i < self.order.len() {
            let index = self.order[i];
            i += 1;
            let state = self.requests[index as usize].state;
            if state == RequestState::Queued && !self.admit(index) {
                if !self.keeps(at) {
                    break;
                }
                passed_over = true;
                continue;
            }
            let admitted = state == RequestState::Queued;
            let ready = self.requests[index as usize].state == RequestState::Ready;
            if passed_over && (ready || admitted) {
                self.held(at);
            }
            if ready && first_ready.is_none() {
                first_ready = Some(i as u32 - 1);
            }
        }
        let scanned = i;
        if let Some(first) = first_ready {
            self.launch(first as usize, scanned);
        }
    }

    /// Launches the first prefill of the queue, or a batch of decodes.
    fn launch(&mut self, first: usize, scanned: usize) {
        if self.launched.len() >= usize::from(self.config.pipeline_depth.max(1)) {
            return;
        }
        let ready = |manager: &Manager, index: u32| manager.requests[index as usize].state == RequestState::Ready;
        let mut decodes = self.spare.nodes.take(scanned - first);
        for i in first..scanned {
            let index = self.order[i];
            if !ready(self, index) {
                continue;
            }
            if self.next_kind(index) == StepKind::Prefill {
                self.spare.nodes.keep(decodes);
                self.launch_prefill(index);
                return;
            }
            if (decodes.len() as u32) < self.config.max_batch.max(1) && self.extend_for_token(index) {
                decodes.push(index);
            }
        }
        if !decodes.is_empty() {
            self.launch_decodes(&decodes);
        }
        self.spare.nodes.keep(decodes);
    }

    /// Reserves everything a request needs. False where that is not possible now.
    fn admit(&mut self, index: u32) -> bool {
        if self.config.role == Role::Decode { self.admit_decode(index) } else { self.admit_compute(index) }
    }

    fn admit_compute(&mut self, index: u32) -> bool {
        let found = self.find_prefix(index);
        let slot_free = self.events[usize::from(self.next_event)].busy == NIL;
        if found.to_load > 0 && !slot_free {
            let at = Rule::EventSlotHasGeneration.at(Site::Reload);
            if self.keeps(at) {
                self.held(at);
                return false;
            }
        }
        let request = &self.requests[index as usize];
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let own_pages = request.blocks.len() as u32 - found.blocks;
        let mut out_pages = request.pages_needed - request.blocks.len() as u32;
        if !self.keeps(Rule::ReserveBeforeHold.at(Site::Admit)) {
            out_pages = request.prompt_tokens.div_ceil(page_tokens) - request.blocks.len() as u32;
        }
        // Hold the path first, so that making room does not evict it; from the host tier only a write-back evicts here.
        let writes_back = self.config.write_policy == WritePolicy::Back;
        if found.node != NIL {
            self.tree.lease(found.node, Lease::Request);
            if writes_back {
                self.tree.lease(found.node, Lease::Load);
            }
        }
        let needed = found.to_load + own_pages + out_pages;
        let fits = self.make_room(Tier::DEVICE, needed);
        if writes_back && found.node != NIL {
            self.unlease(found.node, Lease::Load);
        } else {
            self.tree.touch(found.node, Tier::HOST);
        }
        if !fits {
            self.note_reserved(needed, needed - out_pages);
            if found.node != NIL {
                self.unlease(found.node, Lease::Request);
            }
            return false;
        }
        self.take_all(index, found, own_pages, out_pages);
        self.progress += 1;
        self.apply(index, RequestEvent::Admit);
        if self.config.role == Role::Prefill {
            self.send_cached(index, 0, found.blocks);
        }
        true
    }

    /// Notes where only the pages of the answer kept a request from being admitted.
    fn note_reserved(&mut self, needed: u32, at_once: u32) {
        let room = self.pools[0].free_pages() + self.tree.reclaimable[0];
        if at_once <= room && room < needed {
            self.held(Rule::ReserveBeforeHold.at(Site::Admit));
        }
    }

    fn take_all(&mut self, index: u32, found: Found, own_pages: u32, out_pages: u32) {
        self.requests[index as usize].shared = found.node;
        self.note_loading(index, found.node);
        if found.to_load > 0 {
            self.load_path(index, found.node);
        }
        let mut parent = found.node;
        let own = if own_pages > 0 { self.take_detached(parent, own_pages) } else { NIL };
        if own != NIL {
            let blocks = core::mem::take(&mut self.requests[index as usize].blocks);
            self.tree.add_blocks(own, &blocks[found.blocks as usize..]);
            self.requests[index as usize].blocks = blocks;
            parent = own;
        }
        let out = if out_pages > 0 { self.take_detached(parent, out_pages) } else { NIL };
        let request = &mut self.requests[index as usize];
        request.own = own;
        request.out = out;
        request.computed = found.blocks * u32::from(self.config.geometry.page_tokens);
        request.launched = request.computed;
        self.fill_page_table(index);
        let early = Rule::VisibleAfterComplete.at(Site::Forward);
        if own != NIL && self.config.prefix_cache {
            if self.keeps(early) {
                self.held(early);
            } else {
                self.link_own(index);
            }
        }
    }

    /// Gives back the pages of a prompt that somebody else has computed since they were taken, before any of it is
    /// computed a second time.
    pub(super) fn adopt_prefix(&mut self, index: u32) {
        let request = &self.requests[index as usize];
        let (own, out, shared) = (request.own, request.out, request.shared);
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let cached = request.computed / page_tokens;
        if own == NIL || !self.config.prefix_cache {
            return;
        }
        let node = self.tree.node(own);
        let untouched =
            !node.linked && node.store == NIL && cached as usize + node.blocks.len() == request.blocks.len();
        if !untouched || !self.tree.starts(node.blocks[0]) {
            return;
        }
        let found = self.find_prefix(index);
        if found.to_load > 0 || found.blocks <= cached {
            return;
        }
        self.tree.lease(found.node, Lease::Request);
        if shared != NIL {
            self.unlease(shared, Lease::Request);
        }
        let known = (found.blocks - cached) as usize;
        let mut given_back = self.spare.refs.take(known);
        self.tree.node_mut(own).blocks.drain(..known);
        for page in self.tree.pages_for(own, Tier::DEVICE, 0).drain(..known).collect::<Vec<_>>() {
            given_back.push(self.pools[0].block(page));
            self.pools[0].release(page, true);
        }
        self.emit_move(crate::effect::MoveKind::Free, given_back);
        let request = &mut self.requests[index as usize];
        request.shared = found.node;
        request.computed = found.blocks * page_tokens;
        request.launched = request.computed;
        let below = if self.tree.node(own).blocks.is_empty() {
            self.tree.forget(own);
            self.requests[index as usize].own = NIL;
            found.node
        } else {
            self.tree.node_mut(own).parent = found.node;
            self.tree.set_residence(own, Tier::DEVICE, Residence::Filling);
            own
        };
        if out != NIL {
            self.tree.node_mut(out).parent = below;
        }
        self.note_loading(index, found.node);
        self.fill_page_table(index);
        if self.config.role == Role::Prefill {
            self.send_cached(index, cached, found.blocks);
        }
    }

    fn take_detached(&mut self, parent: NodeId, pages: u32) -> NodeId {
        let node = self.tree.detached(parent);
        // A detached node is held by its request alone; its ancestors are held through the shared path.
        self.tree.node_mut(node).leases[Lease::Request as usize] = 1;
        self.take_pages(node, Tier::DEVICE, pages);
        self.tree.set_residence(node, Tier::DEVICE, Residence::Filling);
        node
    }

    /// Writes the request's pages down in order of position.
    pub(super) fn fill_page_table(&mut self, index: u32) {
        let request = &self.requests[index as usize];
        let nodes = [request.out, request.own].into_iter().filter(|&node| node != NIL);
        let tree = &self.tree;
        let path = nodes.chain(tree.upwards(request.shared));
        let total = path.clone().map(|node| tree.node(node).pages_in(Tier::DEVICE).len()).sum();
        // The path goes up, so the table is written from its end.
        let nothing = self.pools[0].block(PageId(0));
        let mut table = self.spare.table(total);
        let written = table.table_mut().expect("just taken");
        written.resize(total, nothing);
        let mut end = total;
        for node in path {
            let pages = tree.node(node).pages_in(Tier::DEVICE);
            let start = end - pages.len();
            for (to, &page) in written[start..end].iter_mut().zip(pages) {
                *to = self.pools[0].block(page);
            }
            end = start;
        }
        table.look_at_all();
        let before = core::mem::replace(&mut self.requests[index as usize].pages, table);
        self.spare.keep_table(before);
    }

    /// How much of the prompt the tree has, and how much of that must be reloaded.
    fn find_prefix(&mut self, index: u32) -> Found {
        let mut found = Found { node: NIL, blocks: 0, to_load: 0 };
        if !self.config.prefix_cache {
            return found;
        }
        if let Some((shape, found)) = self.requests[index as usize].found
            && shape == self.tree.shape
        {
            return found;
        }
        let blocks = core::mem::take(&mut self.requests[index as usize].blocks);
        let keeps_pins = self.keeps(Rule::SplitInheritsLeases.at(Site::Pins));
        let keeps_pending = self.keeps(Rule::SplitInheritsLeases.at(Site::Pending));
        let mut split: Option<(NodeId, NodeId)> = None;
        let matched = self.tree.match_prefix(&blocks, |tree, upper, lower| {
            if keeps_pins {
                tree.node_mut(upper).leases = tree.node(lower).leases;
            }
            tree.refresh(upper);
            split = Some((upper, lower));
        });
        self.requests[index as usize].blocks = blocks;
        if let Some((upper, lower)) = split {
            self.split_pending(upper, lower, keeps_pending);
        }
        found.node = matched.node;
        found.blocks = matched.blocks;
        let missing = self.tree.upwards(matched.node).map(|at| self.tree.node(at));
        let missing = missing.filter(|node| !node.has(Tier::DEVICE));
        found.to_load = missing.map(|node| node.blocks.len() as u32).sum();
        self.requests[index as usize].found = Some((self.tree.shape, found));
        found
    }

    /// Hands the pending ids of a split node to its upper half.
    fn split_pending(&mut self, upper: NodeId, lower: NodeId, keeps: bool) {
        let (store, load) = (self.tree.node(lower).store, self.tree.node(lower).load);
        if self.tree.node(lower).lease_count() > 0 {
            self.held(Rule::SplitInheritsLeases.at(Site::Pins));
        }
        for (pending, is_store) in [(store, true), (load, false)] {
            if pending == NIL {
                continue;
            }
            let at = Rule::SplitInheritsLeases.at(Site::Pending);
            self.held(at);
            if !keeps {
                continue;
            }
            if let Some(transfer) = self.ledger.at_mut(pending) {
                self.spare.nodes.reserve(&mut transfer.nodes, 1);
                transfer.nodes.push(upper);
            }
            let node = self.tree.node_mut(upper);
            if is_store {
                node.store = pending;
            } else {
                node.load = pending;
            }
        }
    }

    /// Waits for reloads of other requests that are still filling the shared path.
    fn note_loading(&mut self, index: u32, node: NodeId) {
        let at = Rule::NoEarlyHitOnLoading.at(Site::Match);
        let settled_first = Rule::MatchBeforeLoad.at(Site::Reload);
        let mut node = node;
        while node != NIL {
            let load = self.tree.node(node).load;
            if let Some(transfer) = self.ledger.at(load).filter(|_| load != NIL) {
                let id = transfer.id;
                self.held(at);
                let known = self.requests[index as usize].loads.iter().any(|&(known, _)| known == id);
                if self.keeps(at) && !known {
                    self.await_load(index, id, true);
                }
                if self.keeps(settled_first) {
                    self.held(settled_first);
                } else {
                    self.load_twice(index, node);
                }
            }
            node = self.tree.node(node).parent;
        }
    }

    /// The nodes from the first that must be loaded down to `node`.
    pub(super) fn missing_path(&mut self, node: NodeId) -> Vec<NodeId> {
        let tree = &self.tree;
        let missing = tree.upwards(node).filter(|&at| !tree.node(at).has(Tier::DEVICE));
        let mut path = self.spare.nodes.take(missing.clone().count());
        path.extend(missing);
        path.reverse();
        path
    }

    /// Adds a page for the next token where none was reserved. False where there is none.
    fn extend_for_token(&mut self, index: u32) -> bool {
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let request = &self.requests[index as usize];
        if request.computed >= request.tokens() || (request.computed / page_tokens) < request.pages.len() as u32 {
            return true;
        }
        if !self.make_room(Tier::DEVICE, 1) {
            return false;
        }
        let (shared, own) = (self.requests[index as usize].shared, self.requests[index as usize].own);
        if self.requests[index as usize].out == NIL {
            let parent = if own == NIL { shared } else { own };
            let out = self.take_detached(parent, 1);
            self.requests[index as usize].out = out;
        } else {
            let out = self.requests[index as usize].out;
            self.take_pages(out, Tier::DEVICE, 1);
        }
        self.fill_page_table(index);
        true
    }

    /// Marks a request's pages as being written.
    pub(super) fn fill_pages(&mut self, index: u32, from: usize, to: usize) {
        let strict = self.strict();
        for at in from..to {
            let page = self.requests[index as usize].pages[at].page;
            self.pools[0].apply(page, SlotEvent::Fill, strict);
        }
    }
}
