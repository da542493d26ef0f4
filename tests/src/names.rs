//! Whether two runs do the same up to the names that their managers gave.

use std::collections::BTreeMap;

use kvweft_core::{
    BlockRef, Body, Effect, Fence, FenceOn, Generation, Life, Message, PageId, Pair, PeerLife, RequestId, Room, StepId,
    Tier, TransferId,
};

/// What kind of thing a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Page(Tier),
    PageLife(Tier, u32),
    Transfer,
    Step,
    Life(RequestId),
    Event(u8),
    Room,
    PeerLife,
}

/// Numbers names by where they are first met. Two runs do the same exactly if their renamed effects are equal.
///
/// Pages of the peer have a table of their own, which [`Names::renamed`] is given beside this one.
#[derive(Clone, Debug, Default)]
pub struct Names {
    known: BTreeMap<(Kind, u64), u32>,
    given: BTreeMap<Kind, u32>,
}

impl Names {
    fn number(&mut self, kind: Kind, raw: u64) -> u32 {
        let given = self.given.entry(kind).or_default();
        *self.known.entry((kind, raw)).or_insert_with(|| {
            *given += 1;
            *given
        })
    }

    /// A page in one life.
    pub fn block(&mut self, block: &mut BlockRef) {
        let page = self.number(Kind::Page(block.tier), u64::from(block.page.0));
        let kind = Kind::PageLife(block.tier, block.page.0);
        block.generation = Generation(self.number(kind, u64::from(block.generation.0)));
        block.page = PageId(page);
    }

    /// A transfer.
    pub fn transfer(&mut self, id: &mut TransferId) {
        let raw = u64::from(id.serial) << 32 | u64::from(id.index);
        let life = self.number(Kind::Life(id.request), u64::from(id.life.0));
        *id = TransferId { serial: self.number(Kind::Transfer, raw), index: 0, request: id.request, life: Life(life) };
    }

    /// A step.
    pub fn step(&mut self, step: &mut StepId) {
        *step = StepId(self.number(Kind::Step, u64::from(step.0)));
    }

    /// A life of a request.
    pub fn life(&mut self, request: RequestId, life: &mut Life) {
        *life = Life(self.number(Kind::Life(request), u64::from(life.0)));
    }

    /// A room.
    pub fn room(&mut self, room: &mut Room) {
        *room = Room(self.number(Kind::Room, u64::from(room.0)));
    }

    fn event(&mut self, slot: u8, generation: &mut Generation) {
        *generation = Generation(self.number(Kind::Event(slot), u64::from(generation.0)));
    }

    fn fences(&mut self, fences: &mut [Fence]) {
        for fence in fences {
            match &mut fence.on {
                FenceOn::Step(step) => self.step(step),
                FenceOn::Load(slot, generation) => self.event(slot.0, generation),
            }
        }
    }

    fn pairs(&mut self, pairs: &mut [Pair], peer: Option<&mut Names>) {
        let mut peer = peer;
        for pair in pairs {
            self.block(&mut pair.from);
            match &mut peer {
                Some(peer) => peer.block(&mut pair.to),
                None => self.block(&mut pair.to),
            }
        }
    }

    fn message(&mut self, message: &mut Message) {
        message.life = PeerLife(self.number(Kind::PeerLife, u64::from(message.life.0)));
        self.room(&mut message.room);
        if let Body::Reserved { pages, .. } = &mut message.body {
            pages.iter_mut().for_each(|page| self.block(page));
        }
    }

    /// The effect with its names replaced by numbers. `peer` are the names that the peer gives its pages.
    pub fn renamed(&mut self, effect: &Effect, peer: &mut Names) -> Effect {
        let mut effect = effect.clone();
        match &mut effect {
            Effect::Copy(copy) => {
                self.transfer(&mut copy.transfer);
                self.fences(&mut copy.after);
                self.pairs(&mut copy.pairs, None);
                if let Some(record) = &mut copy.record {
                    self.event(record.slot.0, &mut record.generation);
                }
            }
            Effect::Send(send) => {
                self.transfer(&mut send.transfer);
                self.room(&mut send.room);
                self.fences(&mut send.after);
                self.pairs(&mut send.pairs, Some(peer));
            }
            Effect::RunStep(run) => {
                self.step(&mut run.step);
                for item in &mut run.items {
                    self.life(item.request, &mut item.life);
                    item.pages.iter_mut().for_each(|page| self.block(page));
                    for wait in &mut item.waits {
                        if let Some(generation) = &mut wait.generation {
                            self.event(wait.slot.0, generation);
                        }
                    }
                }
            }
            Effect::Answer(answer) => self.life(answer.request, &mut answer.life),
            Effect::Message(message) => self.message(message),
            Effect::Move(moved) => moved.pages.iter_mut().for_each(|page| self.block(page)),
            Effect::Wake(wake) => {
                self.life(wake.request, &mut wake.life);
                wake.pages.iter_mut().for_each(|page| self.block(page));
            }
            Effect::Poll(timer) | Effect::Arm(timer) | Effect::Disarm(timer) => {
                self.life(timer.request, &mut timer.life);
            }
            Effect::Collective(collective) => self.step(&mut collective.step),
        }
        effect
    }
}
