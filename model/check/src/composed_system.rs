//! A world as something to explore fast: its states are lists of numbers, and its steps are remembered.

use std::borrow::Cow;
use std::cell::RefCell;

use kvweft_core::Renamer;
use kvweft_trace::StepLine;
use kvweft_world::{Action, Composed, Composer, Protocol};

use crate::system::{Class, Found, System, Violation};
use crate::words::Told;
use crate::world_system::{WorldSystem, note};

/// Steps and faces that are remembered at most: about 1 KiB each, with the parts that go with them.
pub const ANSWERS_MAX: u32 = 1 << 20;

/// The same system as a [`WorldSystem`]: equal steps, equal encodings. A state is 88 bytes, and means nothing to another
/// `ComposedSystem`.
pub struct ComposedSystem<'a, P> {
    worlds: &'a WorldSystem<P>,
    composer: Composer<P>,
}

thread_local! {
    static NAMES: RefCell<Renamer> = RefCell::default();
}

impl<P: Protocol> WorldSystem<P> {
    /// The same system, faster to search as a whole. It has nothing to reduce a search by.
    pub fn composed(&self) -> ComposedSystem<'_, P> {
        self.composed_within(ANSWERS_MAX)
    }

    /// As [`WorldSystem::composed`], remembering so many steps at most.
    pub fn composed_within(&self, answers_max: u32) -> ComposedSystem<'_, P> {
        ComposedSystem { worlds: self, composer: Composer::new(self.machine.clone(), answers_max) }
    }
}

impl<P: Protocol> System for ComposedSystem<'_, P> {
    type State = Composed<P>;
    type Action = Action;

    fn initial(&self) -> Vec<Composed<P>> {
        self.worlds.initial().into_iter().map(|world| self.composer.compose(world)).collect()
    }

    fn enabled(&self, state: &Composed<P>, out: &mut Vec<Action>) {
        self.composer.enabled(state, out);
    }

    fn step(&self, state: &mut Composed<P>, action: &Action, found: &mut Found) {
        let mut seen = kvweft_world::Found::default();
        self.composer.step(state, *action, &mut seen);
        note(seen, found);
    }

    fn class(&self, state: &Composed<P>, action: &Action) -> Class {
        self.composer.class(state, action).into()
    }

    fn done(&self, state: &Composed<P>) -> bool {
        self.composer.done(state)
    }

    fn encode(&self, state: &Composed<P>, out: &mut Vec<u8>) {
        NAMES.with_borrow_mut(|names| self.composer.encode(state, names, out));
    }

    fn survives(&self, violation: &Violation) -> bool {
        self.worlds.survives(violation)
    }

    fn owed(&self, state: &Composed<P>) -> Vec<Violation> {
        self.worlds.owed(&self.composer.world(state))
    }

    fn actor(&self, state: &Composed<P>, action: &Action) -> Cow<'static, str> {
        self.worlds.actor(&self.composer.world(state), action)
    }

    fn tell(&self, initial: usize, actions: &[Action]) -> Told {
        self.worlds.tell(initial, actions)
    }

    fn retrace(&self, initial: usize, lines: &[StepLine]) -> Result<Vec<Action>, String> {
        self.worlds.retrace(initial, lines)
    }
}
