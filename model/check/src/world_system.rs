//! A world as something to explore.

use std::borrow::Cow;

use kvweft_core::machine::request::{RequestEvent, RequestState};
use kvweft_core::machine::slot::{SlotEvent, SlotState};
use kvweft_core::{RuleSet, RuleSite, Touched};
use kvweft_trace::StepLine;
use kvweft_world::{Action, Machine, Protocol, World};

use crate::record::{self, Walk};
use crate::system::{Class, Found, Marks, System, Violation};
use crate::words::Told;

/// A world whose managers speak [`Protocol`].
pub struct WorldSystem<P> {
    /// What is fixed about it.
    pub machine: Machine,
    /// The managers of its engines, as they start.
    pub managers: Vec<P>,
}

/// The marks of a [`WorldSystem`]: rules that held something back, then cells of the two tables.
pub mod marks {
    use super::{Marks, RequestEvent, RequestState, RuleSet, RuleSite, SlotEvent, SlotState, Touched};

    const REQUEST_CELLS: usize = 128;
    const SLOT_CELLS: usize = REQUEST_CELLS + 16 * 16;

    /// The mark of a rule that held something back.
    pub fn held(at: RuleSite) -> usize {
        at.index()
    }

    /// The mark of a cell of the request table.
    pub fn request_cell(state: RequestState, event: RequestEvent) -> usize {
        REQUEST_CELLS + state as usize * 16 + event as usize
    }

    /// The mark of a cell of the slot table.
    pub fn slot_cell(state: SlotState, event: SlotEvent) -> usize {
        SLOT_CELLS + state as usize * SlotEvent::ALL.len() + event as usize
    }

    /// The layout above in words of 64: two of rules, then one for every four states, then the slot cells.
    pub(super) fn note(marks: &mut Marks, touched: &Touched, fences: RuleSet) {
        let held = touched.held.union(fences).bits();
        marks.set_word(0, held as u64);
        marks.set_word(1, (held >> 64) as u64);
        for (four, states) in touched.request_cells.chunks(4).enumerate() {
            let bits = states.iter().rev().fold(0, |bits, &state| bits << 16 | u64::from(state));
            marks.set_word(REQUEST_CELLS / 64 + four, bits);
        }
        marks.set_word(SLOT_CELLS / 64, u64::from(touched.slot_cells));
    }
}

thread_local! {
    static NAMES: std::cell::RefCell<kvweft_core::Renamer> = std::cell::RefCell::default();
}

impl<P: Protocol> System for WorldSystem<P> {
    type State = World<P>;
    type Action = Action;

    fn initial(&self) -> Vec<World<P>> {
        vec![World::new(&self.machine, self.managers.clone())]
    }

    fn enabled(&self, state: &World<P>, out: &mut Vec<Action>) {
        state.enabled(&self.machine, out);
    }

    fn step(&self, state: &mut World<P>, action: &Action, found: &mut Found) {
        let mut seen = kvweft_world::Found::default();
        state.step(&self.machine, *action, &mut seen);
        marks::note(&mut found.marks, &seen.touched, seen.held);
        found.refuted |= seen.refuted;
        found.violations.extend(seen.violations.into_iter().map(violation));
    }

    fn class(&self, state: &World<P>, action: &Action) -> Class {
        match state.class(action) {
            kvweft_world::Class::System => Class::System,
            kvweft_world::Class::Timer => Class::Timer,
            kvweft_world::Class::Environment => Class::Environment,
        }
    }

    fn done(&self, state: &World<P>) -> bool {
        state.done(&self.machine)
    }

    fn encode(&self, state: &World<P>, out: &mut Vec<u8>) {
        NAMES.with_borrow_mut(|names| state.encode(names, out));
    }

    fn canonical(&self, state: &World<P>, out: &mut Vec<u8>) {
        NAMES.with_borrow_mut(|names| state.encode_watched(names, out));
    }

    fn eager(&self, state: &World<P>, refuted: u128) -> Option<Action> {
        state.eager(&self.machine, refuted)
    }

    fn put_off(&self, state: &World<P>, refuted: u128, actions: &mut Vec<Action>) -> bool {
        state.put_off(refuted, actions);
        true
    }

    // Bytes that are wrong, and a word that came too early, leave a world worth exploring: who reads them is the symptom.
    // Behind an access that collides with another, or a page with two owners, everything is odd.
    fn survives(&self, violation: &Violation) -> bool {
        matches!(
            violation.property,
            "layouts-match"
                | "visible-means-complete"
                | "index-follows-kv"
                | "reads-see-own-content"
                | "done-means-arrived"
                | "no-needless-timeout"
        )
    }

    fn owed(&self, state: &World<P>) -> Vec<Violation> {
        state.owed(&self.machine).into_iter().map(violation).collect()
    }

    fn actor(&self, _: &World<P>, action: &Action) -> Cow<'static, str> {
        Cow::Owned(match action {
            Action::Stream { engine, stream } => format!("stream {engine} {stream}"),
            Action::Report { engine, .. } => format!("sched {engine}"),
            Action::Nic { at } => format!("nic {at}"),
            Action::Deliver { link } => format!("net {link}"),
            Action::Submit { request } => format!("client {request}"),
            Action::Fire { .. } => "timer".to_owned(),
            _ => "fault".to_owned(),
        })
    }

    fn tell(&self, _: usize, actions: &[Action]) -> Told {
        let mut walk = Walk::new(self);
        let mut told = Told::default();
        for &action in actions {
            let (described, result, _) = walk.take(action);
            let (actor, action) = (described.actor, described.ops.join("; "));
            told.lines.push(StepLine { actor, action, result, mark: String::new() });
            told.memory.push(walk.memory());
        }
        told
    }

    fn retrace(&self, _: usize, lines: &[StepLine]) -> Result<Vec<Action>, String> {
        record::retrace(self, lines).map_err(|impossible| impossible.to_string())
    }
}

fn violation(found: kvweft_world::Violation) -> Violation {
    Violation { property: found.property, detail: found.detail }
}
