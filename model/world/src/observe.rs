//! What can be seen of a world from outside: for those who hold something else against it.

use kvweft_core::{BlockRef, Component, Group, PageId, RequestId, Room, Tier, Timer};
use kvweft_trace::Content;

use crate::actions::Action;
use crate::config::Machine;
use crate::memory::Owner;
use crate::protocol::Protocol;
use crate::world::World;

/// One cell of memory: one component of one layer of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellView {
    /// The page, in its present generation.
    pub block: BlockRef,
    /// The layer.
    pub layer: u8,
    /// The component.
    pub component: Component,
    /// Whose bytes it holds.
    pub content: Content,
    /// Whether a write is under way.
    pub under_write: bool,
    /// Whether the page has an owner.
    pub owned: bool,
}

impl<P: Protocol> World<P> {
    /// Every cell of an engine, pool by pool, page by page.
    pub fn cells(&self, machine: &Machine, engine: usize) -> Vec<CellView> {
        let mut views = Vec::new();
        for (t, pages) in self.engines[engine].memory.tiers.iter().enumerate() {
            for (at, page) in pages.pages.iter().enumerate() {
                let (tier, generation) = (Tier(t as u8), page.generation);
                let block = BlockRef { group: Group(0), tier, page: PageId(at as u32), generation };
                for (cell, &(layer, component)) in pages.cells(at).iter().zip(&machine.engines[engine].units) {
                    views.push(CellView {
                        block,
                        layer,
                        component,
                        content: cell.content,
                        under_write: cell.writers > 0,
                        owned: page.owner != Owner::Free,
                    });
                }
            }
        }
        views
    }

    /// The engine and the timer that an action lets run out.
    pub fn timer_of(&self, action: Action) -> Option<(u8, Timer)> {
        match action {
            Action::Fire { at, .. } => self.timers.get(usize::from(at)).copied(),
            _ => None,
        }
    }

    /// The hand-over of the present submission of a request.
    pub fn room_of(&self, request: RequestId) -> Option<Room> {
        self.clients.get(request.0 as usize)?.room
    }

    /// Whether results of this life of a request are still wanted by an engine.
    pub fn wants(&self, engine: u8, request: RequestId, life: kvweft_core::Life) -> bool {
        self.engines.get(usize::from(engine)).is_some_and(|engine| engine.manager.wants(request, life))
    }

    /// Whether every engine has answered the present submission of a request.
    pub fn answered(&self, request: RequestId) -> bool {
        self.clients.get(request.0 as usize).is_some_and(|client| client.submissions > 0 && client.open == 0)
    }

    /// How often a request has been submitted.
    pub fn submissions(&self, request: RequestId) -> u8 {
        self.clients.get(request.0 as usize).map_or(0, |client| client.submissions)
    }
}
