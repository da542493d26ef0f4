//! What managers have asked their devices for, kept by name: for those who follow operations one by one.

use std::collections::HashMap;

use kvweft_core::{BlockRef, Component, CopyOp, Effect, PageId, Part, RunStep, SendOp, StepId, Tier, TransferId};

/// A cell of memory: engine, tier, page, layer, component.
pub(crate) type Cell = (u8, Tier, PageId, u8, Component);

/// A page of an engine.
pub(crate) type PageOf = (u8, BlockRef);

/// One page of one layer and component that a copy or send moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) from: PageOf,
    pub(crate) to: PageOf,
    pub(crate) layer: u8,
    pub(crate) component: Component,
}

/// Copies, sends and steps by their names.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    copies: HashMap<(u8, TransferId), CopyOp>,
    sends: HashMap<(TransferId, Part), SendOp>,
    steps: HashMap<(u8, StepId), RunStep>,
}

/// The cell of a page.
pub(crate) fn cell((engine, page): PageOf, layer: u8, component: Component) -> Cell {
    (engine, page.tier, page.page, layer, component)
}

impl Asked {
    /// Keeps what an effect asks for.
    pub(crate) fn keep(&mut self, engine: u8, effect: &Effect) {
        match effect {
            Effect::Copy(op) => drop(self.copies.insert((engine, op.transfer), op.clone())),
            Effect::Send(op) => drop(self.sends.insert((op.transfer, op.part), op.clone())),
            Effect::RunStep(op) => drop(self.steps.insert((engine, op.step), op.clone())),
            _ => {}
        }
    }

    /// A forward step.
    pub(crate) fn step(&self, engine: u8, step: StepId) -> Option<&RunStep> {
        self.steps.get(&(engine, step))
    }

    /// What a copy moves of one layer and component, in the order of its pairs.
    pub(crate) fn copied(&self, engine: u8, transfer: TransferId, layer: u8, component: Component) -> Vec<Moved> {
        let pairs = self.copies.get(&(engine, transfer)).map_or(&[][..], |op| op.pairs.as_slice());
        let moved =
            |pair: &kvweft_core::Pair| Moved { from: (engine, pair.from), to: (engine, pair.to), layer, component };
        pairs.iter().map(moved).collect()
    }

    /// What a part of a send moves: part by part, layer by layer, in the order of its pairs.
    pub(crate) fn sent(&self, transfer: TransferId, part: Part) -> Vec<Moved> {
        let Some(op) = self.sends.get(&(transfer, part)) else { return Vec::new() };
        let mut moves = Vec::new();
        for part in &op.parts {
            for layer in (0..64).filter(|&layer| part.layers.has(layer)) {
                let moved = |pair: &kvweft_core::Pair| Moved {
                    from: (0, pair.from),
                    to: (1, pair.to),
                    layer,
                    component: part.component,
                };
                moves.extend(op.pairs.iter().map(moved));
            }
        }
        moves
    }
}
