//! Forward steps: launching them, and what their end means.

use alloc::vec::Vec;

use super::{Launched, Manager, Rejected, Role};
use crate::effect::{Effect, Ending, LayerWait, RunStep, StepItem, StepKind};
use crate::ids::{BlockHash, Life, RequestId, StepId, Tier};
use crate::machine::request::{RequestEvent, RequestState};
use crate::rules::{Rule, Site};
use crate::tree::{NIL, Residence};

impl Manager {
    /// Which path the next step of a request takes.
    pub(super) fn next_kind(&self, index: u32) -> StepKind {
        let request = &self.requests[index as usize];
        let new_prompt = request.computed < request.prompt_tokens;
        let nothing_left = request.computed >= request.tokens();
        if new_prompt || nothing_left { StepKind::Prefill } else { StepKind::Decode }
    }

    pub(super) fn launch_prefill(&mut self, index: u32) {
        self.adopt_prefix(index);
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let request = &self.requests[index as usize];
        let mut end = request.prompt_tokens;
        let chunk_pages = self.chunk_pages(index);
        if chunk_pages > 0 {
            let pages = request.computed / page_tokens + chunk_pages;
            end = end.min(pages * page_tokens);
        }
        let first = self.requests[index as usize].computed;
        let mut items = self.spare.items.take(1);
        let item = self.item(index, StepKind::Prefill, first, end - first);
        let (from, to) = (item.write_from as usize, item.pages.len());
        items.push(item);
        self.fill_pages(index, from, to);
        let step = self.run(&[index], items);
        let last = end == self.requests[index as usize].prompt_tokens;
        if last && self.config.write_policy == super::WritePolicy::Through {
            let own = self.requests[index as usize].own;
            if own != NIL {
                self.store(index, own, Some(step));
            }
        }
        if self.config.role == Role::Prefill {
            self.send_chunk(index, from, to, step, last);
        }
    }

    pub(super) fn launch_decodes(&mut self, batch: &[u32]) {
        let mut items = self.spare.items.take(batch.len());
        for &index in batch {
            let first = self.requests[index as usize].computed;
            let item = self.item(index, StepKind::Decode, first, 1);
            let (from, to) = (item.write_from as usize, item.pages.len());
            items.push(item);
            self.fill_pages(index, from, to);
        }
        self.run(batch, items);
    }

    fn item(&mut self, index: u32, kind: StepKind, first_token: u32, tokens: u32) -> StepItem {
        let page_tokens = u32::from(self.config.geometry.page_tokens);
        let waits = self.layer_waits(index, kind);
        let request = &self.requests[index as usize];
        let end = (first_token + tokens).div_ceil(page_tokens) as usize;
        let end = end.min(request.pages.len());
        let pages = request.pages.first(end);
        StepItem {
            request: request.id,
            life: request.life,
            kind,
            read: first_token.div_ceil(page_tokens),
            write_from: (first_token / page_tokens).min(pages.len() as u32),
            pages,
            first_token,
            tokens,
            waits,
        }
    }

    fn layer_waits(&mut self, index: u32, kind: StepKind) -> Vec<LayerWait> {
        if self.requests[index as usize].loads.is_empty() {
            return Vec::new();
        }
        let loads = core::mem::take(&mut self.requests[index as usize].loads);
        let mut waits = self.spare.waits.take(loads.len());
        let site = match kind {
            StepKind::Prefill => Site::RaggedPrefill,
            StepKind::Decode => Site::PagedDecode,
        };
        let index_rule = Rule::IndexReadWaitsLayer.at(site);
        let kv_rule = Rule::KvReadWaitsLayer.at(site);
        for &(id, shared) in &loads {
            let Some(transfer) = self.ledger.get(id) else { continue };
            let super::TransferKind::Load(slot, generation) = transfer.kind else { continue };
            let named = self.keeps(Rule::EventSlotHasGeneration.at(Site::Reload));
            self.held(Rule::RecordedBeforeWaited.at(Site::Reload));
            waits.push(LayerWait {
                slot,
                generation: named.then_some(generation),
                index: self.keeps(index_rule).then_some(index_rule),
                kv: self.keeps(kv_rule).then_some(kv_rule),
                shared,
            });
        }
        self.requests[index as usize].loads = loads;
        waits
    }

    /// Launches a step; its requests by their records, in the order of its items.
    fn run(&mut self, batch: &[u32], items: Vec<StepItem>) -> StepId {
        let step = StepId(self.next_step);
        self.next_step = self.next_step.wrapping_add(1);
        let mut members = self.spare.members.take(items.len());
        for (&index, item) in batch.iter().zip(&items) {
            members.push((index, item.life));
            self.requests[index as usize].launched = item.first_token + item.tokens;
        }
        for &(index, _) in &members {
            self.apply(index, RequestEvent::Launch);
        }
        self.progress += 1;
        self.emit(Effect::RunStep(RunStep { step, items }));
        for &(index, _) in &members {
            self.submit_late_load(index);
        }
        self.launched.push(Launched { step, items: members });
        step
    }

    pub(super) fn step_done(&mut self, step: StepId) {
        let Some(position) = self.launched.iter().position(|launched| launched.step == step) else { return };
        let launched = self.launched.remove(position);
        for &(index, life) in &launched.items {
            self.item_done(index, life);
        }
        self.spare.members.keep(launched.items);
        self.woken = true;
    }

    fn item_done(&mut self, index: u32, life: Life) {
        let at = Rule::CompletionNamesLife.at(Site::Step);
        let state = self.requests[index as usize].state;
        let stale = self.requests[index as usize].life != life;
        if stale || state != RequestState::Running {
            if stale && state != RequestState::Ended {
                self.held(at);
            }
            let believed = !self.keeps(at) && stale && state == RequestState::Ready;
            if !believed {
                self.stale_step(index);
                return;
            }
            // The rule is dropped: the step of the former life is taken for one of this life.
            let request = &mut self.requests[index as usize];
            request.launched = request.prompt_tokens.max(request.computed);
            self.apply(index, RequestEvent::Launch);
        }
        let request = &mut self.requests[index as usize];
        request.computed = request.launched;
        let prompt_done = request.computed >= request.prompt_tokens;
        let all_done = request.computed >= request.tokens();
        if prompt_done {
            self.prompt_computed(index);
        }
        if self.config.role == Role::Prefill && prompt_done {
            self.apply(index, RequestEvent::StepSent);
            self.prefill_computed(index);
        } else if all_done {
            self.apply(index, RequestEvent::StepLast);
        } else {
            self.apply(index, RequestEvent::StepMore);
        }
    }

    /// A step of a life that is over has ended.
    fn stale_step(&mut self, index: u32) {
        let state = self.requests[index as usize].state;
        if matches!(state, RequestState::Draining | RequestState::Ended | RequestState::Queued | RequestState::Ready) {
            self.apply(index, RequestEvent::StepMore);
        }
        if state == RequestState::Draining && self.config.role == Role::Decode {
            self.decode_step_drained(index);
        }
    }

    /// The prompt's cache entries are all there: others may use them from now on.
    fn prompt_computed(&mut self, index: u32) {
        let own = self.requests[index as usize].own;
        if own == NIL || !self.tree.node(own).is(Tier::DEVICE, Residence::Filling) {
            return;
        }
        self.complete_node(own, Tier::DEVICE);
        if self.config.prefix_cache {
            self.link_own(index);
        }
    }

    /// Makes the request's new prompt blocks matchable, unless the tree has them by now.
    pub(super) fn link_own(&mut self, index: u32) {
        let (own, shared) = (self.requests[index as usize].own, self.requests[index as usize].shared);
        if own == NIL || self.tree.node(own).linked || self.tree.node(own).blocks.is_empty() {
            return;
        }
        let first = self.tree.node(own).blocks[0];
        if self.tree.starts(first) {
            return;
        }
        self.tree.link(own, shared);
        // The lease on the path is held at its deepest node from now on.
        self.requests[index as usize].shared = own;
        self.requests[index as usize].own = NIL;
        self.publish(own, Tier::DEVICE);
        if self.tree.node(own).is(Tier::HOST, Residence::Resident) {
            self.publish(own, Tier::HOST);
        }
    }

    /// The engine ends an answer.
    pub(super) fn finish(&mut self, request: RequestId, output: &[BlockHash]) -> Result<(), Rejected> {
        let index = self.find(request)?;
        let entry = &self.requests[index as usize];
        let over = matches!(entry.state, RequestState::Idle | RequestState::Ready);
        let out_pages = entry.pages_needed as usize - entry.blocks.len();
        if !over || entry.computed < entry.prompt_tokens || output.len() > out_pages {
            return Err(Rejected::NotFinishable(request));
        }
        self.keep_answer(index, output);
        self.leave(index, super::leave::Exit::Finish);
        self.answer(index, Ending::Finished);
        self.end(index);
        self.woken = true;
        Ok(())
    }

    /// Links the full blocks of the answer below the prompt; pages that are not full go back.
    fn keep_answer(&mut self, index: u32, output: &[BlockHash]) {
        let request = &self.requests[index as usize];
        let (own, out, shared) = (request.own, request.out, request.shared);
        if out == NIL || output.is_empty() || !self.config.prefix_cache {
            return;
        }
        let parent = if own == NIL { shared } else { own };
        let linkable = parent == NIL || self.tree.node(parent).linked;
        if !linkable || self.tree.starts(output[0]) {
            return;
        }
        let mut surplus = self.spare.refs.take(self.tree.node(out).pages_in(Tier::DEVICE).len() - output.len());
        while self.tree.node(out).pages_in(Tier::DEVICE).len() > output.len() {
            let page = self.tree.node_mut(out).pages[0].pop().expect("just counted");
            surplus.push(self.pools[0].block(page));
            self.pools[0].release(page, true);
        }
        self.emit_move(crate::effect::MoveKind::Free, surplus);
        self.tree.add_blocks(out, output);
        self.complete_node(out, Tier::DEVICE);
        self.tree.link(out, parent);
        self.requests[index as usize].shared = out;
        self.requests[index as usize].out = NIL;
        self.publish(out, Tier::DEVICE);
        if self.config.write_policy == super::WritePolicy::Through {
            self.store(index, out, None);
        }
    }
}
