//! What happens when a manager takes an input: every effect is queued, sent or checked at once.

use std::sync::Arc;

use kvweft_core::{CopyOp, Effect, Ending, Input, LayerSet, LayerWait, MoveKind, Role, RunStep, Stream, Tier};
use kvweft_trace::Content;

use crate::config::Machine;
use crate::eager::Work;
use crate::engine::{NicRun, newer};
use crate::kept::Order;
use crate::memory::Owner;
use crate::ops::{CopyRun, Micro, Op, RecordRun, StepRun, stream_index};
use crate::properties;
use crate::protocol::Protocol;
use crate::world::{Found, LogEntry, World};

impl<P: Protocol> World<P> {
    /// One input, then all its effects.
    pub(crate) fn input(&mut self, machine: &Machine, engine: u8, input: Input<'_>, found: &mut Found) {
        let manager = &mut self.engines[usize::from(engine)].manager;
        let orders = match manager.handle(machine, usize::from(engine), input, &mut found.touched) {
            Ok(orders) => orders,
            Err(rejected) => return found.note(|| LogEntry::Rejected(rejected)),
        };
        // A poll hands in further inputs, behind all of these.
        let mut polls = Vec::new();
        for order in &*orders {
            found.note(|| LogEntry::Effect(engine, order.effect()));
            if let (Order::Other(Effect::Poll(timer)), false) = (order, machine.driven) {
                polls.push(*timer);
            } else {
                self.order(machine, engine, order, found);
            }
        }
        let front = &self.engines[usize::from(engine)];
        properties::accounts_balance::check(front.manager.accounts().as_ref(), &front.memory, found);
        self.watch_rest(engine, found);
        for timer in polls {
            self.poll(machine, engine, timer, found);
        }
    }

    fn order(&mut self, machine: &Machine, engine: u8, order: &Order, found: &mut Found) {
        let e = usize::from(engine);
        match order {
            Order::Copy(op, micros, apart) => {
                self.watch_work(machine, e, stream_index(op.stream), Work::Copy(op), found);
                self.queue_copy(e, op, micros, apart.as_ref());
            }
            Order::Send(op) => {
                self.watch_work(machine, e, 0, Work::Send(op), found);
                self.engines[e].nic.push(NicRun { op: Arc::clone(op), done: 0, seen: Vec::new() });
            }
            Order::Step(op, micros) => {
                self.watch_work(machine, e, stream_index(Stream::Forward), Work::Step(op), found);
                self.queue_step(e, op, micros);
            }
            Order::Message(message) => {
                let link = if machine.engines[e].role == Role::Decode { 0 } else { 1 };
                self.links[link].push_back(Arc::clone(message));
            }
            Order::Other(effect) => self.effect(machine, engine, effect, found),
        }
    }

    fn effect(&mut self, machine: &Machine, engine: u8, effect: &Effect, found: &mut Found) {
        let e = usize::from(engine);
        match *effect {
            Effect::Answer(answer) => {
                let request = answer.request.0 as usize;
                properties::reports_name_their_life::check(&self.clients[request], engine, answer, found);
                if answer.ending == Ending::Timeout {
                    self.watch_arrivals(found);
                    let arrived = self.all_arrived(machine, request);
                    properties::no_needless_timeout::check(machine, &self.clients[request], request, arrived, found);
                }
                let client = &mut self.clients[request];
                client.open &= !(1 << engine);
                if engine == machine.front() {
                    client.finished = answer.ending == Ending::Finished;
                }
            }
            Effect::Move(ref moved) => self.moved(machine, e, moved, found),
            Effect::Wake(ref wake) => self.woken(machine, e, wake, found),
            Effect::Arm(timer) => self.timers.push((engine, timer)),
            Effect::Disarm(timer) => self.timers.retain(|&known| known != (engine, timer)),
            Effect::Poll(_) | Effect::Collective(_) => {}
            Effect::Copy(_) | Effect::Send(_) | Effect::RunStep(_) | Effect::Message(_) => {
                unreachable!("these are orders of their own")
            }
        }
    }

    fn queue_copy(&mut self, engine: usize, op: &Arc<CopyOp>, micros: &Arc<[Micro]>, apart: Option<&Arc<[Micro]>>) {
        if let Some(record) = op.record {
            let state = &mut self.engines[engine].events[usize::from(record.slot.0)];
            if state.queued.is_none_or(|queued| newer(record.generation, queued)) {
                state.queued = Some(record.generation);
            }
            state.flags = LayerSet::default();
        }
        let streams = &mut self.engines[engine].streams;
        if let Some(micros) = apart {
            let record = Op::Record(RecordRun { op: Arc::clone(op), micros: Arc::clone(micros) });
            streams[stream_index(op.record_on)].push_back(record);
        }
        let run = CopyRun { op: Arc::clone(op), micros: Arc::clone(micros), done: 0, seen: Vec::new() };
        streams[stream_index(op.stream)].push_back(Op::Copy(run));
    }

    /// As on CUDA, a wait on an event that was never recorded is met at once: only waits whose records are queued stay.
    fn queue_step(&mut self, engine: usize, op: &Arc<RunStep>, micros: &Arc<[Micro]>) {
        let engine = &mut self.engines[engine];
        let stays = |wait: &LayerWait| {
            let queued = engine.events[usize::from(wait.slot.0)].queued;
            match wait.generation {
                Some(generation) => queued.is_some_and(|queued| !newer(generation, queued)),
                None => queued.is_some(),
            }
        };
        let mut op = Arc::clone(op);
        if !op.items.iter().flat_map(|item| &item.waits).all(stays) {
            let items = &mut Arc::make_mut(&mut op).items;
            items.iter_mut().for_each(|item| item.waits.retain(stays));
        }
        let ends = op.items.iter().map(|item| (item.request.0, item.first_token + item.tokens)).collect();
        engine.launched.push((op.step, ends));
        let run = StepRun { op, micros: Arc::clone(micros), done: 0 };
        engine.streams[stream_index(Stream::Forward)].push_back(Op::Step(run));
    }

    fn moved(&mut self, machine: &Machine, engine: usize, moved: &kvweft_core::Move, found: &mut Found) {
        match moved.what {
            MoveKind::Take | MoveKind::Free => self.watch_pages(engine, &moved.pages, true, found),
            MoveKind::Publish => self.watch_pages(engine, &moved.pages, false, found),
            MoveKind::Drain => {}
        }
        for (i, &block) in moved.pages.iter().enumerate() {
            match moved.what {
                MoveKind::Take => {
                    let page = self.engines[engine].memory.page_mut(block);
                    properties::free_list_is_a_set::check_taken(page, block, found);
                    page.owner = Owner::Taken;
                    page.generation = block.generation;
                }
                MoveKind::Free => {
                    let page = self.engines[engine].memory.page_mut(block);
                    properties::free_list_is_a_set::check_freed(page, block, found);
                    page.owner = Owner::Free;
                    // Whoever still reads it reads what any new owner may have written.
                    self.engines[engine].memory.poison(block);
                }
                MoveKind::Drain => self.engines[engine].memory.page_mut(block).owner = Owner::Draining,
                MoveKind::Publish => {
                    let Some(hash) = moved.blocks.get(i) else { continue };
                    let memory = &self.engines[engine].memory;
                    let config = &machine.engines[engine];
                    properties::visible_means_complete::check(machine, config, memory, block, hash.0 as u16, found);
                    properties::index_follows_kv::check(machine, config, memory, block, hash.0 as u16, found);
                }
            }
        }
    }

    fn woken(&mut self, machine: &Machine, engine: usize, wake: &kvweft_core::Wake, found: &mut Found) {
        self.watch_pages(engine, &wake.pages, false, found);
        let script = &machine.scripts[wake.request.0 as usize];
        let config = &machine.engines[engine];
        let memory = &self.engines[engine].memory;
        for (position, &block) in wake.pages.iter().enumerate() {
            properties::done_means_arrived::check(machine, config, memory, block, script.content(position), found);
        }
        if let Some(slot) = wake.metadata {
            let room = self.engines[engine].metadata[slot.0 as usize];
            properties::done_means_arrived::check_metadata(
                script,
                room,
                self.clients[wake.request.0 as usize].room,
                found,
            );
        }
    }

    /// Whether every byte of a request's cache is where its decode engine asked for it.
    fn all_arrived(&self, machine: &Machine, request: usize) -> bool {
        let Some(back) = self.engines.get(1) else { return false };
        let script = &machine.scripts[request];
        let room = self.clients[request].room;
        let metadata = back.metadata.iter().any(|row| row.is_some() && *row == room);
        let device = &back.memory.tiers[usize::from(Tier::DEVICE.0)];
        let has = |content: u16| {
            device.pages.iter().enumerate().any(|(at, page)| {
                page.owner != Owner::Free && device.cells(at).iter().all(|cell| cell.content == Content::Block(content))
            })
        };
        metadata && script.prompt.iter().all(|&content| has(content))
    }
}
