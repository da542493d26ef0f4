//! The state of a world, and its actions.

use std::collections::VecDeque;
use std::sync::Arc;

use kvweft_core::{
    BlockHash, Effect, Input, LayerSet, Message, Outcome, Part, RequestId, Role, Room, RuleSet, SendOp, Submit, Timer,
    Touched,
};

use crate::actions::Action;
use crate::config::Machine;
use crate::engine::{Engine, EventSlotState, Report, SOURCES};
use crate::kept::Kept;
use crate::memory::Memory;
use crate::ops::Op;
use crate::properties::Violation;
use crate::protocol::Protocol;

/// A request as its client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) submissions: u8,
    /// Engines that still owe an answer: bit 0 the first.
    pub(crate) open: u8,
    pub(crate) room: Option<Room>,
    /// Faults injected into the present submission.
    pub(crate) faults: u8,
    /// Whether it has its answer.
    pub(crate) finished: bool,
}

pub(crate) const LOST: u8 = 1;
pub(crate) const SLOW: u8 = 2;
pub(crate) const OTHER: u8 = 4;

/// What is left of the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) aborts: u16,
    pub(crate) preempts: u16,
    pub(crate) flushes: [u8; 2],
    pub(crate) losses: u8,
    pub(crate) duplicates: u8,
    pub(crate) reorders: u8,
    pub(crate) slow: u8,
    pub(crate) part_failures: u8,
}

impl Left {
    pub(crate) fn is_spent(&self) -> bool {
        *self == Left::default()
    }
}

crate::reuse::clone_in_place!(World<P> { engines, arrived, links, clients, timers, left, next_room });

/// A whole world.
#[derive(Debug)]
pub struct World<P> {
    pub(crate) engines: Vec<Engine<P>>,
    /// Sends that have ended, and whose reports their manager has not taken.
    pub(crate) arrived: Vec<Arc<SendOp>>,
    /// Control messages under way: towards prefill, towards decode.
    pub(crate) links: [VecDeque<Arc<Message>>; 2],
    pub(crate) clients: Vec<Client>,
    pub(crate) timers: Vec<(u8, Timer)>,
    pub(crate) left: Left,
    pub(crate) next_room: u32,
}

/// An entry of the log of one step, for people.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    /// The manager of an engine asked for this.
    Effect(u8, Effect),
    /// A read found other content than it expected.
    Read {
        /// What was expected.
        expected: u16,
        /// What was found, as a content code.
        found: kvweft_trace::Content,
    },
    /// The manager refused the input.
    Rejected(kvweft_core::Rejected),
}

/// What a step showed.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Properties it broke.
    pub violations: Vec<Violation>,
    /// What it reached in the manager.
    pub touched: Touched,
    /// Rules whose fences or waits kept something back on the device.
    pub held: RuleSet,
    /// Kinds of actions that [`World::eager`] may have given out before this step and, as this step shows, should not
    /// have: one bit a kind.
    pub refuted: u128,
    /// What happened, if asked for.
    pub log: Option<Vec<LogEntry>>,
}

impl Found {
    /// One that keeps a log.
    pub fn logging() -> Found {
        Found { log: Some(Vec::new()), ..Found::default() }
    }

    pub(crate) fn violation(&mut self, property: &'static str, detail: impl FnOnce() -> String) {
        self.violations.push(Violation { property, detail: detail() });
    }

    pub(crate) fn note(&mut self, entry: impl FnOnce() -> LogEntry) {
        if let Some(log) = &mut self.log {
            log.push(entry());
        }
    }
}

impl<P: Protocol> World<P> {
    /// A world in which nothing has happened. One manager an engine, in the machine's order.
    ///
    /// # Panics
    /// If there are not as many managers as engines.
    pub fn new(machine: &Machine, managers: Vec<P>) -> World<P> {
        assert_eq!(managers.len(), machine.engines.len(), "one manager an engine");
        let engines = managers.into_iter().zip(&machine.engines).map(|(manager, config)| Engine {
            manager: Kept::new(manager),
            streams: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            nic: Vec::new(),
            reports: std::array::from_fn::<_, SOURCES, _>(|_| VecDeque::new()),
            landed: Vec::new(),
            memory: Memory::new(config.pages, config.units.len()),
            events: vec![
                EventSlotState {
                    queued: None,
                    recorded: vec![None; usize::from(config.layers)],
                    flags: LayerSet::default(),
                };
                usize::from(config.event_slots)
            ],
            metadata: vec![None; config.metadata_rows as usize],
            launched: Vec::new(),
        });
        let budget = &machine.budget;
        World {
            engines: engines.collect(),
            arrived: Vec::new(),
            links: [VecDeque::new(), VecDeque::new()],
            clients: vec![Client::default(); machine.scripts.len()],
            timers: Vec::new(),
            left: Left {
                aborts: mask(budget.aborts.len()),
                preempts: mask(budget.preempts.len()),
                flushes: budget.flushes,
                losses: budget.losses,
                duplicates: budget.duplicates,
                reorders: budget.reorders,
                slow: budget.slow,
                part_failures: budget.part_failures,
            },
            next_room: 0,
        }
    }

    /// Takes an action that is enabled.
    pub fn step(&mut self, machine: &Machine, action: Action, found: &mut Found) {
        let (spent, before) = (self.left.is_spent(), std::mem::take(&mut found.refuted));
        self.act(machine, action, found);
        let refuted = std::mem::replace(&mut found.refuted, before);
        found.refute_before(refuted, spent);
        self.note_holds(&mut found.held);
    }

    fn act(&mut self, machine: &Machine, action: Action, found: &mut Found) {
        match action {
            Action::Stream { engine, stream } => {
                self.run_stream(machine, usize::from(engine), usize::from(stream), found)
            }
            Action::Nic { at } => self.run_nic(machine, usize::from(at), found),
            Action::Report { engine, source } => {
                let report = self.engines[usize::from(engine)].reports[usize::from(source)].pop_front();
                self.report(machine, engine, report.expect("enabled"), found);
            }
            Action::Deliver { link } => self.deliver(machine, link, found),
            Action::Submit { request } => self.submit(machine, usize::from(request), found),
            Action::Abort { fault } => {
                self.left.aborts &= !(1 << fault);
                let abort = machine.budget.aborts[usize::from(fault)];
                let input = Input::Abort { request: RequestId(abort.request as u32) };
                self.input(machine, abort.engine, input, found);
            }
            Action::Preempt { fault } => {
                self.left.preempts &= !(1 << fault);
                let preempt = machine.budget.preempts[usize::from(fault)];
                let input = Input::Preempt { request: RequestId(preempt.request as u32) };
                self.input(machine, preempt.engine, input, found);
            }
            Action::Flush { engine } => {
                self.left.flushes[usize::from(engine)] -= 1;
                self.input(machine, engine, Input::Flush, found);
            }
            Action::Fire { at, slow } => self.fire(machine, usize::from(at), slow, found),
            Action::Lose { link } => {
                self.left.losses -= 1;
                let message = self.links[usize::from(link)].pop_front().expect("enabled");
                self.clients[message.request.0 as usize].faults |= LOST;
            }
            Action::Duplicate { link } => {
                self.left.duplicates -= 1;
                let message = self.links[usize::from(link)].front().expect("enabled").clone();
                self.clients[message.request.0 as usize].faults |= OTHER;
                self.links[usize::from(link)].push_back(message);
            }
            Action::DuplicateReport => {
                self.left.duplicates -= 1;
                let reports = &mut self.engines[0].reports[crate::engine::FROM_NIC];
                let report = *reports.front().expect("enabled");
                reports.push_back(report);
            }
            Action::Reorder { link } => {
                self.left.reorders -= 1;
                self.links[usize::from(link)].swap(0, 1);
                for at in 0..2 {
                    let request = self.links[usize::from(link)][at].request;
                    self.clients[request.0 as usize].faults |= OTHER;
                }
            }
            Action::FailPart { at } => {
                self.left.part_failures -= 1;
                self.fail_part(machine, usize::from(at));
            }
        }
    }

    /// Notes every rule whose fence or wait keeps something back now.
    fn note_holds(&self, held: &mut RuleSet) {
        for (e, engine) in self.engines.iter().enumerate() {
            for stream in 0..engine.streams.len() {
                if let Some(hold) = self.stream_hold(e, stream) {
                    *held = held.with(hold.owed_to);
                }
            }
        }
        for run in self.engines[0].nic.iter().filter(|run| run.done == 0) {
            if let Some(fence) = self.engines[0].unmet(&run.op.after) {
                *held = held.with(fence.owed_to);
            }
        }
    }

    fn submit(&mut self, machine: &Machine, request: usize, found: &mut Found) {
        let script = &machine.scripts[request];
        let room = machine.split().then(|| {
            self.next_room += 1;
            Room(self.next_room)
        });
        let client = &mut self.clients[request];
        client.submissions += 1;
        client.room = room;
        client.faults = 0;
        client.open = if machine.split() { 3 } else { 1 };
        let blocks: Vec<BlockHash> = script.prompt.iter().map(|&block| BlockHash(u128::from(block))).collect();
        let submit = Submit {
            request: RequestId(request as u32),
            room,
            blocks: &blocks,
            tail_tokens: 0,
            output_tokens: script.output.len() as u32,
            priority: script.priority,
        };
        for engine in (0..machine.engines.len() as u8).rev() {
            self.input(machine, engine, Input::Submit(submit), found);
        }
    }

    fn deliver(&mut self, machine: &Machine, link: u8, found: &mut Found) {
        let message = self.links[usize::from(link)].pop_front().expect("enabled");
        self.input(machine, link, Input::Peer { life: message.life, message: &message }, found);
    }

    pub(crate) fn report(&mut self, machine: &Machine, engine: u8, report: Report, found: &mut Found) {
        self.acknowledge(engine, report);
        match report {
            Report::Completed(transfer, part, outcome) => {
                self.input(machine, engine, Input::Completed { transfer, part, outcome }, found);
            }
            Report::Metadata(slot, room) => self.input(machine, engine, Input::Metadata { slot, room }, found),
            Report::Step(step) => {
                let launched = &mut self.engines[usize::from(engine)].launched;
                let position = launched.iter().position(|(known, _)| *known == step);
                let items = position.map(|at| launched.remove(at).1);
                self.input(machine, engine, Input::StepDone { step }, found);
                for &(request, tokens) in items.as_deref().unwrap_or_default() {
                    self.end_answer(machine, engine, request, tokens, found);
                }
            }
        }
    }

    /// From here on the manager knows of the end of what is reported.
    fn acknowledge(&mut self, engine: u8, report: Report) {
        let landed = &mut self.engines[usize::from(engine)].landed;
        match report {
            Report::Step(step) => landed.retain(|op| !matches!(op, Op::Step(run) if run.op.step == step)),
            Report::Completed(transfer, part, _) => {
                landed.retain(|op| !matches!(op, Op::Copy(run) if run.op.transfer == transfer));
                self.arrived.retain(|op| (op.transfer, op.part) != (transfer, part));
            }
            Report::Metadata(..) => {}
        }
    }

    /// The engine has sampled the last token of an answer.
    fn end_answer(&mut self, machine: &Machine, engine: u8, request: u32, tokens: u32, found: &mut Found) {
        let script = &machine.scripts[request as usize];
        let role = machine.engines[usize::from(engine)].role;
        if role == Role::Prefill || tokens as usize != script.pages() {
            return;
        }
        let output: Vec<BlockHash> = script.output.iter().map(|&block| BlockHash(u128::from(block))).collect();
        let input = Input::Finish { request: RequestId(request), output: &output };
        if self.engines[usize::from(engine)].manager.accepts(&input) {
            self.input(machine, engine, input, found);
        }
    }

    fn fire(&mut self, machine: &Machine, at: usize, slow: bool, found: &mut Found) {
        let (engine, timer) = self.timers.remove(at);
        if slow {
            self.left.slow -= 1;
            self.clients[timer.request.0 as usize].faults |= SLOW;
        }
        self.input(machine, engine, Input::Deadline { timer }, found);
    }

    /// Hands in everything that is queued for an engine, then the answer to its poll.
    pub(crate) fn poll(&mut self, machine: &Machine, engine: u8, timer: Timer, found: &mut Found) {
        self.watch_poll(usize::from(engine), found);
        for source in 0..SOURCES {
            while let Some(report) = self.engines[usize::from(engine)].reports[source].pop_front() {
                self.report(machine, engine, report, found);
            }
        }
        while !self.links[usize::from(engine)].is_empty() {
            self.deliver(machine, engine, found);
        }
        self.input(machine, engine, Input::Polled { timer }, found);
    }

    pub(crate) fn push_completed(
        &mut self,
        engine: usize,
        source: usize,
        transfer: kvweft_core::TransferId,
        part: Part,
    ) {
        self.engines[engine].reports[source].push_back(Report::Completed(transfer, part, Outcome::Done));
    }
}

fn mask(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}
