//! Which cells hold what the world says.
//!
//! Where a request is over for its client, its steps and copies still run: they read what is free by now, and write what
//! nobody will read. A world does not follow the bytes of such writes, so that only cells are compared that were last
//! written for a request that was wanted, into the page's present life.

use std::collections::BTreeMap;

use kvweft_core::{Component, Effect, Generation, Manager};
use kvweft_world::{CellView, Operation, World};

use crate::asked::{Asked, Cell, Moved, cell};

/// The cells that can be relied on, with the life of their page that was written.
#[derive(Debug, Default)]
pub(super) struct Trust {
    cells: BTreeMap<Cell, Generation>,
    asked: Asked,
}

impl Trust {
    /// Keeps what an effect asks for.
    pub(super) fn effect(&mut self, engine: u8, effect: &Effect) {
        self.asked.keep(engine, effect);
    }

    /// Follows what an operation has written.
    pub(super) fn operation(&mut self, world: &World<Manager>, operation: Operation) {
        match operation {
            Operation::WriteEnd { engine, step, layer } => {
                let Some(op) = self.asked.step(engine, step) else { return };
                for item in &op.items {
                    let wanted = world.wants(engine, item.request, item.life);
                    for &page in &item.pages[(item.write_from as usize).min(item.pages.len())..] {
                        for component in [Component::IndexK, Component::Kv] {
                            let cell = cell((engine, page), layer, component);
                            if wanted {
                                self.cells.insert(cell, page.generation);
                            } else {
                                self.cells.remove(&cell);
                            }
                        }
                    }
                }
            }
            Operation::CopyEnd { engine, transfer, layer, component } => {
                let moves = self.asked.copied(engine, transfer, layer, component);
                self.moved(&moves);
            }
            Operation::SendEnd { transfer, part } => {
                let moves = self.asked.sent(transfer, part);
                self.moved(&moves);
            }
            _ => {}
        }
    }

    /// What arrives is as good as what was there.
    fn moved(&mut self, moves: &[Moved]) {
        for moved in moves {
            let (from, to) = (moved.from, moved.to);
            let good = self.cells.get(&cell(from, moved.layer, moved.component)) == Some(&from.1.generation);
            let target = cell(to, moved.layer, moved.component);
            if good {
                self.cells.insert(target, to.1.generation);
            } else {
                self.cells.remove(&target);
            }
        }
    }

    /// Whether a cell was last written for somebody who was wanted, into the present life of its page.
    pub(super) fn of(&self, engine: usize, view: &CellView) -> bool {
        let cell = cell((engine as u8, view.block), view.layer, view.component);
        self.cells.get(&cell) == Some(&view.block.generation)
    }
}
