//! From a counterexample to a trace file, and back.

use std::fmt;

use kvweft_trace::{LocalNames, StepLine, TraceFile};
use kvweft_world::{Action, Blocked, Found, Protocol, World};

use crate::liveness::loop_violation;
use crate::system::{System, Violation};
use crate::trace::{DOOMING, Failure, LOOP, Trace, mark_lines};
use crate::world_system::WorldSystem;

/// What a trace file says about where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The scenario's name.
    pub scenario: String,
    /// The digest of its text.
    pub digest: String,
    /// The rules dropped, as `rule` or `rule@site`.
    pub drops: Vec<String>,
}

/// Writes a counterexample down in words.
pub fn record<P: Protocol>(system: &WorldSystem<P>, trace: &Trace<Action>, origin: &Origin) -> TraceFile {
    let mut file = TraceFile {
        scenario: origin.scenario.clone(),
        digest: origin.digest.clone(),
        drops: origin.drops.clone(),
        violates: trace.violation.property.to_owned(),
        detail: trace.violation.detail.clone(),
        steps: Vec::with_capacity(trace.steps.len()),
    };
    let mut walk = Walk::new(system);
    for &action in &trace.steps {
        let (described, result, _) = walk.take(action);
        let (actor, action, mark) = (described.actor, described.ops.join("; "), String::new());
        file.steps.push(StepLine { actor, action, result, mark });
    }
    mark_lines(&mut file.steps, trace);
    file
}

/// A world that is walked by hand, with the names of everything it has handed out.
pub struct Walk<'a, P> {
    system: &'a WorldSystem<P>,
    /// The world as it stands.
    pub world: World<P>,
    /// The names bound so far.
    pub names: LocalNames,
}

impl<'a, P: Protocol> Walk<'a, P> {
    /// At the beginning.
    pub fn new(system: &'a WorldSystem<P>) -> Self {
        let world = World::new(&system.machine, system.managers.clone());
        Walk { system, world, names: LocalNames::default() }
    }

    /// Everything that can happen now, in words.
    pub fn choices(&self) -> Vec<(Action, kvweft_world::Described)> {
        let mut actions = Vec::new();
        self.world.enabled(&self.system.machine, &mut actions);
        let describe = |action| self.world.describe(&self.system.machine, action, &self.names);
        actions.into_iter().map(|action| (action, describe(action))).collect()
    }

    /// Everything that a fence keeps back now.
    pub fn blocked(&self) -> Vec<Blocked> {
        self.world.blocked(&self.system.machine, &self.names)
    }

    /// What the pages hold that have an owner.
    pub fn memory(&mut self) -> Vec<(String, String)> {
        self.world.memory_text(&self.system.machine, &mut self.names)
    }

    /// What would be owed if nothing more happened, as the explorer judges it.
    pub fn owed(&self) -> Vec<Violation> {
        let owed = self.world.owed(&self.system.machine);
        owed.into_iter().map(|found| Violation { property: found.property, detail: found.detail }).collect()
    }

    /// Takes an action that can happen; tells what came of it.
    pub fn take(&mut self, action: Action) -> (kvweft_world::Described, String, Vec<Violation>) {
        let machine = &self.system.machine;
        let described = self.world.describe(machine, action, &self.names);
        let mut found = Found::logging();
        self.world.step(machine, action, &mut found);
        let log = found.log.take().unwrap_or_default();
        let result = World::<P>::results(machine, &log, &mut self.names);
        let violations = found
            .violations
            .into_iter()
            .map(|violation| Violation { property: violation.property, detail: violation.detail })
            .collect();
        (described, result, violations)
    }
}

/// A trace that was replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The actions that its steps are.
    pub actions: Vec<Action>,
    /// What came of each step, and what each memory page held then.
    pub steps: Vec<ReplayedStep>,
    /// Where the recorded property was broken; `None` if it was not.
    pub violation: Option<Violation>,
    /// In what way it was broken.
    pub failure: Option<Failure>,
}

/// One step of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedStep {
    /// What came of it now.
    pub result: String,
    /// What it broke.
    pub violations: Vec<Violation>,
    /// Pages with an owner, and what they hold.
    pub memory: Vec<(String, String)>,
}

/// Why a step of a trace cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The number of the step, from 1.
    pub step: usize,
    /// What should happen.
    pub wanted: String,
    /// The fence that stands in the way, if one does.
    pub blocked: Option<Blocked>,
    /// What could happen in its place.
    pub possible: Vec<String>,
    /// What was done before.
    pub before: Vec<ReplayedStep>,
    /// The actions that were taken for it.
    pub actions: Vec<Action>,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} cannot happen: {}", self.step, self.wanted)?;
        match &self.blocked {
            Some(blocked) => write!(f, "\n  it waits for {}: {}", blocked.waits_for, blocked.owed_to),
            None => write!(f, "\n  possible here: {}", self.possible.join(" | ")),
        }
    }
}

impl std::error::Error for Impossible {}

/// Takes the steps of a trace one after the other, finding each by its words.
///
/// A line of several small operations may be taken in several steps, so that a trace survives another grain or a fence
/// that cuts it; what a line says behind `->` is not compared.
///
/// # Errors
/// The first step that cannot happen, and why.
pub fn replay<P: Protocol>(system: &WorldSystem<P>, trace: &TraceFile) -> Result<Replayed, Box<Impossible>> {
    let mut walk = Walk::new(system);
    let mut replayed = Replayed { actions: Vec::new(), steps: Vec::new(), violation: None, failure: None };
    let mut loop_start = None;
    for (i, line) in trace.steps.iter().enumerate() {
        if line.mark == LOOP {
            loop_start = Some(encoded(&walk));
        }
        let mut step = ReplayedStep { result: String::new(), violations: Vec::new(), memory: Vec::new() };
        let ops: Vec<&str> = line.action.split("; ").collect();
        let mut rest = ops.as_slice();
        while !rest.is_empty() {
            let Some((action, taken)) = find(&walk, &line.actor, rest) else {
                return Err(Box::new(impossible(&walk, i + 1, line, rest, replayed)));
            };
            let (_, result, violations) = walk.take(action);
            if !step.result.is_empty() && !result.is_empty() {
                step.result.push_str("; ");
            }
            step.result.push_str(&result);
            step.violations.extend(violations);
            replayed.actions.push(action);
            rest = &rest[taken..];
        }
        step.memory = walk.memory();
        let broken = step.violations.iter().find(|violation| violation.property == trace.violates);
        replayed.violation = broken.cloned().or(replayed.violation);
        replayed.steps.push(step);
    }
    if replayed.violation.is_some() {
        replayed.failure = Some(Failure::Step);
    } else if loop_start.is_some_and(|start| start == encoded(&walk)) {
        replayed.violation = Some(loop_violation()).filter(|violation| violation.property == trace.violates);
        replayed.failure = replayed.violation.as_ref().map(|_| Failure::Livelock);
    } else {
        replayed.violation = at_the_end(&walk, &trace.violates);
        let goes_on = trace.steps.iter().rev().skip(1).any(|line| line.mark == DOOMING);
        let failure = if goes_on { Failure::Wedge } else { Failure::Deadlock };
        replayed.failure = replayed.violation.as_ref().map(|_| failure);
    }
    Ok(replayed)
}

/// The bytes by which the search knows a world.
fn encoded<P: Protocol>(walk: &Walk<'_, P>) -> Vec<u8> {
    let mut bytes = Vec::new();
    walk.system.encode(&walk.world, &mut bytes);
    bytes
}

/// The actions that lines of a trace say, each of which may be several.
pub(crate) fn retrace<P: Protocol>(
    system: &WorldSystem<P>,
    lines: &[StepLine],
) -> Result<Vec<Action>, Box<Impossible>> {
    let trace = TraceFile { steps: lines.to_vec(), ..TraceFile::default() };
    replay(system, &trace).map(|replayed| replayed.actions)
}

/// What is owed where no step of the system is left.
fn at_the_end<P: Protocol>(walk: &Walk<'_, P>, property: &str) -> Option<Violation> {
    let moving = walk.choices().iter().any(|(action, _)| walk.world.class(action) == kvweft_world::Class::System);
    walk.owed().into_iter().find(|owed| owed.property == property && !moving)
}

/// The action whose small operations are a head of `ops`, and how many they are.
fn find<P: Protocol>(walk: &Walk<'_, P>, actor: &str, ops: &[&str]) -> Option<(Action, usize)> {
    walk.choices().into_iter().find_map(|(action, described)| {
        let fits = described.actor == actor && described.ops.len() <= ops.len();
        let same = fits && described.ops.iter().zip(ops).all(|(a, b)| a == b);
        same.then_some((action, described.ops.len()))
    })
}

fn impossible<P: Protocol>(
    walk: &Walk<'_, P>,
    step: usize,
    line: &StepLine,
    rest: &[&str],
    replayed: Replayed,
) -> Impossible {
    let blocked = walk.blocked();
    let exactly = blocked.iter().find(|blocked| blocked.actor == line.actor && rest.contains(&blocked.op.as_str()));
    let same_actor = blocked.iter().find(|blocked| blocked.actor == line.actor);
    Impossible {
        step,
        wanted: format!("{} {}", line.actor, rest.join("; ")),
        blocked: exactly.or(same_actor).cloned(),
        possible: walk.choices().into_iter().map(|(_, d)| format!("{} {}", d.actor, d.ops.join("; "))).collect(),
        before: replayed.steps,
        actions: replayed.actions,
    }
}
