//! A block manager that is not kvweft's: first come, first served, one step and one reload at a time, and a host tier that
//! keeps the blocks of finished requests. It has slot states and books of its own, and defines no property. All that makes
//! it a guest of the world is `impl Protocol` at the end.

use std::collections::VecDeque;

use kvweft_core::{
    Accounts, Answer, BlockHash, BlockRef, Component, CopyOp, Direction, Dtype, Effect, Ending, EventSlot, Generation,
    Group, Input, LayerSet, LayerWait, Layout, Life, Move, MoveKind, MovedPart, PageId, Pair, Record, Rejected,
    Renamer, RequestId, Rule, RunStep, Site, StepId, StepItem, StepKind, Stream, Submit, Tier, TransferId,
};
use kvweft_world::Protocol;

/// Mistakes that can be switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Defect {
    #[default]
    None,
    /// An abort gives pages back while a copy or step still works on them.
    FreeOnAbort,
    /// A host block can be matched when its copy is queued, not when it is complete.
    PublishAtEnqueue,
    /// A step reads reloaded pages without waiting for their layers.
    NoLayerWait,
}

pub(crate) const LAYERS: u8 = 2;
pub(crate) const COMPONENTS: [Component; 2] = [Component::IndexK, Component::Kv];

/// What a host slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostSlot {
    Empty,
    /// A store writes it; it can be matched already if the flag says so.
    Storing(BlockHash, bool),
    /// Complete, and read by so many reloads.
    Cached(BlockHash, u8),
}

/// Where a sequence is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Computing,
    Idle,
    /// Answered; its blocks are on their way to the host.
    Storing,
}

#[derive(Clone, Debug)]
struct Sequence {
    id: RequestId,
    life: Life,
    prompt: Vec<BlockHash>,
    blocks_total: usize,
    blocks: Vec<BlockRef>,
    computed: usize,
    phase: Phase,
    gone: bool,
    copies: u8,
    /// The event that covers its reloaded blocks.
    reloaded: Option<Generation>,
}

#[derive(Clone, Copy, Debug)]
enum Copy {
    /// Into the first blocks of a sequence, from these host slots.
    Reload,
    /// From a sequence.
    Store,
}

#[derive(Clone, Debug)]
pub(crate) struct BlockManager {
    defect: Defect,
    /// Free device blocks; the last is handed out first.
    free: Vec<u32>,
    generations: [Vec<u32>; 2],
    host: Vec<HostSlot>,
    sequences: VecDeque<Sequence>,
    copies: Vec<(TransferId, Copy, Vec<Pair>)>,
    running: Option<(StepId, RequestId, usize)>,
    lives: u32,
    transfers: u32,
    steps: u32,
    events: u32,
    effects: VecDeque<Effect>,
}

impl BlockManager {
    pub(crate) fn new(device: u32, host: u32, defect: Defect) -> Self {
        Self {
            defect,
            free: (0..device).rev().collect(),
            generations: [vec![0; device as usize], vec![0; host as usize]],
            host: vec![HostSlot::Empty; host as usize],
            sequences: VecDeque::new(),
            copies: Vec::new(),
            running: None,
            lives: 0,
            transfers: 0,
            steps: 0,
            events: 0,
            effects: VecDeque::new(),
        }
    }

    fn submit(&mut self, submit: Submit<'_>) {
        self.lives += 1;
        self.sequences.push_back(Sequence {
            id: submit.request,
            life: Life(self.lives),
            prompt: submit.blocks.to_vec(),
            blocks_total: submit.blocks.len() + submit.output_tokens as usize,
            blocks: Vec::new(),
            computed: 0,
            phase: Phase::Queued,
            gone: false,
            copies: 0,
            reloaded: None,
        });
    }

    /// Starts whatever can be started now.
    fn schedule(&mut self) {
        let reloading = self.copies.iter().any(|(_, copy, _)| matches!(copy, Copy::Reload));
        if let Some(at) = self.sequences.iter().position(|sequence| sequence.phase == Phase::Queued)
            && self.sequences[at].blocks_total <= self.free.len()
            && !reloading
        {
            self.admit(at);
        }
        if self.running.is_none()
            && let Some(at) = self.sequences.iter().position(|s| s.phase == Phase::Computing && !s.gone)
        {
            self.launch(at);
        }
    }

    fn admit(&mut self, at: usize) {
        let count = self.sequences[at].blocks_total;
        let blocks: Vec<BlockRef> = (0..count).map(|_| self.take_device()).collect();
        self.moved(MoveKind::Take, blocks.clone(), Vec::new());
        // The last block of a prompt is computed in any case: its logits are needed.
        let prompt = self.sequences[at].prompt.clone();
        let hits: Vec<usize> = prompt[..prompt.len() - 1].iter().map_while(|&hash| self.find_host(hash)).collect();
        self.sequences[at].phase = Phase::Computing;
        self.sequences[at].computed = hits.len();
        self.sequences[at].blocks = blocks;
        if hits.is_empty() {
            return;
        }
        self.events += 1;
        self.sequences[at].reloaded = Some(Generation(self.events));
        for &slot in &hits {
            if let HostSlot::Cached(_, pins) = &mut self.host[slot] {
                *pins += 1;
            }
        }
        let pairs = hits.iter().zip(&self.sequences[at].blocks);
        let pairs = pairs.map(|(&slot, &to)| Pair { from: self.host_block(slot), to }).collect();
        self.copy(at, Copy::Reload, pairs);
    }

    fn launch(&mut self, at: usize) {
        self.steps += 1;
        let step = StepId(self.steps);
        let sequence = &self.sequences[at];
        let (from, prompt) = (sequence.computed, sequence.prompt.len());
        let (kind, end) = if from < prompt { (StepKind::Prefill, prompt) } else { (StepKind::Decode, from + 1) };
        let site = if kind == StepKind::Prefill { Site::RaggedPrefill } else { Site::PagedDecode };
        let wait = |generation| LayerWait {
            slot: EventSlot(0),
            generation: Some(generation),
            index: Some(Rule::IndexReadWaitsLayer.at(site)),
            kv: Some(Rule::KvReadWaitsLayer.at(site)),
            shared: false,
        };
        let waits = sequence.reloaded.filter(|_| self.defect != Defect::NoLayerWait).map(wait);
        let item = StepItem {
            request: sequence.id,
            life: sequence.life,
            kind,
            pages: sequence.blocks[..end].to_vec().into(),
            read: from as u32,
            write_from: from as u32,
            first_token: from as u32,
            tokens: (end - from) as u32,
            waits: waits.into_iter().collect(),
        };
        self.running = Some((step, sequence.id, end));
        self.effects.push_back(Effect::RunStep(RunStep { step, items: vec![item] }));
    }

    fn step_done(&mut self, step: StepId) {
        let Some((_, id, end)) = self.running.take_if(|(running, ..)| *running == step) else { return };
        let Some(at) = self.sequences.iter().position(|s| s.id == id && s.phase == Phase::Computing) else { return };
        let sequence = &mut self.sequences[at];
        sequence.computed = end;
        if end == sequence.blocks_total {
            sequence.phase = Phase::Idle;
        }
        self.bury(at);
    }

    fn finish(&mut self, at: usize) {
        self.answer(at, Ending::Finished);
        self.sequences[at].phase = Phase::Storing;
        let prompt = self.sequences[at].prompt.clone();
        let mut pairs = Vec::new();
        for (position, hash) in prompt.into_iter().enumerate() {
            if self.find_host(hash).is_some() {
                continue;
            }
            let Some(slot) = self.take_host() else { break };
            let publish = self.defect == Defect::PublishAtEnqueue;
            self.host[slot] = HostSlot::Storing(hash, publish);
            let to = self.host_block(slot);
            self.moved(MoveKind::Take, vec![to], Vec::new());
            if publish {
                self.moved(MoveKind::Publish, vec![to], vec![hash]);
            }
            pairs.push(Pair { from: self.sequences[at].blocks[position], to });
        }
        if !pairs.is_empty() {
            self.copy(at, Copy::Store, pairs);
        }
        self.bury(at);
    }

    fn abort(&mut self, at: usize) {
        if self.sequences[at].phase == Phase::Storing || self.sequences[at].gone {
            return;
        }
        self.answer(at, Ending::Aborted);
        self.sequences[at].gone = true;
        if self.defect == Defect::FreeOnAbort {
            self.release(at);
        } else {
            let blocks = self.sequences[at].blocks.clone();
            self.moved(MoveKind::Drain, blocks, Vec::new());
            self.bury(at);
        }
    }

    fn completed(&mut self, transfer: TransferId) {
        let Some(place) = self.copies.iter().position(|(id, ..)| *id == transfer) else { return };
        let (_, copy, pairs) = self.copies.remove(place);
        for pair in pairs {
            let host = if matches!(copy, Copy::Store) { pair.to } else { pair.from };
            let slot = host.page.0 as usize;
            match (copy, self.host[slot]) {
                (Copy::Store, HostSlot::Storing(hash, visible)) => {
                    self.host[slot] = HostSlot::Cached(hash, 0);
                    if !visible {
                        self.moved(MoveKind::Publish, vec![host], vec![hash]);
                    }
                }
                (Copy::Reload, HostSlot::Cached(hash, pins)) => self.host[slot] = HostSlot::Cached(hash, pins - 1),
                _ => {}
            }
        }
        let owner = |s: &Sequence| s.id == transfer.request && s.life == transfer.life;
        if let Some(at) = self.sequences.iter().position(owner) {
            self.sequences[at].copies -= 1;
            self.bury(at);
        }
    }

    /// Releases a sequence that is over, once nothing works on its blocks any more.
    fn bury(&mut self, at: usize) {
        let sequence = &self.sequences[at];
        let running = self.running.is_some_and(|(_, id, _)| id == sequence.id);
        if (sequence.gone || sequence.phase == Phase::Storing) && sequence.copies == 0 && !running {
            self.release(at);
        }
    }

    fn release(&mut self, at: usize) {
        let sequence = self.sequences.remove(at).expect("it is there");
        self.free.extend(sequence.blocks.iter().rev().map(|block| block.page.0));
        self.moved(MoveKind::Free, sequence.blocks, Vec::new());
    }

    fn answer(&mut self, at: usize, ending: Ending) {
        let Sequence { id: request, life, .. } = self.sequences[at];
        self.effects.push_back(Effect::Answer(Answer { request, life, ending }));
    }

    fn moved(&mut self, what: MoveKind, pages: Vec<BlockRef>, blocks: Vec<BlockHash>) {
        if !pages.is_empty() {
            self.effects.push_back(Effect::Move(Move { what, pages, blocks }));
        }
    }

    fn copy(&mut self, at: usize, copy: Copy, pairs: Vec<Pair>) {
        self.transfers += 1;
        let Sequence { id: request, life, .. } = self.sequences[at];
        let transfer = TransferId { serial: self.transfers, index: 0, request, life };
        let (direction, stream) = match copy {
            Copy::Reload => (Direction::Reload, Stream::Load),
            Copy::Store => (Direction::Offload, Stream::Store),
        };
        let part = |component| {
            let layout = Layout::index_k(Dtype::Bf16, 1, 1);
            MovedPart { component, layers: LayerSet::first(LAYERS), from: layout, moved: layout, to: layout }
        };
        let record = Record { slot: EventSlot(0), generation: Generation(self.events) };
        self.sequences[at].copies += 1;
        self.copies.push((transfer, copy, pairs.clone()));
        self.effects.push_back(Effect::Copy(CopyOp {
            transfer,
            direction,
            stream,
            after: Vec::new(),
            pairs,
            parts: COMPONENTS.map(part).to_vec(),
            record: matches!(copy, Copy::Reload).then_some(record),
            record_on: stream,
        }));
    }

    fn take_device(&mut self) -> BlockRef {
        let page = self.free.pop().expect("there are enough");
        self.generations[0][page as usize] += 1;
        let generation = Generation(self.generations[0][page as usize]);
        BlockRef { group: Group(0), tier: Tier::DEVICE, page: PageId(page), generation }
    }

    /// An empty host slot, or one whose block nobody reads.
    fn take_host(&mut self) -> Option<usize> {
        let empty = self.host.iter().position(|slot| *slot == HostSlot::Empty);
        let slot = empty.or_else(|| self.host.iter().position(|slot| matches!(slot, HostSlot::Cached(_, 0))))?;
        if self.host[slot] != HostSlot::Empty {
            let evicted = self.host_block(slot);
            self.moved(MoveKind::Free, vec![evicted], Vec::new());
        }
        self.generations[1][slot] += 1;
        Some(slot)
    }

    fn find_host(&self, hash: BlockHash) -> Option<usize> {
        let visible = |slot: &HostSlot| match *slot {
            HostSlot::Cached(cached, _) => cached == hash,
            HostSlot::Storing(stored, visible) => visible && stored == hash,
            HostSlot::Empty => false,
        };
        self.host.iter().position(visible)
    }

    fn host_block(&self, slot: usize) -> BlockRef {
        let generation = Generation(self.generations[1][slot]);
        BlockRef { group: Group(0), tier: Tier::HOST, page: PageId(slot as u32), generation }
    }

    fn place(&self, request: RequestId) -> Option<usize> {
        self.sequences.iter().position(|sequence| sequence.id == request && !sequence.gone)
    }
}

impl Protocol for BlockManager {
    fn handle(&mut self, input: Input<'_>) -> Result<(), Rejected> {
        match input {
            Input::Submit(submit) => self.submit(submit),
            Input::Abort { request } => {
                let at = self.place(request).ok_or(Rejected::UnknownRequest(request))?;
                self.abort(at);
            }
            Input::Finish { request, .. } => {
                let at = self.place(request).ok_or(Rejected::UnknownRequest(request))?;
                self.finish(at);
            }
            Input::StepDone { step } => self.step_done(step),
            Input::Completed { transfer, .. } => self.completed(transfer),
            // Layers are waited for on the device; it has no peer, no timer and no reset.
            _ => return Ok(()),
        }
        self.schedule();
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    // Host slots are searched in their order, so they are encoded in it and keep their numbers.
    fn encode(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        for sequence in &self.sequences {
            let life = names.life(sequence.id, sequence.life);
            out.extend([sequence.id.0 as u8, life, sequence.phase as u8, sequence.computed as u8, sequence.copies]);
            out.extend([u8::from(sequence.gone), sequence.reloaded.map_or(255, |event| names.event(0, event))]);
            sequence.blocks.iter().for_each(|&block| names.block(block, out));
        }
        out.push(255);
        for (slot, state) in self.host.iter().enumerate() {
            names.block(self.host_block(slot), out);
            match *state {
                HostSlot::Empty => out.push(0),
                HostSlot::Storing(hash, visible) => out.extend([1 + u8::from(visible), hash.0 as u8]),
                HostSlot::Cached(hash, pins) => out.extend([3 + pins, hash.0 as u8]),
            }
        }
        for (transfer, copy, pairs) in &self.copies {
            out.extend([names.transfer(*transfer), *copy as u8, pairs.len() as u8]);
        }
        out.push(255);
        self.free.iter().for_each(|&page| out.push(names.page(Tier::DEVICE, PageId(page))));
        out.push(self.running.map_or(255, |(step, ..)| names.step(step)));
        out.extend(self.running.map_or([255, 255], |(_, id, end)| [id.0 as u8, end as u8]));
    }

    fn accounts(&self) -> Option<Accounts> {
        let count = |wanted: fn(&HostSlot) -> bool| self.host.iter().filter(|slot| wanted(slot)).count() as u32;
        let device = self.generations[0].len() as u32;
        let (free, empty) = (self.free.len() as u32, count(|slot| *slot == HostSlot::Empty));
        let (cached, unread) =
            (count(|slot| matches!(slot, HostSlot::Cached(..))), count(|slot| matches!(slot, HostSlot::Cached(_, 0))));
        Some(Accounts {
            pages: [[free, device - free, 0, 0, 0], [empty, 0, self.host.len() as u32 - empty - cached, cached, 0]],
            free_listed: [free, empty],
            cached: [0, unread],
            transfers: self.copies.len() as u32,
            requests: self.sequences.len() as u32,
            ..Accounts::default()
        })
    }

    fn accepts(&self, input: &Input<'_>) -> bool {
        match input {
            Input::Finish { request, .. } => {
                self.place(*request).is_some_and(|at| self.sequences[at].phase == Phase::Idle)
            }
            Input::Submit(submit) => self.place(submit.request).is_none(),
            _ => false,
        }
    }

    fn wants(&self, request: RequestId, life: Life) -> bool {
        self.place(request).is_some_and(|at| self.sequences[at].life == life)
    }
}
