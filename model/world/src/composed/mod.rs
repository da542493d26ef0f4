//! Worlds made of parts that are numbered, and steps that are remembered.
//!
//! Most steps of a world do what they did in many worlds before: they look at a few of its parts, and those held the same
//! things then. So a world is kept as a list of numbers, one a [part](parts), and what came of a step is remembered
//! under the numbers of the parts that it looked at. The same goes for what can happen, and for how an engine is encoded.
//!
//! Nothing here knows what a step looks at: [parts](crate::part) note it while the step is taken on a world put together
//! from them. So there is one machine, and nothing that must be kept in line with it.
//!
//! Numbers are given out in the order in which values are met, which with several threads is anybody's. They are compared
//! for equality alone, and never leave this module.

mod arena;
mod memo;
mod parts;
mod table;

use kvweft_core::{Renamer, RuleSet, Touched};

use crate::actions::{Action, Class, class_of};
use crate::config::Machine;
use crate::encode::{self, PEER};
use crate::part::Part;
use crate::properties::Violation;
use crate::protocol::Protocol;
use crate::world::{Found, World};
use arena::Arena;
use memo::Memo;
use parts::{Numbers, SIDES, Tables};
use table::{Table, key};

/// A world that is known by the numbers of its parts.
#[derive(Clone, Copy, Debug)]
pub struct Composed {
    numbers: Numbers,
    /// The numbers of how its sides look: they follow from those of the parts.
    faces: [u32; SIDES.len()],
}

/// What puts worlds together: all parts that were met, and what is remembered of them.
pub struct Composer<P> {
    machine: Machine,
    /// Whether steps look for what refutes eager actions.
    watches: bool,
    tables: Tables<P>,
    memo: Memo,
    /// From a face and a step to the face after it.
    turns: Table,
    steps: Arena<Step>,
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
    refuted: u64,
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

impl<P: Protocol> Composer<P> {
    /// One for worlds of this machine. With `watches`, steps also look for what refutes eager actions.
    pub fn new(machine: Machine, watches: bool) -> Self {
        Composer {
            machine,
            watches,
            tables: Tables::default(),
            memo: Memo::default(),
            turns: Table::default(),
            steps: Arena::default(),
            faces: Arena::default(),
            lists: Arena::default(),
        }
    }

    /// A world in its parts.
    pub fn compose(&self, mut world: World<P>) -> Composed {
        let mut composed = Composed { numbers: Numbers::default(), faces: [0; SIDES.len()] };
        for (part, number) in self.tables.written(&mut world) {
            composed.numbers[usize::from(part)] = number;
        }
        composed.faces = std::array::from_fn(|side| self.face(&composed, side));
        composed
    }

    /// A world put together.
    pub fn world(&self, composed: &Composed) -> World<P> {
        self.tables.world(self.machine.engines.len(), &composed.numbers)
    }

    /// As [`World::step`].
    pub fn step(&self, composed: &mut Composed, action: Action, found: &mut Found) {
        let number = self.ask(action.code(), composed, |world| {
            let mut found = Found { watches: self.watches, ..Found::default() };
            world.act(&self.machine, action, &mut found);
            let written = self.tables.written(world);
            let sides = SIDES.iter().enumerate().filter(|(_, side)| written.iter().any(|&(at, _)| side.contains(&at.into())));
            self.steps.push(Step {
                sides: sides.map(|(side, _)| side).collect(),
                written: written.into(),
                violations: found.violations.into(),
                touched: found.touched,
                refuted: found.refuted,
            })
        });
        let step = self.steps.at(number);
        found.violations.extend_from_slice(&step.violations);
        found.touched.unite(&step.touched);
        found.refuted |= step.refuted;
        for &(part, number) in &step.written {
            composed.numbers[usize::from(part)] = number;
        }
        for &side in &step.sides {
            let turn = key(composed.faces[side] + 1, number);
            let after = self.turns.get(turn).unwrap_or_else(|| {
                let after = self.face(composed, side) + 1;
                self.turns.put(turn, after);
                after
            });
            composed.faces[side] = after - 1;
        }
        found.held = self.faces(composed).fold(found.held, |held, face| held.union(face.held));
    }

    /// As [`World::enabled`].
    pub fn enabled(&self, composed: &Composed, out: &mut Vec<Action>) {
        let [first, second, between] = composed.faces.map(|face| self.faces.at(face));
        for actions in [&first.actions, &second.actions, &first.sends] {
            out.extend_from_slice(actions);
        }
        let busy = !out.is_empty();
        out.extend_from_slice(between.others[usize::from(busy)].as_ref().unwrap_or_else(|| {
            self.lists.at(self.ask(OTHER_ACTIONS + u32::from(busy), composed, |world| {
                self.lists.push(world.other_actions(&self.machine, busy).into())
            }))
        }));
    }

    /// As [`World::class`].
    pub fn class(&self, composed: &Composed, action: &Action) -> Class {
        class_of(action, || (self.tables.timers(&composed.numbers), self.tables.clients(&composed.numbers)))
    }

    /// As [`World::done`].
    pub fn done(&self, composed: &Composed) -> bool {
        self.faces.at(composed.faces[2]).quiet
            && self.ask(DONE, composed, |world| u32::from(world.done(&self.machine))) == 1
    }

    /// As [`World::encode`].
    pub fn encode(&self, composed: &Composed, out: &mut Vec<u8>) {
        self.faces(composed).for_each(|face| out.extend_from_slice(&face.encoded));
        let faces = composed.faces.map(|face| self.faces.at(face));
        let names = |place| match place {
            0 | PEER => &faces[0].names,
            1 => &faces[1].names,
            _ => &faces[2].names,
        };
        encode::ties(self.machine.engines.len(), names, out);
    }

    fn faces(&self, composed: &Composed) -> impl Iterator<Item = &Face> {
        composed.faces.into_iter().map(|face| self.faces.at(face))
    }

    /// The number of the face of one side.
    fn face(&self, composed: &Composed, side: usize) -> u32 {
        self.ask(FACE + side as u32, composed, |world| {
            let mut face = Face::of(world, side);
            if side == 2 {
                face.others = [false, true].map(|busy| self.others(composed, busy));
            }
            self.faces.push(face)
        })
    }

    /// What can happen beside what engines do, if no engine must be asked.
    fn others(&self, composed: &Composed, busy: bool) -> Option<Box<[Action]>> {
        let mut world = self.world(composed);
        let others = world.other_actions(&self.machine, busy);
        self.tables.looked_at(&mut world).iter().all(|part| SIDES[2].contains(part)).then(|| others.into())
    }

    /// The number of the answer to a question.
    #[inline]
    fn ask(&self, question: u32, composed: &Composed, answer: impl FnOnce(&mut World<P>) -> u32) -> u32 {
        self.memo.recall(question, &composed.numbers).unwrap_or_else(|| {
            let mut world = self.world(composed);
            Part::<()>::count_anew();
            let answer = answer(&mut world);
            self.memo.remember(question, &composed.numbers, &self.tables.looked_at(&mut world), answer);
            answer
        })
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
        names.settle();
        Face { encoded: encoded.into(), names, ..face }
    }
}
