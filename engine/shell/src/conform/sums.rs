//! What was written where, as the sums in a log tell, and whether readers have found it.

use std::collections::HashMap;

use kvweft_core::{
    BlockRef, Component, Config, CopyOp, Effect, Manager, MoveKind, PageId, Part, RunStep, SendOp, StepId, Tier,
    TransferId,
};
use kvweft_trace::event::{Event, Phase, Sum};
use kvweft_world::World;

/// A cell of memory: engine, tier, page, layer, component.
type Cell = (u8, Tier, PageId, u8, Component);

/// The sums of all cells that have been written, and the operations under way that will write more.
pub(crate) struct Sums {
    written: HashMap<Cell, Sum>,
    copies: HashMap<(u8, TransferId), CopyOp>,
    sends: HashMap<(TransferId, Part), SendOp>,
    steps: HashMap<(u8, StepId), RunStep>,
    /// Layers of index keys, for each engine.
    has_index: Vec<Vec<bool>>,
}

impl Sums {
    pub(crate) fn new(engines: &[Config]) -> Sums {
        let has_index = engines.iter().map(|config| {
            let geometry = &config.geometry;
            (0..geometry.layers).map(|layer| geometry.layout(layer, Component::IndexK).is_some()).collect()
        });
        Sums {
            written: HashMap::new(),
            copies: HashMap::new(),
            sends: HashMap::new(),
            steps: HashMap::new(),
            has_index: has_index.collect(),
        }
    }

    /// Keeps what an effect asks for.
    pub(crate) fn effect(&mut self, engine: u8, effect: &Effect) {
        match effect {
            Effect::Copy(op) => drop(self.copies.insert((engine, op.transfer), op.clone())),
            Effect::Send(op) => drop(self.sends.insert((op.transfer, op.part), op.clone())),
            Effect::RunStep(op) => drop(self.steps.insert((engine, op.step), op.clone())),
            // Nobody may rely on what a free page holds.
            Effect::Move(moved) if moved.what == MoveKind::Free => {
                for page in &moved.pages {
                    for layer in 0..self.has_index[usize::from(engine)].len() as u8 {
                        for component in [Component::IndexK, Component::Kv] {
                            self.written.remove(&cell(engine, *page, layer, component));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Compares what an event has read, and keeps what it has written; how many cells were compared.
    pub(crate) fn compare(&mut self, event: &Event, world: &World<Manager>) -> Result<u64, String> {
        match *event {
            Event::Copy { engine, transfer, layer, component, phase: Phase::End, ref sums, .. } => {
                self.copied(engine, transfer, layer, component, sums)
            }
            Event::Read { engine, step, layer, component, ref sums } => {
                self.read(world, engine, step, (layer, component), sums)
            }
            Event::Write { engine, step, layer, phase: Phase::End, ref sums } => self.wrote(engine, step, layer, sums),
            Event::Send { transfer, part, phase: Phase::End, ref sums } => self.sent(transfer, part, sums),
            Event::SendFailed { transfer, part } => {
                self.sends.remove(&(transfer, part));
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    fn copied(
        &mut self,
        engine: u8,
        transfer: TransferId,
        layer: u8,
        component: Component,
        sums: &[Sum],
    ) -> Result<u64, String> {
        let Some(op) = self.copies.get(&(engine, transfer)) else { return Ok(0) };
        let moves: Vec<(Cell, Cell)> = op
            .pairs
            .iter()
            .map(|pair| (cell(engine, pair.from, layer, component), cell(engine, pair.to, layer, component)))
            .collect();
        self.moved(&moves, sums)
    }

    fn sent(&mut self, transfer: TransferId, part: Part, sums: &[Sum]) -> Result<u64, String> {
        let Some(op) = self.sends.remove(&(transfer, part)) else { return Ok(0) };
        let mut moves = Vec::new();
        for moved in &op.parts {
            for layer in (0..self.has_index[0].len() as u8).filter(|&layer| moved.layers.has(layer)) {
                for pair in &op.pairs {
                    let to = cell(1, pair.to, layer, moved.component);
                    moves.push((cell(0, pair.from, layer, moved.component), to));
                }
            }
        }
        self.moved(&moves, sums)
    }

    /// What arrives is what was there.
    fn moved(&mut self, moves: &[(Cell, Cell)], sums: &[Sum]) -> Result<u64, String> {
        count(sums, moves.len())?;
        let mut compared = 0;
        for (&(from, to), &sum) in moves.iter().zip(sums) {
            if let Some(&written) = self.written.get(&from) {
                same(from, written, sum)?;
                compared += 1;
            }
            self.written.insert(to, sum);
        }
        Ok(compared)
    }

    fn read(
        &mut self,
        world: &World<Manager>,
        engine: u8,
        step: StepId,
        (layer, component): (u8, Component),
        sums: &[Sum],
    ) -> Result<u64, String> {
        let Some(op) = self.steps.get(&(engine, step)) else { return Ok(0) };
        // Index keys are read as whole pages; KV entries only by prefill steps.
        let whole = |item: &&kvweft_core::StepItem| {
            component == Component::IndexK || item.kind == kvweft_core::StepKind::Prefill
        };
        let items: Vec<_> = op.items.iter().filter(whole).collect();
        let read = |item: &kvweft_core::StepItem| (item.read as usize).min(item.pages.len());
        count(sums, items.iter().map(|item| read(item)).sum())?;
        let mut sums = sums.iter();
        let mut compared = 0;
        for item in items {
            let wanted = world.wants(engine, item.request, item.life);
            for (&page, &sum) in item.pages[..read(item)].iter().zip(&mut sums) {
                let cell = cell(engine, page, layer, component);
                // Results for a request that is over are thrown away, whatever they are.
                let Some(&written) = self.written.get(&cell).filter(|_| wanted) else { continue };
                same(cell, written, sum)?;
                compared += 1;
            }
        }
        Ok(compared)
    }

    fn wrote(&mut self, engine: u8, step: StepId, layer: u8, sums: &[Sum]) -> Result<u64, String> {
        let Some(op) = self.steps.get(&(engine, step)) else { return Ok(0) };
        let mut cells = Vec::new();
        for item in &op.items {
            for &page in &item.pages[(item.write_from as usize).min(item.pages.len())..] {
                if self.has_index[usize::from(engine)][usize::from(layer)] {
                    cells.push(cell(engine, page, layer, Component::IndexK));
                }
                cells.push(cell(engine, page, layer, Component::Kv));
            }
        }
        count(sums, cells.len())?;
        self.written.extend(cells.into_iter().zip(sums.iter().copied()));
        Ok(0)
    }
}

fn cell(engine: u8, page: BlockRef, layer: u8, component: Component) -> Cell {
    (engine, page.tier, page.page, layer, component)
}

fn count(sums: &[Sum], expected: usize) -> Result<(), String> {
    if sums.len() == expected { Ok(()) } else { Err(format!("expected {expected} sums, got {}", sums.len())) }
}

fn same((engine, tier, page, layer, component): Cell, written: Sum, read: Sum) -> Result<(), String> {
    if written == read {
        return Ok(());
    }
    let tier = if tier == Tier::DEVICE { "device" } else { "host" };
    Err(format!(
        "the {} of layer {layer} of {tier} page {} of engine {engine} were written with the sum {written}, and are read \
         with {read}",
        component.name(),
        page.0
    ))
}
