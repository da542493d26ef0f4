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

use std::cell::RefCell;
use std::sync::Arc;

use kvweft_core::{Renamer, RuleSet, Touched};

use crate::actions::{Action, Class, class_of};
use crate::config::Machine;
use crate::part::Part;
use crate::properties::Violation;
use crate::protocol::Protocol;
use crate::world::{Found, World};
use arena::Arena;
use memo::Memo;
use parts::{Numbers, OF_ENGINE, Tables};

/// A world that is known by the numbers of its parts.
#[derive(Clone, Copy, Debug)]
pub struct Composed {
    numbers: Numbers,
    /// The numbers of how its engines look: they follow from those of the parts.
    faces: [u32; 2],
}

/// What puts worlds together: all parts that were met, and what is remembered of them.
pub struct Composer<P> {
    machine: Machine,
    /// Whether steps look for what refutes eager actions.
    watches: bool,
    tables: Tables<P>,
    memo: Memo,
    steps: Arena<Step>,
    faces: Arena<Face>,
    lists: Arena<Box<[Action]>>,
}

/// What came of a step.
struct Step {
    written: Box<[(u8, u32)]>,
    violations: Box<[Violation]>,
    touched: Touched,
    refuted: u64,
}

/// What can be seen of an engine without asking anybody else.
struct Face {
    /// Its encoding, in names of its own.
    encoded: Box<[u8]>,
    names: Arc<Renamer>,
    /// Rules that keep something back.
    held: RuleSet,
    /// What it can do by itself, and its network.
    actions: Box<[Action]>,
    sends: Box<[Action]>,
}

thread_local! {
    static NAMES: RefCell<Renamer> = RefCell::default();
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
            steps: Arena::default(),
            faces: Arena::default(),
            lists: Arena::default(),
        }
    }

    /// A world in its parts.
    pub fn compose(&self, mut world: World<P>) -> Composed {
        let mut composed = Composed { numbers: Numbers::default(), faces: [0; 2] };
        self.set(&mut composed, &self.tables.written(&mut world));
        composed
    }

    /// A world put together.
    pub fn world(&self, composed: &Composed) -> World<P> {
        self.tables.world(self.machine.engines.len(), &composed.numbers)
    }

    /// As [`World::step`].
    pub fn step(&self, composed: &mut Composed, action: Action, found: &mut Found) {
        let step = self.steps.at(self.ask(action.code(), composed, |world| {
            let mut found = Found { watches: self.watches, ..Found::default() };
            world.act(&self.machine, action, &mut found);
            self.steps.push(Step {
                written: self.tables.written(world).into(),
                violations: found.violations.into(),
                touched: found.touched,
                refuted: found.refuted,
            })
        }));
        found.violations.extend_from_slice(&step.violations);
        found.touched.unite(&step.touched);
        found.refuted |= step.refuted;
        self.set(composed, &step.written);
        found.held = self.engines(composed).fold(found.held, |held, face| held.union(face.held));
    }

    /// As [`World::enabled`].
    pub fn enabled(&self, composed: &Composed, out: &mut Vec<Action>) {
        self.engines(composed).for_each(|face| out.extend_from_slice(&face.actions));
        out.extend_from_slice(&self.faces.at(composed.faces[0]).sends);
        let busy = !out.is_empty();
        out.extend_from_slice(self.lists.at(self.ask(OTHER_ACTIONS + u32::from(busy), composed, |world| {
            let mut others = Vec::new();
            world.other_actions(&self.machine, busy, &mut others);
            self.lists.push(others.into())
        })));
    }

    /// As [`World::class`].
    pub fn class(&self, composed: &Composed, action: &Action) -> Class {
        class_of(action, || (self.tables.timers(&composed.numbers), self.tables.clients(&composed.numbers)))
    }

    /// As [`World::done`].
    pub fn done(&self, composed: &Composed) -> bool {
        self.ask(DONE, composed, |world| u32::from(world.done(&self.machine))) == 1
    }

    /// As [`World::encode`].
    pub fn encode(&self, composed: &Composed, out: &mut Vec<u8>) {
        NAMES.with_borrow_mut(|names| {
            names.clear();
            for (e, face) in self.engines(composed).enumerate() {
                out.extend_from_slice(&face.encoded);
                World::<P>::adopt_engine(e, &face.names, names);
            }
            self.tables.rest(&composed.numbers).encode(self.machine.engines.len(), names, out);
        });
    }

    fn engines(&self, composed: &Composed) -> impl Iterator<Item = &Face> {
        composed.faces.into_iter().take(self.machine.engines.len()).map(|face| self.faces.at(face))
    }

    /// Gives a world other parts.
    fn set(&self, composed: &mut Composed, written: &[(u8, u32)]) {
        let mut engines = 0;
        for &(part, number) in written {
            composed.numbers[usize::from(part)] = number;
            engines |= 1 << (usize::from(part) / OF_ENGINE);
        }
        for e in (0..self.machine.engines.len()).filter(|e| engines >> e & 1 == 1) {
            composed.faces[e] = self.ask(FACE + e as u32, composed, |world| self.faces.push(Face::of(world, e)));
        }
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
    fn of<P: Protocol>(world: &World<P>, e: usize) -> Face {
        let (mut names, mut encoded) = (Renamer::default(), Vec::new());
        world.encode_engine(e, &mut names, &mut encoded);
        names.settle();
        let (mut actions, mut sends) = (Vec::new(), Vec::new());
        world.engine_actions(e, &mut actions);
        if e == 0 {
            world.nic_actions(&mut sends);
        }
        Face {
            encoded: encoded.into(),
            names: Arc::new(names),
            held: world.holds(e),
            actions: actions.into(),
            sends: sends.into(),
        }
    }
}
