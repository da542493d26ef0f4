//! Worlds made of parts that are numbered, and steps that are remembered.
//!
//! Most steps of a world do what they did in many worlds before: they look at a few of its parts, and those held the same
//! things then. So a world is kept as a list of numbers, one a [part](parts), and what came of a step is remembered
//! under the numbers of the parts that it looked at. The same goes for what can happen, and for how an engine is encoded.
//!
//! Nothing here knows what a step looks at: [parts](crate::part) note it while the step is taken on a world put together
//! from them. So there is one machine, and nothing that must be kept in line with it.
//!
//! Steps are not watched for what refutes eager actions: that looks at all that is under way, and a reduced search takes
//! whole worlds.
//!
//! Numbers are given out in the order in which values are met, which with several threads is anybody's. They are compared
//! for equality alone, and never leave this module.

mod arena;
mod memo;
mod parts;
mod table;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use kvweft_core::{Renamer, RuleSet, Touched};

use crate::actions::{Action, Class, class_of};
use crate::config::Machine;
use crate::encode::{self, PEER};
use crate::engine::Report;
use crate::part::Part;
use crate::properties::Violation;
use crate::protocol::Protocol;
use crate::world::{Found, World};
use arena::{Arena, Values};
use memo::Memo;
use parts::{Numbers, SIDES, Tables};
use table::{Table, key};

/// A world that is known by the numbers of its parts; or a whole one, where there is nothing to gain from them.
#[derive(Debug)]
pub struct Composed<P>(Form<P>);

#[derive(Debug)]
enum Form<P> {
    Parts(Parts),
    Whole(Box<World<P>>),
}

#[derive(Clone, Copy, Debug)]
struct Parts {
    numbers: Numbers,
    /// The numbers of how its sides look: they follow from those of the parts.
    faces: [u32; SIDES.len()],
}

impl Parts {
    fn set(&mut self, written: &[(u8, u32)]) {
        for &(part, number) in written {
            self.numbers[usize::from(part)] = number;
        }
    }
}

impl<P: Clone> Clone for Composed<P> {
    fn clone(&self) -> Self {
        Composed(match &self.0 {
            Form::Parts(parts) => Form::Parts(*parts),
            Form::Whole(world) => Form::Whole(world.clone()),
        })
    }

    fn clone_from(&mut self, source: &Self) {
        match (&mut self.0, &source.0) {
            (Form::Parts(parts), Form::Parts(source)) => *parts = *source,
            (Form::Whole(world), Form::Whole(source)) => world.clone_from(source),
            _ => *self = source.clone(),
        }
    }
}

/// What puts worlds together: all parts that were met, and what is remembered of them.
pub struct Composer<P> {
    machine: Machine,
    answers_max: u32,
    /// Nothing more is to be remembered.
    full: AtomicBool,
    tables: Tables<P>,
    memo: Memo,
    /// From a face and a step to the face after it.
    turns: Table,
    steps: Arena<Step>,
    /// Reports, what remains when one is taken from its queue, and from both to the whole step.
    reports: Values<Report>,
    taken: Arena<(u32, Vec<(u8, u32)>)>,
    tellings: Table,
    faces: Arena<Face>,
    lists: Arena<Box<[Action]>>,
}

/// What came of a step.
struct Step {
    /// The sides that it changed.
    sides: Box<[usize]>,
    written: Box<[(u8, u32)]>,
    violations: Box<[Violation]>,
    touched: Touched,
}

/// What can be seen of one side of a world alone: of an engine, or of what is between them. A face looks at all parts of
/// its side and at no others, so that what it turns into follows from a step.
#[derive(Default)]
struct Face {
    /// Its encoding, in names of its own.
    encoded: Box<[u8]>,
    names: Renamer,
    /// Rules that keep something back.
    held: RuleSet,
    /// What an engine can do by itself, and its network.
    actions: Box<[Action]>,
    sends: Box<[Action]>,
    /// All that can happen beside that, while nothing of it can and while something can, unless it depends on an engine.
    others: [Option<Box<[Action]>>; 2],
    /// Whether no client waits and no message is under way.
    quiet: bool,
}

/// Questions, as the memo knows them: actions come first.
const OTHER_ACTIONS: u32 = 1 << 24;
const DONE: u32 = OTHER_ACTIONS + 2;
const FACE: u32 = DONE + 1;
/// With engine and report.
const REPORTS: u32 = 1 << 30;

impl<P: Protocol> Composer<P> {
    /// One for worlds of this machine. Once it remembers more than `answers_max` steps and the like, every step leaves a whole
    /// world behind.
    pub fn new(machine: Machine, answers_max: u32) -> Self {
        Composer {
            machine,
            answers_max,
            full: AtomicBool::new(false),
            tables: Tables::default(),
            memo: Memo::default(),
            turns: Table::default(),
            steps: Arena::default(),
            reports: Values::default(),
            taken: Arena::default(),
            tellings: Table::default(),
            faces: Arena::default(),
            lists: Arena::default(),
        }
    }

    /// A world in its parts, unless it has one engine only: then most steps change most of it.
    pub fn compose(&self, mut world: World<P>) -> Composed<P> {
        if !self.machine.split() {
            return Composed(Form::Whole(Box::new(world)));
        }
        let mut parts = Parts { numbers: Numbers::default(), faces: [0; SIDES.len()] };
        parts.set(&self.tables.written(&mut world));
        parts.faces = std::array::from_fn(|side| self.face(&parts, side));
        Composed(Form::Parts(parts))
    }

    /// A world put together.
    pub fn world<'a>(&self, composed: &'a Composed<P>) -> Cow<'a, World<P>> {
        match &composed.0 {
            Form::Parts(parts) => Cow::Owned(self.tables.world(&parts.numbers)),
            Form::Whole(world) => Cow::Borrowed(world),
        }
    }

    /// As [`World::step`].
    pub fn step(&self, composed: &mut Composed<P>, action: Action, found: &mut Found) {
        if let Form::Parts(parts) = &composed.0
            && self.full.load(Ordering::Relaxed)
        {
            composed.0 = Form::Whole(Box::new(self.tables.world(&parts.numbers)));
        }
        let parts = match &mut composed.0 {
            Form::Parts(parts) => parts,
            Form::Whole(world) => return world.step(&self.machine, action, found),
        };
        let number = self.step_number(parts, action);
        let step = self.steps.at(number);
        found.violations.extend_from_slice(&step.violations);
        found.touched.unite(&step.touched);
        parts.set(&step.written);
        for &side in &step.sides {
            let turn = key(parts.faces[side] + 1, number);
            let after = self.turns.get(turn).unwrap_or_else(|| {
                let after = self.face(parts, side) + 1;
                self.turns.put(turn, after);
                after
            });
            parts.faces[side] = after - 1;
        }
        found.held = self.faces(parts).fold(found.held, |held, face| held.union(face.held));
    }

    /// The number of what comes of a step.
    fn step_number(&self, parts: &Parts, action: Action) -> u32 {
        let act = |world: &mut World<P>, act: &dyn Fn(&mut World<P>, &mut Found)| {
            let mut found = Found::default();
            act(world, &mut found);
            self.steps.push(Step::of(self.tables.written(world), found))
        };
        let Action::Report { engine, source } = action else {
            let all = |world: &mut World<P>, found: &mut Found| world.act(&self.machine, action, found);
            return self.ask(action.code(), parts, |world| act(world, &all));
        };
        // What a manager does with a report does not depend on those behind it, of which there are many orders.
        let taken = self.ask(action.code(), parts, |world| {
            let report = world.engines[usize::from(engine)].reports[usize::from(source)].pop_front().expect("enabled");
            self.taken.push((self.reports.number(&report), self.tables.written(world)))
        });
        let (report, written) = self.taken.at(taken);
        let mut left = *parts;
        left.set(written);
        let told = |world: &mut World<P>, found: &mut Found| {
            world.report(&self.machine, engine, **self.reports.at(*report), found);
        };
        let told = self.ask(REPORTS | u32::from(engine) << 24 | report, &left, |world| act(world, &told));
        let both = key(taken + 1, told);
        let number = self.tellings.get(both).unwrap_or_else(|| {
            let number = self.steps.push(self.steps.at(told).after(written)) + 1;
            self.tellings.put(both, number);
            number
        });
        number - 1
    }

    /// As [`World::enabled`].
    pub fn enabled(&self, composed: &Composed<P>, out: &mut Vec<Action>) {
        let parts = match &composed.0 {
            Form::Parts(parts) => parts,
            Form::Whole(world) => return world.enabled(&self.machine, out),
        };
        let [first, second, between] = parts.faces.map(|face| self.faces.at(face));
        for actions in [&first.actions, &second.actions, &first.sends] {
            out.extend_from_slice(actions);
        }
        let busy = !out.is_empty();
        out.extend_from_slice(between.others[usize::from(busy)].as_ref().unwrap_or_else(|| {
            self.lists.at(self.ask(OTHER_ACTIONS + u32::from(busy), parts, |world| {
                self.lists.push(world.other_actions(&self.machine, busy).into())
            }))
        }));
    }

    /// As [`World::class`].
    pub fn class(&self, composed: &Composed<P>, action: &Action) -> Class {
        match &composed.0 {
            Form::Parts(parts) => {
                class_of(action, || (self.tables.timers(&parts.numbers), self.tables.clients(&parts.numbers)))
            }
            Form::Whole(world) => world.class(action),
        }
    }

    /// As [`World::done`].
    pub fn done(&self, composed: &Composed<P>) -> bool {
        match &composed.0 {
            Form::Parts(parts) => {
                let quiet = self.faces.at(parts.faces[2]).quiet;
                quiet && self.ask(DONE, parts, |world| u32::from(world.done(&self.machine))) == 1
            }
            Form::Whole(world) => world.done(&self.machine),
        }
    }

    /// As [`World::encode`].
    pub fn encode(&self, composed: &Composed<P>, names: &mut Renamer, out: &mut Vec<u8>) {
        let parts = match &composed.0 {
            Form::Parts(parts) => parts,
            Form::Whole(world) => return world.encode(names, out),
        };
        let faces = parts.faces.map(|face| self.faces.at(face));
        faces.iter().for_each(|face| out.extend_from_slice(&face.encoded));
        let names = |place| match place {
            0 | PEER => &faces[0].names,
            1 => &faces[1].names,
            _ => &faces[2].names,
        };
        encode::ties(self.machine.engines.len(), names, out);
    }

    fn faces(&self, parts: &Parts) -> impl Iterator<Item = &Face> {
        parts.faces.into_iter().map(|face| self.faces.at(face))
    }

    /// The number of the face of one side.
    fn face(&self, parts: &Parts, side: usize) -> u32 {
        self.ask(FACE + side as u32, parts, |world| {
            let mut face = Face::of(world, side);
            let looked_at = |part| self.tables.looked_at(world).contains(&part);
            debug_assert!(SIDES[side].clone().all(looked_at), "a face looks at all of its side");
            if side == 2 {
                face.others = [false, true].map(|busy| self.others(parts, busy));
            }
            self.faces.push(face)
        })
    }

    /// What can happen beside what engines do, if no engine must be asked.
    fn others(&self, parts: &Parts, busy: bool) -> Option<Box<[Action]>> {
        let mut world = self.tables.world(&parts.numbers);
        let others = world.other_actions(&self.machine, busy);
        self.tables.looked_at(&mut world).iter().all(|part| SIDES[2].contains(part)).then(|| others.into())
    }

    /// The number of the answer to a question.
    #[inline]
    fn ask(&self, question: u32, parts: &Parts, answer: impl FnOnce(&mut World<P>) -> u32) -> u32 {
        self.memo.recall(question, &parts.numbers).unwrap_or_else(|| self.answer(question, parts, answer))
    }

    fn answer(&self, question: u32, parts: &Parts, answer: impl FnOnce(&mut World<P>) -> u32) -> u32 {
        let mut world = self.tables.world(&parts.numbers);
        Part::<()>::count_anew();
        let answer = answer(&mut world);
        self.memo.remember(question, &parts.numbers, &self.tables.looked_at(&mut world), answer);
        if self.steps.len() + self.faces.len() + self.lists.len() > self.answers_max || self.memo.is_full() {
            self.full.store(true, Ordering::Relaxed);
        }
        answer
    }
}

impl Step {
    fn of(written: Vec<(u8, u32)>, found: Found) -> Step {
        let changed = |side: &usize| written.iter().any(|&(at, _)| SIDES[*side].contains(&at.into()));
        Step {
            sides: (0..SIDES.len()).filter(changed).collect(),
            written: written.into(),
            violations: found.violations.into(),
            touched: found.touched,
        }
    }

    /// The same behind other writes.
    fn after(&self, written: &[(u8, u32)]) -> Step {
        let found = Found { violations: self.violations.to_vec(), touched: self.touched, ..Found::default() };
        Step::of(written.iter().chain(&self.written).copied().collect(), found)
    }
}

impl Face {
    fn of<P: Protocol>(world: &World<P>, side: usize) -> Face {
        let mut face = Face::default();
        let (mut names, mut encoded) = (Renamer::default(), Vec::new());
        if side < world.engines.len() {
            world.encode_engine(side, &mut names, &mut encoded);
            let (mut actions, mut sends) = (Vec::new(), Vec::new());
            world.engine_actions(side, &mut actions);
            if side == 0 {
                world.nic_actions(&mut sends);
            }
            face = Face { held: world.holds(side), actions: actions.into(), sends: sends.into(), ..face };
        } else if side == 2 {
            world.encode_between(&mut names, &mut encoded);
            face.quiet = world.quiet();
        }
        Face { encoded: encoded.into(), names, ..face }
    }
}
