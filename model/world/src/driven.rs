//! A world that is driven from outside: by what somebody else has done, one thing at a time.
//!
//! Nothing happens here by itself. Whoever drives it hands in inputs and operations in the order in which they were
//! observed, and is told which one could not have happened, and why.

use std::fmt;

use kvweft_core::{Effect, FenceOn, Input, PeerLife, RequestId, Room, RuleSite, Timer, TransferId};

use crate::config::{Grain, Machine, Script};
use crate::engine::{HoldOn, Report};
use crate::operation::{Operation, operation};
use crate::ops::Op;
use crate::properties::Violation;
use crate::protocol::Protocol;
use crate::world::{Client, Found, LogEntry, World};

/// Why something that was observed could not have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAllowed {
    /// What is wrong, in words.
    pub why: String,
    /// The rule whose fence stands in the way, if one does.
    pub owed_to: Option<RuleSite>,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        match self.owed_to {
            Some(owed_to) => write!(f, " ({owed_to})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotAllowed {}

fn not_allowed<T>(why: impl Into<String>) -> Result<T, NotAllowed> {
    Err(NotAllowed { why: why.into(), owed_to: None })
}

/// A world and who drives it.
#[derive(Debug)]
pub struct Driven<P> {
    /// What is fixed about it; requests may be added.
    machine: Machine,
    world: World<P>,
    /// Layer events that were recorded and not yet handed in.
    recorded: Vec<(u8, TransferId, u8)>,
    /// Polls that were asked for and not yet answered.
    polls: Vec<(u8, Timer)>,
}

impl<P: Protocol> Driven<P> {
    /// A world in which nothing has happened. Scripts give the contents that each request expects at each position.
    ///
    /// # Panics
    /// If there are not as many managers as engines.
    pub fn new(mut machine: Machine, managers: Vec<P>) -> Driven<P> {
        machine.driven = true;
        machine.grain = Grain::Default;
        let world = World::new(&machine, managers);
        Driven { machine, world, recorded: Vec::new(), polls: Vec::new() }
    }

    /// The world as it stands.
    pub fn world(&self) -> &World<P> {
        &self.world
    }

    /// What is fixed about it.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Something that is queued or under way and should not be once nothing is left to do.
    pub fn left_over(&self) -> Option<String> {
        for (at, engine) in self.world.engines.iter().enumerate() {
            if engine.streams.iter().any(|stream| !stream.is_empty()) {
                return Some(format!("an operation is queued on a stream of engine {at}"));
            }
            if let Some(report) = engine.reports.iter().flatten().next() {
                return Some(format!("nobody has taken a report of engine {at}: {report:?}"));
            }
        }
        if let Some((engine, transfer, layer)) = self.recorded.first() {
            return Some(format!("engine {engine} was not told that layer {layer} of {transfer} has landed"));
        }
        if !self.polls.is_empty() {
            return Some("a poll was not answered".to_owned());
        }
        if !self.world.engines[0].nic.is_empty() {
            return Some("a send is under way".to_owned());
        }
        self.world.links.iter().any(|link| !link.is_empty()).then(|| "a message is under way".to_owned())
    }

    /// One more request; its id is its place.
    pub fn add_script(&mut self, script: Script) -> RequestId {
        self.machine.scripts.push(script);
        self.world.clients.push(Client::default());
        RequestId(self.machine.scripts.len() as u32 - 1)
    }

    /// The manager of an engine takes an input: every effect, or why it refused.
    ///
    /// # Errors
    /// If the input could not have come now.
    pub fn input(
        &mut self,
        engine: u8,
        input: Input<'_>,
        violations: &mut Vec<Violation>,
    ) -> Result<Result<Vec<Effect>, String>, NotAllowed> {
        if usize::from(engine) >= self.world.engines.len() {
            return not_allowed(format!("there is no engine {engine}"));
        }
        self.expect(engine, &input)?;
        let mut found = Found::logging();
        self.world.input(&self.machine, engine, input, &mut found);
        violations.append(&mut found.violations);
        let mut effects = Vec::new();
        for entry in found.log.unwrap_or_default() {
            match entry {
                LogEntry::Effect(_, effect) => effects.push(effect),
                LogEntry::Rejected(why) => return Ok(Err(why.to_string())),
                LogEntry::Read { .. } => {}
            }
        }
        let polls = effects.iter().filter_map(|effect| match effect {
            Effect::Poll(timer) => Some((engine, *timer)),
            _ => None,
        });
        self.polls.extend(polls);
        Ok(Ok(effects))
    }

    /// Whether an input can come now; takes what it is about.
    fn expect(&mut self, engine: u8, input: &Input<'_>) -> Result<(), NotAllowed> {
        match *input {
            Input::Submit(submit) => self.submitted(submit.request, submit.room),
            Input::LayerReady { transfer, layer } => {
                let event = (engine, transfer, layer);
                let Some(at) = self.recorded.iter().position(|known| *known == event) else {
                    return not_allowed(format!("the event of layer {layer} has not been recorded"));
                };
                self.recorded.remove(at);
                Ok(())
            }
            Input::Completed { transfer, part, outcome } => {
                self.take_report(engine, &Report::Completed(transfer, part, outcome), "the operation has not ended")
            }
            Input::StepDone { step } => {
                self.take_report(engine, &Report::Step(step), "the step has not ended")?;
                let launched = &mut self.world.engines[usize::from(engine)].launched;
                launched.retain(|(known, _)| *known != step);
                Ok(())
            }
            Input::Metadata { slot, room } => {
                self.take_report(engine, &Report::Metadata(slot, room), "no such row has been written")
            }
            Input::Peer { life, message } => self.delivered(engine, life, message),
            Input::Deadline { timer } => {
                let Some(at) = self.world.timers.iter().position(|known| *known == (engine, timer)) else {
                    return not_allowed("the timer is not armed");
                };
                self.world.timers.remove(at);
                Ok(())
            }
            Input::Polled { timer } => self.polled(engine, timer),
            Input::Abort { .. }
            | Input::Finish { .. }
            | Input::Preempt { .. }
            | Input::Submitted { .. }
            | Input::SubmitFailed { .. }
            | Input::Flush => Ok(()),
        }
    }

    fn submitted(&mut self, request: RequestId, room: Option<Room>) -> Result<(), NotAllowed> {
        let split = self.machine.split();
        let Some(client) = self.world.clients.get_mut(request.0 as usize) else {
            return not_allowed(format!("request {} is not known", request.0));
        };
        // The second engine of a pair takes the same submission.
        if client.submissions == 0 || !split || client.room != room {
            client.submissions = client.submissions.saturating_add(1);
            client.room = room;
            client.faults = 0;
            client.open = if split { 3 } else { 1 };
        }
        Ok(())
    }

    fn take_report(&mut self, engine: u8, report: &Report, otherwise: &str) -> Result<(), NotAllowed> {
        let reports = &mut self.world.engines[usize::from(engine)].reports;
        if let Some(queue) = reports.iter_mut().find(|queue| queue.front() == Some(report)) {
            queue.pop_front();
            return Ok(());
        }
        if reports.iter().any(|queue| queue.contains(report)) {
            return not_allowed("another report of the same queue comes first");
        }
        not_allowed(format!("nothing reports this: {otherwise}, or it was reported before"))
    }

    fn delivered(&mut self, engine: u8, life: PeerLife, message: &kvweft_core::Message) -> Result<(), NotAllowed> {
        let link = &mut self.world.links[usize::from(engine)];
        if link.front().is_some_and(|front| **front == *message) && message.life == life {
            link.pop_front();
            return Ok(());
        }
        let there = link.iter().any(|other| **other == *message);
        not_allowed(if there { "another message was sent before it" } else { "no such message is under way" })
    }

    fn polled(&mut self, engine: u8, timer: Timer) -> Result<(), NotAllowed> {
        let Some(at) = self.polls.iter().position(|known| *known == (engine, timer)) else {
            return not_allowed("no poll was asked for");
        };
        let reports = self.world.engines[usize::from(engine)].reports.iter().any(|queue| !queue.is_empty());
        if reports || !self.world.links[usize::from(engine)].is_empty() {
            return not_allowed("a poll is answered while something is still queued");
        }
        self.polls.remove(at);
        Ok(())
    }

    /// A control message is lost.
    ///
    /// # Errors
    /// If none is under way.
    pub fn lost(&mut self, link: u8) -> Result<(), NotAllowed> {
        let message = self.world.links.get_mut(usize::from(link)).and_then(|link| link.pop_front());
        match message {
            Some(_) => Ok(()),
            None => not_allowed("no message is under way that could be lost"),
        }
    }

    /// The device makes a small operation.
    ///
    /// # Errors
    /// If it could not have been made now.
    pub fn operation(&mut self, wanted: Operation, violations: &mut Vec<Violation>) -> Result<(), NotAllowed> {
        let mut found = Found::default();
        match wanted {
            Operation::SendBegin { .. } | Operation::SendEnd { .. } | Operation::SendFail { .. } => {
                self.send(wanted, &mut found)?;
            }
            Operation::Report { .. } | Operation::Deliver { .. } => {
                return not_allowed("reports and messages are handed in as inputs");
            }
            Operation::CopyBegin { engine, .. }
            | Operation::CopyEnd { engine, .. }
            | Operation::Record { engine, .. }
            | Operation::Read { engine, .. }
            | Operation::WriteBegin { engine, .. }
            | Operation::WriteEnd { engine, .. }
            | Operation::Nothing { engine, .. } => self.stream(usize::from(engine), wanted, &mut found)?,
        }
        violations.append(&mut found.violations);
        Ok(())
    }

    fn stream(&mut self, engine: usize, wanted: Operation, found: &mut Found) -> Result<(), NotAllowed> {
        let Some(front) = self.world.engines.get(engine) else {
            return not_allowed(format!("there is no engine {engine}"));
        };
        let next = |stream: usize| {
            let op = front.streams[stream].front()?;
            let micro = op.micros().get(usize::from(op.done())).copied();
            match (op, micro) {
                (_, Some(micro)) => Some((operation(op, micro, engine as u8), vec![micro])),
                (Op::Step(run), None) => {
                    Some((Operation::Nothing { engine: engine as u8, step: run.op.step }, Vec::new()))
                }
                _ => None,
            }
        };
        let heads: Vec<_> = (0..front.streams.len()).filter_map(|stream| Some((stream, next(stream)?))).collect();
        let Some((stream, (_, micros))) = heads.iter().find(|(_, (operation, _))| *operation == wanted) else {
            let heads: Vec<String> = heads.iter().map(|(_, (operation, _))| operation.to_string()).collect();
            let possible = if heads.is_empty() { "nothing is queued".to_owned() } else { heads.join(" or ") };
            return not_allowed(format!("no stream comes to this next; next is {possible}"));
        };
        if let Some(hold) = self.world.stream_hold(engine, *stream) {
            let waits_for = match hold.on {
                HoldOn::Fence(fence) => format!("it must wait for {}", fence_text(fence)),
                HoldOn::Layer(_, layer) => format!("it must wait for the reload event of layer {layer}"),
            };
            return Err(NotAllowed { why: waits_for, owed_to: Some(hold.owed_to) });
        }
        let (stream, micros) = (*stream, micros.clone());
        self.world.run_micros(&self.machine, engine, stream, micros.len(), found);
        if let Operation::Record { engine, transfer, layer: Some(layer) } = wanted {
            self.recorded.push((engine, transfer, layer));
        }
        Ok(())
    }

    fn send(&mut self, wanted: Operation, found: &mut Found) -> Result<(), NotAllowed> {
        let front = &self.world.engines[0];
        let failing = |run: &crate::engine::NicRun| match wanted {
            Operation::SendFail { transfer, part } => {
                run.done > 0 && (run.op.transfer, run.op.part) == (transfer, part)
            }
            _ => Operation::next_of(run) == wanted,
        };
        let Some(at) = front.nic.iter().position(failing) else {
            return not_allowed("no such write was posted, or it is at another point");
        };
        let run = &front.nic[at];
        if let Some(fence) = front.unmet(&run.op.after).filter(|_| run.done == 0) {
            let why = format!("it must wait for {}", fence_text(fence.on));
            return Err(NotAllowed { why, owed_to: Some(fence.owed_to) });
        }
        if matches!(wanted, Operation::SendFail { .. }) {
            self.world.fail_part(&self.machine, at);
        } else {
            self.world.run_nic(&self.machine, at, found);
        }
        Ok(())
    }
}

fn fence_text(on: FenceOn) -> String {
    match on {
        FenceOn::Step(step) => format!("the end of step {}", step.0),
        FenceOn::Load(slot, generation) => {
            format!("every layer of the reload that records event slot {} in generation {}", slot.0, generation.0)
        }
    }
}
