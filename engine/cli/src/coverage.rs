//! What the suite reached: cells of the manager's tables, and rules that held something back.

use kvweft_check::system::Marks;
use kvweft_check::world_system::marks;
use kvweft_core::RuleSite;
use kvweft_core::machine::Next;
use kvweft_core::machine::request::{self, RequestEvent, RequestState};
use kvweft_core::machine::slot::{self, SlotEvent, SlotState};

/// Cells that the tables allow and no world can reach, and why.
const BEYOND_WORLDS: &[(SlotState, SlotEvent, &str)] = &[(
    SlotState::Filling,
    SlotEvent::Fill,
    "a page of a world holds one token and is written by one step; the property tests of the manager reach it",
)];

/// What a suite reached, and what it should have reached.
pub(crate) struct Coverage {
    /// Cells reached.
    pub(crate) reached: usize,
    /// Cells that cannot be reached, with the reason.
    pub(crate) unreachable: Vec<(String, &'static str)>,
    /// Cells that can be reached and were not.
    pub(crate) missed: Vec<String>,
    /// Rules that held something back.
    pub(crate) held: usize,
    /// Rules that held nothing back.
    pub(crate) idle: Vec<String>,
}

impl Coverage {
    /// Reads the marks of a suite.
    pub(crate) fn of(marks: &Marks) -> Coverage {
        let mut coverage =
            Coverage { reached: 0, unreachable: Vec::new(), missed: Vec::new(), held: 0, idle: Vec::new() };
        for state in RequestState::ALL {
            for event in RequestEvent::ALL {
                let never = match request::next(state, event) {
                    Next::Never(why) => Some(why),
                    _ => None,
                };
                let hit = marks.contains(marks::request_cell(state, event));
                coverage.cell(format!("request {state:?} {event:?}"), hit, never);
            }
        }
        for state in SlotState::ALL {
            for event in SlotEvent::ALL {
                let beyond = BEYOND_WORLDS.iter().find(|(s, e, _)| (*s, *e) == (state, event));
                let never = match (slot::next(state, event), beyond) {
                    (Next::Never(why), _) | (_, Some(&(_, _, why))) => Some(why),
                    _ => None,
                };
                let hit = marks.contains(marks::slot_cell(state, event));
                coverage.cell(format!("slot {state:?} {event:?}"), hit, never);
            }
        }
        for at in RuleSite::all() {
            if marks.contains(marks::held(at)) {
                coverage.held += 1;
            } else {
                coverage.idle.push(at.to_string());
            }
        }
        coverage
    }

    fn cell(&mut self, name: String, hit: bool, never: Option<&'static str>) {
        match (hit, never) {
            (true, _) => self.reached += 1,
            (false, Some(why)) => self.unreachable.push((name, why)),
            (false, None) => self.missed.push(name),
        }
    }

    /// Whether the suite reached all that it should.
    pub(crate) fn complete(&self) -> bool {
        self.missed.is_empty() && self.idle.is_empty()
    }

    /// The coverage in words.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "coverage with every rule on: {} cells of the manager's tables reached, {} cannot be (kvweft list cells), {} missed\n",
            self.reached,
            self.unreachable.len(),
            self.missed.len()
        );
        text += &format!("{} rules at their sites held something back, {} never did\n", self.held, self.idle.len());
        for missed in &self.missed {
            text += &format!("  missed: {missed}\n");
        }
        for idle in &self.idle {
            text += &format!("  never held anything back: {idle}\n");
        }
        text
    }
}
