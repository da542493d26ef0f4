//! From the log of a run of threads to a shortest trace of a world.
//!
//! A log names every begin and end of an operation, a world cuts them into actions; so a line is taken as the action that
//! begins with it, and lines that the action has brought with it are passed over. Between a failure on threads and its
//! violation in the world may lie a few actions that no line tells of, since an access is written down when it is over: they
//! are searched for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kvweft_check::build::CacheSystem;
use kvweft_check::record::{Origin, record};
use kvweft_check::shrink::shrink;
use kvweft_check::system::{Class, Found, System, Violation};
use kvweft_check::trace::Trace;
use kvweft_core::{Direction, Effect, Manager, PartKind, TransferId};
use kvweft_trace::TraceFile;
use kvweft_trace::event::{Event, InputRecord, Line, Phase};
use kvweft_world::{Action, Operation, World};

/// States that are looked at behind the last line, at most.
const STATES_MAX: usize = 20_000;

/// What a log says of a world.
#[derive(Debug)]
pub struct Explained {
    /// The shrunk trace, if the world breaks a property on this way.
    pub trace: Option<TraceFile>,
    /// Lines that are about something the world cannot do at that point.
    pub unmatched: usize,
    /// Actions until the property was broken, before they were shrunk.
    pub actions: usize,
    /// How many of them no line tells of.
    pub searched: usize,
}

/// What a line says.
enum Said {
    /// The device did this.
    Did(Operation),
    /// A client, a timer or an operator did this.
    Input(Action),
    /// Nothing that a world knows as an action.
    Nothing,
}

/// A world that follows a log.
struct Follower<'a> {
    system: &'a CacheSystem,
    world: World<Manager>,
    actions: Vec<Action>,
    violation: Option<Violation>,
    /// Operations of actions that were taken and whose lines are still to come.
    covered: Vec<Operation>,
    /// Which queue the completion of a copy comes from.
    sources: BTreeMap<(u8, TransferId), u8>,
    /// Engines that are handing in what is queued: the world does that within the action of the timer.
    polling: [bool; 2],
    unmatched: usize,
}

/// Follows a log in the world of its scenario until a property is broken, and shrinks the way there.
pub fn explain(system: &CacheSystem, lines: &[Line], origin: &Origin) -> Explained {
    let mut follower = Follower::new(system);
    for line in lines {
        if follower.violation.is_some() {
            break;
        }
        follower.line(&line.event);
    }
    let told = follower.actions.len();
    if follower.violation.is_none() {
        follower.search();
    }
    let Follower { actions, violation, unmatched, .. } = follower;
    let searched = actions.len() - told;
    let length = actions.len();
    let trace = violation.map(|violation| {
        let shrunk = shrink(system, &actions, violation.property);
        let violation = shrunk.violation.unwrap_or(violation);
        let trace = Trace { initial: 0, steps: shrunk.actions, violation, dooming_step: None, loop_from: None };
        record(system, &trace, origin)
    });
    Explained { trace, unmatched, actions: length, searched }
}

impl<'a> Follower<'a> {
    fn new(system: &'a CacheSystem) -> Self {
        Follower {
            system,
            world: system.initial().remove(0),
            actions: Vec::new(),
            violation: None,
            covered: Vec::new(),
            sources: BTreeMap::new(),
            polling: [false; 2],
            unmatched: 0,
        }
    }

    fn line(&mut self, event: &Event) {
        match self.said(event) {
            Said::Nothing => {}
            Said::Input(action) => self.take(action),
            Said::Did(operation) => self.did(operation),
        }
    }

    fn said(&mut self, event: &Event) -> Said {
        match *event {
            Event::Copy { engine, transfer, layer, component, phase, .. } => Said::Did(match phase {
                Phase::Begin => Operation::CopyBegin { engine, transfer, layer, component },
                Phase::End => Operation::CopyEnd { engine, transfer, layer, component },
            }),
            Event::Record { engine, transfer, layer, .. } => Said::Did(Operation::Record { engine, transfer, layer }),
            Event::Read { engine, step, layer, component, .. } => {
                Said::Did(Operation::Read { engine, step, layer, component })
            }
            Event::Write { engine, step, layer, phase, .. } => Said::Did(match phase {
                Phase::Begin => Operation::WriteBegin { engine, step, layer },
                Phase::End => Operation::WriteEnd { engine, step, layer },
            }),
            Event::Send { transfer, part, phase, .. } => Said::Did(match phase {
                Phase::Begin => Operation::SendBegin { transfer, part },
                Phase::End => Operation::SendEnd { transfer, part },
            }),
            Event::SendFailed { transfer, part } => Said::Did(Operation::SendFail { transfer, part }),
            Event::Nothing { engine, step } => Said::Did(Operation::Nothing { engine, step }),
            Event::Input { engine, ref input, ref effects, .. } => self.input(engine, input, effects),
            Event::Run(_) | Event::Lost { .. } | Event::End { .. } => Said::Nothing,
        }
    }

    fn input(&mut self, engine: u8, input: &InputRecord, effects: &[Effect]) -> Said {
        for effect in effects {
            if let Effect::Copy(op) = effect {
                self.sources.insert((engine, op.transfer), 1 + u8::from(op.direction == Direction::Offload));
            }
        }
        let polling = &mut self.polling[usize::from(engine)];
        let handed_in = std::mem::replace(polling, *polling && !matches!(input, InputRecord::Polled { .. }));
        if handed_in {
            return Said::Nothing;
        }
        *polling = effects.iter().any(|effect| matches!(effect, Effect::Poll(_)));
        let report = |source| Said::Did(Operation::Report { engine, source });
        match *input {
            InputRecord::Submit { request, .. } => {
                // A world hands a request to both engines at once. On threads decode is the last to know of it, and the
                // first to do something for it.
                let known = usize::from(engine) + 1 == self.system.machine.engines.len();
                if known { Said::Input(Action::Submit { request: request.0 as u8 }) } else { Said::Nothing }
            }
            InputRecord::StepDone { .. } => report(0),
            InputRecord::Completed { transfer, part, .. } if part.kind == PartKind::Whole => {
                report(self.sources.get(&(engine, transfer)).copied().unwrap_or(3))
            }
            InputRecord::Completed { .. } | InputRecord::Metadata { .. } => report(3),
            InputRecord::Peer { .. } => Said::Did(Operation::Deliver { link: engine }),
            InputRecord::Abort { request } => {
                self.fault(&self.system.machine.budget.aborts, request.0, engine, |fault| Action::Abort { fault })
            }
            InputRecord::Preempt { request } => {
                self.fault(&self.system.machine.budget.preempts, request.0, engine, |fault| Action::Preempt { fault })
            }
            InputRecord::Flush => Said::Input(Action::Flush { engine }),
            // Parts of the report or the record before them, or nothing that the shell asks for.
            InputRecord::Finish { .. }
            | InputRecord::LayerReady { .. }
            | InputRecord::Submitted { .. }
            | InputRecord::SubmitFailed { .. }
            | InputRecord::Polled { .. } => Said::Nothing,
            InputRecord::Deadline { timer } => {
                let fires = |action: &Action| self.world.timer_of(*action) == Some((engine, timer));
                let found = self.choices().into_iter().map(|(action, _)| action).find(fires);
                self.unmatched += usize::from(found.is_none());
                found.map_or(Said::Nothing, Said::Input)
            }
        }
    }

    fn fault(
        &self,
        faults: &[kvweft_world::SubjectFault],
        request: u32,
        engine: u8,
        action: impl Fn(u8) -> Action,
    ) -> Said {
        let fits = |fault: &kvweft_world::SubjectFault| fault.request == request as usize && fault.engine == engine;
        faults.iter().position(fits).map_or(Said::Nothing, |at| Said::Input(action(at as u8)))
    }

    /// Takes the action that begins with an operation, unless an action before has brought it along.
    fn did(&mut self, operation: Operation) {
        if let Some(at) = self.covered.iter().position(|covered| *covered == operation) {
            self.covered.remove(at);
            return;
        }
        let begins = |(_, operations): &(Action, Vec<Operation>)| operations.first() == Some(&operation);
        match self.choices().into_iter().find(begins) {
            Some((action, operations)) => {
                self.covered.extend(operations.into_iter().skip(1));
                self.take(action);
            }
            None => self.unmatched += 1,
        }
    }

    fn choices(&self) -> Vec<(Action, Vec<Operation>)> {
        let mut enabled = Vec::new();
        self.system.enabled(&self.world, &mut enabled);
        let of = |action| (action, self.world.operations(&self.system.machine, action));
        enabled.into_iter().map(of).collect()
    }

    fn take(&mut self, action: Action) {
        let mut enabled = Vec::new();
        self.system.enabled(&self.world, &mut enabled);
        if !enabled.contains(&action) {
            self.unmatched += 1;
            return;
        }
        let mut found = Found::default();
        self.system.step(&mut self.world, &action, &mut found);
        self.actions.push(action);
        self.violation = found.violations.into_iter().next();
    }

    /// Looks for the shortest way on that breaks a property, by actions of the system alone.
    fn search(&mut self) {
        let mut seen = BTreeSet::new();
        let mut queue = VecDeque::from([(self.world.clone(), Vec::new())]);
        while let Some((world, way)) = queue.pop_front() {
            let mut enabled = Vec::new();
            self.system.enabled(&world, &mut enabled);
            for action in enabled {
                if self.system.class(&world, &action) != Class::System {
                    continue;
                }
                let (mut next, mut found) = (world.clone(), Found::default());
                self.system.step(&mut next, &action, &mut found);
                let way: Vec<Action> = way.iter().copied().chain([action]).collect();
                if let Some(violation) = found.violations.into_iter().next() {
                    self.actions.extend(way);
                    self.violation = Some(violation);
                    return;
                }
                let mut bytes = Vec::new();
                self.system.encode(&next, &mut bytes);
                if seen.len() < STATES_MAX && seen.insert(bytes) {
                    queue.push_back((next, way));
                }
            }
        }
    }
}
