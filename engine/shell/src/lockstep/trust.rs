//! Which cells hold what the world says.
//!
//! Where a request is over for its client, its steps and copies still run: they read what is free by now, and write what
//! nobody will read. A world does not follow the bytes of such writes, so that only cells are compared that were last
//! written for a request that was wanted, into the page's present life.

use std::collections::BTreeMap;

use kvweft_core::{
    BlockRef, Component, CopyOp, Effect, Generation, Manager, PageId, Part, RunStep, SendOp, StepId, Tier, TransferId,
};
use kvweft_world::{CellView, Operation, World};

/// A cell of memory: engine, tier, page, layer, component.
type Cell = (u8, Tier, PageId, u8, Component);

/// The cells that can be relied on, with the life of their page that was written.
#[derive(Debug, Default)]
pub(super) struct Trust {
    cells: BTreeMap<Cell, Generation>,
    copies: BTreeMap<(u8, TransferId), CopyOp>,
    sends: BTreeMap<(TransferId, Part), SendOp>,
    steps: BTreeMap<(u8, StepId), RunStep>,
}

fn cell(engine: u8, block: BlockRef, layer: u8, component: Component) -> Cell {
    (engine, block.tier, block.page, layer, component)
}

impl Trust {
    /// Keeps what an effect asks for.
    pub(super) fn effect(&mut self, engine: u8, effect: &Effect) {
        match effect {
            Effect::Copy(op) => drop(self.copies.insert((engine, op.transfer), op.clone())),
            Effect::Send(op) => drop(self.sends.insert((op.transfer, op.part), op.clone())),
            Effect::RunStep(op) => drop(self.steps.insert((engine, op.step), op.clone())),
            _ => {}
        }
    }

    /// Follows what an operation has written.
    pub(super) fn operation(&mut self, world: &World<Manager>, operation: Operation) {
        match operation {
            Operation::WriteEnd { engine, step, layer } => {
                let Some(op) = self.steps.get(&(engine, step)) else { return };
                for item in &op.items {
                    let wanted = world.wants(engine, item.request, item.life);
                    for &page in &item.pages[(item.write_from as usize).min(item.pages.len())..] {
                        for component in [Component::IndexK, Component::Kv] {
                            let cell = cell(engine, page, layer, component);
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
                let Some(op) = self.copies.get(&(engine, transfer)) else { return };
                let pairs: Vec<(BlockRef, BlockRef)> = op.pairs.iter().map(|pair| (pair.from, pair.to)).collect();
                for (from, to) in pairs {
                    self.moved((engine, from), (engine, to), layer, component);
                }
            }
            Operation::SendEnd { transfer, part } => {
                let Some(op) = self.sends.get(&(transfer, part)).cloned() else { return };
                for moved in &op.parts {
                    for layer in (0..64).filter(|&layer| moved.layers.has(layer)) {
                        for pair in &op.pairs {
                            self.moved((0, pair.from), (1, pair.to), layer, moved.component);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// What arrives is as good as what was there.
    fn moved(&mut self, from: (u8, BlockRef), to: (u8, BlockRef), layer: u8, component: Component) {
        let good = self.cells.get(&cell(from.0, from.1, layer, component)) == Some(&from.1.generation);
        let to_cell = cell(to.0, to.1, layer, component);
        if good {
            self.cells.insert(to_cell, to.1.generation);
        } else {
            self.cells.remove(&to_cell);
        }
    }

    /// Whether a cell was last written for somebody who was wanted, into the present life of its page.
    pub(super) fn of(&self, engine: usize, view: &CellView) -> bool {
        let cell = cell(engine as u8, view.block, view.layer, view.component);
        self.cells.get(&cell) == Some(&view.block.generation)
    }
}
