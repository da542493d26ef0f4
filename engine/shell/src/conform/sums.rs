//! What was written where, as the sums in a log tell, and whether readers have found it.

use std::collections::HashMap;

use kvweft_core::{Component, Config, Effect, Manager, MoveKind, StepId, Tier};
use kvweft_trace::event::{Event, Phase, Sum};
use kvweft_world::World;

use crate::asked::{Asked, Cell, Moved, cell};

/// The sums of all cells that have been written, and the operations under way that will write more.
pub(crate) struct Sums {
    written: HashMap<Cell, Sum>,
    asked: Asked,
    /// Layers of index keys, for each engine.
    has_index: Vec<Vec<bool>>,
}

impl Sums {
    pub(crate) fn new(engines: &[Config]) -> Sums {
        let has_index = engines.iter().map(|config| {
            let geometry = &config.geometry;
            (0..geometry.layers).map(|layer| geometry.layout(layer, Component::IndexK).is_some()).collect()
        });
        Sums { written: HashMap::new(), asked: Asked::default(), has_index: has_index.collect() }
    }

    /// Keeps what an effect asks for.
    pub(crate) fn effect(&mut self, engine: u8, effect: &Effect) {
        self.asked.keep(engine, effect);
        match effect {
            // Nobody may rely on what a free page holds.
            Effect::Move(moved) if moved.what == MoveKind::Free => {
                for page in &moved.pages {
                    for layer in 0..self.has_index[usize::from(engine)].len() as u8 {
                        for component in [Component::IndexK, Component::Kv] {
                            self.written.remove(&cell((engine, *page), layer, component));
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
                self.moved(&self.asked.copied(engine, transfer, layer, component), sums)
            }
            Event::Read { engine, step, layer, component, ref sums } => {
                self.read(world, engine, step, (layer, component), sums)
            }
            Event::Write { engine, step, layer, phase: Phase::End, ref sums } => self.wrote(engine, step, layer, sums),
            Event::Send { transfer, part, phase: Phase::End, ref sums } => {
                self.moved(&self.asked.sent(transfer, part), sums)
            }
            _ => Ok(0),
        }
    }

    /// What arrives is what was there.
    fn moved(&mut self, moves: &[Moved], sums: &[Sum]) -> Result<u64, String> {
        count(sums, moves.len())?;
        let mut compared = 0;
        for (moved, &sum) in moves.iter().zip(sums) {
            let [from, to] = [moved.from, moved.to].map(|page| cell(page, moved.layer, moved.component));
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
        let Some(op) = self.asked.step(engine, step) else { return Ok(0) };
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
                let cell = cell((engine, page), layer, component);
                // Results for a request that is over are thrown away, whatever they are.
                let Some(&written) = self.written.get(&cell).filter(|_| wanted) else { continue };
                same(cell, written, sum)?;
                compared += 1;
            }
        }
        Ok(compared)
    }

    fn wrote(&mut self, engine: u8, step: StepId, layer: u8, sums: &[Sum]) -> Result<u64, String> {
        let Some(op) = self.asked.step(engine, step) else { return Ok(0) };
        let mut cells = Vec::new();
        for item in &op.items {
            for &page in &item.pages[(item.write_from as usize).min(item.pages.len())..] {
                if self.has_index[usize::from(engine)][usize::from(layer)] {
                    cells.push(cell((engine, page), layer, Component::IndexK));
                }
                cells.push(cell((engine, page), layer, Component::Kv));
            }
        }
        count(sums, cells.len())?;
        self.written.extend(cells.into_iter().zip(sums.iter().copied()));
        Ok(0)
    }
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
