//! The slots of one tier and their free list.

use alloc::vec::Vec;

use crate::ids::{BlockRef, Generation, Group, PageId, Tier};
use crate::machine::Next;
use crate::machine::slot::{SlotEvent, SlotState, next};

/// A slot of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    pub(crate) generation: Generation,
}

/// All slots of one tier.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    tier: Tier,
    slots: Vec<Slot>,
    free: Vec<PageId>,
    /// (state, event) cells reached since they were last taken: bit `state * 5 + event`.
    pub(crate) cells: u32,
}

/// In which order a pool hands out its pages at the start. No verdict may depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum AllocationOrder {
    /// Page 0 first.
    #[default]
    Ascending,
    /// The last page first.
    Descending,
}

impl Pool {
    pub(crate) fn new(tier: Tier, pages: u32, order: AllocationOrder) -> Pool {
        let ids = (0..pages).map(PageId);
        let free = match order {
            AllocationOrder::Ascending => ids.rev().collect(),
            AllocationOrder::Descending => ids.collect(),
        };
        Pool { tier, slots: alloc::vec![Slot::default(); pages as usize], free, cells: 0 }
    }

    pub(crate) fn free_pages(&self) -> u32 {
        self.free.len() as u32
    }

    pub(crate) fn pages(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn free_list(&self) -> &[PageId] {
        &self.free
    }

    pub(crate) fn slot(&self, page: PageId) -> Slot {
        self.slots[page.0 as usize]
    }

    /// The page in its present life.
    pub(crate) fn block(&self, page: PageId) -> BlockRef {
        BlockRef { group: Group(0), tier: self.tier, page, generation: self.slot(page).generation }
    }

    /// Takes a page off the free list for a new owner.
    pub(crate) fn take(&mut self, strict: bool) -> Option<PageId> {
        let page = self.free.pop()?;
        self.apply(page, SlotEvent::Take, strict);
        let generation = &mut self.slots[page.0 as usize].generation;
        *generation = Generation(generation.0.wrapping_add(1));
        Some(page)
    }

    /// Puts a page on the free list. `refuse` says whether a second release is refused; returns whether it was.
    pub(crate) fn release(&mut self, page: PageId, refuse: bool) -> bool {
        let slot = self.slot(page);
        self.cells |= 1 << (slot.state as u32 * 5 + SlotEvent::Release as u32);
        if matches!(next(slot.state, SlotEvent::Release), Next::Refused(_)) && refuse {
            return true;
        }
        self.slots[page.0 as usize].state = SlotState::Free;
        self.free.push(page);
        false
    }

    /// Moves a slot. `strict` panics on what the table calls impossible; a manager with rules dropped goes on.
    pub(crate) fn apply(&mut self, page: PageId, event: SlotEvent, strict: bool) {
        let slot = &mut self.slots[page.0 as usize];
        self.cells |= 1 << (slot.state as u32 * 5 + event as u32);
        match next(slot.state, event) {
            Next::To(state) => slot.state = state,
            Next::Stay(_) => {}
            Next::Refused(rule) => panic!("{} refuses {event:?} in {:?}", rule.name(), slot.state),
            Next::Never(why) => {
                assert!(!strict, "{event:?} of page {} in {:?}: {why}", page.0, slot.state);
                slot.state = event.target();
            }
        }
    }
}
