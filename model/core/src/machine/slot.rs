//! The life of a page slot.

use super::Next;
use crate::rules::Rule;

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum SlotState {
    /// On the free list.
    #[default]
    Free,
    /// Has an owner; nothing has been asked to write it.
    Reserved,
    /// A step, a copy or the peer has been asked to write it.
    Filling,
    /// Its content is complete.
    Resident,
    /// Has no owner; an operation may still touch it, and only the end of that operation frees it.
    Draining,
}

/// What happens to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SlotEvent {
    /// It leaves the free list for a new owner.
    Take,
    /// A write into it is asked for.
    Fill,
    /// Its last byte is known to be there.
    Complete,
    /// Its owner is gone while operations are outstanding.
    Drain,
    /// It goes back to the free list.
    Release,
}

impl SlotState {
    /// Every state, in order.
    pub const ALL: [SlotState; 5] =
        [SlotState::Free, SlotState::Reserved, SlotState::Filling, SlotState::Resident, SlotState::Draining];
}

impl SlotEvent {
    /// Every event, in order.
    pub const ALL: [SlotEvent; 5] =
        [SlotEvent::Take, SlotEvent::Fill, SlotEvent::Complete, SlotEvent::Drain, SlotEvent::Release];

    /// The state that the event leads to wherever it takes effect.
    pub const fn target(self) -> SlotState {
        match self {
            SlotEvent::Take => SlotState::Reserved,
            SlotEvent::Fill => SlotState::Filling,
            SlotEvent::Complete => SlotState::Resident,
            SlotEvent::Drain => SlotState::Draining,
            SlotEvent::Release => SlotState::Free,
        }
    }
}

/// The table.
pub const fn next(state: SlotState, event: SlotEvent) -> Next<SlotState> {
    use SlotEvent as E;
    use SlotState as S;
    match (state, event) {
        (S::Free, E::Take) => Next::To(S::Reserved),
        (S::Free, E::Release) => Next::Refused(Rule::FreeOnce),
        (S::Free, E::Fill | E::Complete | E::Drain) => Next::Never("a free slot has no owner that could ask"),
        (_, E::Take) => Next::Never("the free list holds free slots only, each once"),
        (S::Reserved, E::Fill) => Next::To(S::Filling),
        (S::Filling, E::Fill) => Next::Stay("a page is written in several pieces: chunks, or tokens of an answer"),
        (S::Reserved, E::Complete) => Next::Never("content comes by a write that was asked for"),
        (S::Filling, E::Complete) => Next::To(S::Resident),
        (S::Resident, E::Complete) => Next::Never("a page completes once per life"),
        (S::Resident, E::Fill) => Next::Never("a complete page is never written again in the same life"),
        (S::Draining, E::Fill) => Next::Never("nobody owns it who could ask for a write"),
        (S::Draining, E::Complete) => Next::Stay("the operation has stopped; nobody will read the result"),
        (S::Reserved, E::Drain) => {
            Next::Never("only a copy outlives an owner, and copies are of pages that were filled")
        }
        (S::Filling | S::Resident, E::Drain) => Next::To(S::Draining),
        (S::Draining, E::Drain) => Next::Never("the owner leaves once"),
        (S::Reserved | S::Filling | S::Resident | S::Draining, E::Release) => Next::To(S::Free),
    }
}
