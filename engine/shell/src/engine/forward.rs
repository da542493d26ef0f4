//! Forward steps: the model, layer by layer, on what the pages hold.

use kvweft_core::{BlockRef, Component, LayerWait, RunStep, StepItem, StepKind, Tier};
use kvweft_trace::event::{Event, Phase, Sum};
use kvweft_world::Operation;

use super::{Core, Engine, FROM_FORWARD, Report, Sampled, Stopped, Stopping, Turn};
use crate::model::{Changed, Model, Token};
use crate::platform::{Cell, Lock, Platform, Queued};
use crate::pool::{Half, POISON, Patch, entry, load_bytes, load_edges, sum_of, words_of};

/// The new entries of one page of one layer, on their way into memory.
struct Written {
    item: usize,
    position: usize,
    index: Option<Vec<u8>>,
    kv: Vec<u8>,
    changed: Changed,
}

impl<P: Platform, M: Model> Engine<P, M> {
    pub(crate) fn count_step(&self, core: &mut Core, op: &RunStep) {
        core.counts.steps += 1;
        let decodes = op.items.iter().filter(|item| item.kind == StepKind::Decode).count() as u64;
        core.counts.decodes_max = core.counts.decodes_max.max(decodes);
        for item in &op.items {
            let Some(sequence) = core.sequences.get_mut(&item.request.0) else { continue };
            if item.kind == StepKind::Prefill {
                core.counts.tokens_computed += u64::from(item.tokens);
                if !std::mem::replace(&mut sequence.computed, true) {
                    let known = sequence.prompt_blocks.iter().take_while(|block| core.known.contains(block)).count();
                    core.counts.tokens_reusable += (known * self.page_tokens / self.unit) as u64;
                    core.counts.tokens_reused += u64::from(item.first_token);
                }
            }
        }
    }

    /// Runs one forward step to its end.
    pub(crate) fn forward(&self, op: &RunStep) -> Result<(), Stopped> {
        let mut items: Vec<M::Item> = op.items.iter().map(|item| self.start(item)).collect();
        let reads = op.items.iter().any(|item| item.read > 0);
        let writes = op.items.iter().any(|item| (item.write_from as usize) < item.pages.len());
        let (engine, step) = (self.index, op.step);
        let units = |layer| [Component::IndexK, Component::Kv].map(|component| self.pools.unit(layer, component));
        let last_layer =
            (0..self.layers).rev().find(|&layer| writes || (reads && units(layer).iter().any(Option::is_some)));
        if last_layer.is_none() {
            let turn = self.turn(Operation::Nothing { engine, step });
            self.parts.log.note(|| Event::Nothing { engine, step });
            self.end_step(op, items);
            drop(turn);
            return Ok(());
        }
        let prompt = op.items.iter().filter(|item| item.kind == StepKind::Prefill);
        let pause_us = prompt.map(|item| u64::from(item.tokens)).sum::<u64>() * self.parts.prompt_token_us;
        for layer in 0..self.layers {
            let last = Some(layer) == last_layer;
            self.pause(pause_us / u64::from(self.layers))?;
            for component in [Component::IndexK, Component::Kv] {
                let unit = self.pools.unit(layer, component);
                let Some(unit) = unit.filter(|_| reads) else {
                    // What is not in the cache is still scored: the new tokens by themselves.
                    if component == Component::IndexK {
                        items.iter_mut().for_each(|item| self.parts.model.select(item, layer, &[]));
                    }
                    continue;
                };
                let turn = self.turn(Operation::Read { engine, step, layer, component });
                let waits = self.wait_layer(op, layer, component, &turn)?;
                let sums = self.read(op, &mut items, (layer, component, unit));
                self.wait_known(&waits, layer)?;
                self.parts.log.note(|| Event::Read { engine, step, layer, component, sums });
                if last && !writes && component == Component::Kv {
                    self.end_step(op, std::mem::take(&mut items));
                }
                drop(turn);
            }
            if writes {
                let turn = self.turn(Operation::WriteBegin { engine, step, layer });
                let written = self.write_begin(op, &mut items, layer);
                drop(turn);
                let turn = self.turn(Operation::WriteEnd { engine, step, layer });
                self.write_end(op, layer, &written);
                if last {
                    self.end_step(op, std::mem::take(&mut items));
                }
                drop(turn);
            }
        }
        Ok(())
    }

    /// Lets time pass, unless the threads are told to end.
    fn pause(&self, mut left_us: u64) -> Result<(), Stopped> {
        const SLICE_US: u64 = 20_000;
        while left_us > 0 {
            P::pause_us(left_us.min(SLICE_US));
            left_us = left_us.saturating_sub(SLICE_US);
            if left_us > 0 && self.lock().stopping == Stopping::Now {
                return Err(Stopped);
            }
        }
        Ok(())
    }

    fn start(&self, item: &StepItem) -> M::Item {
        let end = (item.first_token + item.tokens) as usize * self.unit;
        let tokens: Vec<Token> = {
            let core = self.lock();
            let known = core.sequences.get(&item.request.0).map(|sequence| sequence.tokens.as_slice());
            let known = known.unwrap_or_default();
            let mut tokens = known[..known.len().min(end)].to_vec();
            tokens.resize(end, 0);
            tokens
        };
        self.parts.model.start(&tokens, item.first_token as usize * self.unit)
    }

    /// Waits for the reload events of a layer that the reads of one component need. Where the device has the reload in its
    /// order, the device waits; those waits are returned.
    fn wait_layer<'a>(
        &self,
        op: &'a RunStep,
        layer: u8,
        component: Component,
        turn: &Turn<'_>,
    ) -> Result<Vec<&'a LayerWait>, Stopped> {
        let owed = |wait: &LayerWait| if component == Component::IndexK { wait.index } else { wait.kv };
        let waits = op.items.iter().flat_map(|item| &item.waits).filter(|wait| owed(wait).is_some());
        let mut waits: Vec<&LayerWait> = waits.collect();
        if waits.is_empty() {
            return Ok(waits);
        }
        let mut core = self.lock();
        loop {
            waits.retain(|wait| !core.events.landed(wait, layer));
            let Some(first) = waits.first() else { return Ok(waits) };
            turn.held(owed(first).expect("only those that are owed"));
            let marks = self.marks.lock();
            let known = |wait: &&LayerWait| {
                let (generation, mark) = marks.get(&(wait.slot.0, layer))?;
                (Some(*generation) == wait.generation).then(|| mark.clone())
            };
            if let Some(known) = waits.iter().map(known).collect::<Option<Vec<_>>>() {
                drop((marks, core));
                known.iter().for_each(P::Queued::follow);
                return Ok(waits);
            }
            drop(marks);
            core = self.wait(core)?;
        }
    }

    /// Waits until it is known here that what the device has waited for has happened, so that the manager and the log hear
    /// of it first.
    fn wait_known(&self, waits: &[&LayerWait], layer: u8) -> Result<(), Stopped> {
        if waits.is_empty() {
            return Ok(());
        }
        let mut core = self.lock();
        while waits.iter().any(|wait| !core.events.landed(wait, layer)) {
            core = self.wait(core)?;
        }
        Ok(())
    }

    /// Reads what the cache has of one component of one layer; the checksums of the whole pages that were read, if anybody
    /// writes them down.
    fn read(&self, op: &RunStep, items: &mut [M::Item], (layer, component, unit): (u8, Component, usize)) -> Vec<Sum> {
        let mut sums = match component {
            Component::IndexK if P::Cell::COMPUTES => self.search(op, items, layer, unit),
            Component::Kv if P::Cell::COMPUTES => self.add(op, items, layer, unit),
            _ => vec![None; items.len()],
        };
        let cached = |item: &'_ StepItem| (item.read as usize).min(item.pages.len());
        let left: Vec<bool> = sums.iter().map(Option::is_none).collect();
        let whole = |place: usize| left[place] && !by_row(component, &op.items[place]);
        let wholes = (0..items.len()).filter(|&place| whole(place)).map(|place| &op.items[place]);
        let parts = wholes.flat_map(|item| &item.pages[..cached(item)]).map(|&page| self.pools.whole(page, unit));
        let mut pages = load_bytes(&parts.collect::<Vec<_>>()).into_iter();
        for (place, (item, state)) in op.items.iter().zip(&mut *items).enumerate().filter(|(place, _)| whole(*place)) {
            let pages: Vec<Vec<u8>> = pages.by_ref().take(cached(item)).collect();
            if component == Component::IndexK {
                self.parts.model.select(state, layer, &pages);
            } else {
                self.take_from(state, layer, &item.pages[..cached(item)], unit, &pages);
            }
            // Of the very bytes that were used: another look might find that a late copy has landed.
            if self.parts.log.is_on() {
                sums[place] = Some(pages.iter().map(|bytes| Sum(sum_of(bytes))).collect());
            }
        }
        self.take_rows(op, items, (layer, unit), |place| left[place] && by_row(component, &op.items[place]));
        sums.into_iter().flatten().flatten().collect()
    }

    /// Scores and selects where the index keys are; the checksums, or nothing for an item that the memory cannot do.
    fn search(&self, op: &RunStep, items: &mut [M::Item], layer: u8, unit: usize) -> Vec<Option<Vec<Sum>>> {
        let model = &self.parts.model;
        let searches = items.iter().map(|state| model.search(state, layer)).enumerate();
        let searches: Vec<_> = searches.filter_map(|(place, search)| Some((place, search?))).collect();
        let places: Vec<usize> = searches.iter().map(|(place, _)| *place).collect();
        let requests: Vec<_> =
            searches.into_iter().map(|(place, search)| (search, self.cached_cells(&op.items[place], unit))).collect();
        let mut sums = vec![None; items.len()];
        for (place, found) in places.into_iter().zip(P::Cell::search(&requests, self.parts.log.is_on())) {
            model.selected(&mut items[place], layer, &found.selected);
            sums[place] = Some(found.checksums.into_iter().map(Sum).collect());
        }
        sums
    }

    /// Adds up the wanted rows where they are, likewise.
    fn add(&self, op: &RunStep, items: &mut [M::Item], layer: u8, unit: usize) -> Vec<Option<Vec<Sum>>> {
        let model = &self.parts.model;
        let mut sums = vec![None; items.len()];
        for rows in [false, true] {
            let which = (0..items.len()).filter(|&place| by_row(Component::Kv, &op.items[place]) == rows);
            let (mut places, mut requests) = (Vec::new(), Vec::new());
            for place in which {
                let Some(addends) = model.addends(&items[place], layer) else { continue };
                places.push(place);
                requests.push((addends, self.cached_cells(&op.items[place], unit)));
            }
            let added = P::Cell::add(&requests, !rows && self.parts.log.is_on());
            for (place, added) in places.into_iter().zip(added) {
                model.added(&mut items[place], layer, &added.sums);
                sums[place] = Some(added.checksums.into_iter().map(Sum).collect());
            }
        }
        sums
    }

    /// The cells of the pages that an item reads.
    fn cached_cells(&self, item: &StepItem, unit: usize) -> Vec<&P::Cell> {
        let cached = (item.read as usize).min(item.pages.len());
        item.pages[..cached].iter().map(|&page| self.pools.cell_of(page, unit)).collect()
    }

    /// Hands the KV entries over that an item wants, out of whole pages.
    fn take_from(&self, state: &mut M::Item, layer: u8, cached: &[BlockRef], unit: usize, pages: &[Vec<u8>]) {
        for at in self.parts.model.wanted(state, layer) {
            let (Some(page), Some(bytes)) = (cached.get(at.0 as usize), pages.get(at.0 as usize)) else { continue };
            let (row, scale) = entry(self.pools.layout(page.tier, unit), at.1 as usize);
            self.parts.model.take(state, layer, at, &bytes[row], &bytes[scale]);
        }
    }

    /// Hands the KV entries over that items want, each read by itself, all at once.
    fn take_rows(
        &self,
        op: &RunStep,
        items: &mut [M::Item],
        (layer, unit): (u8, usize),
        by_row: impl Fn(usize) -> bool,
    ) {
        let mut wanted = Vec::new();
        let mut parts = Vec::new();
        for (place, item) in op.items.iter().enumerate().filter(|(place, _)| by_row(*place)) {
            let cached = &item.pages[..(item.read as usize).min(item.pages.len())];
            for at in self.parts.model.wanted(&items[place], layer) {
                let Some(&page) = cached.get(at.0 as usize) else { continue };
                let (row, scale) = entry(self.pools.layout(page.tier, unit), at.1 as usize);
                let cell = self.pools.cell_of(page, unit);
                parts.extend([(cell, row), (cell, scale)]);
                wanted.push((place, at));
            }
        }
        let read = load_bytes(&parts);
        for ((place, at), bytes) in wanted.into_iter().zip(read.chunks_exact(2)) {
            self.parts.model.take(&mut items[place], layer, at, &bytes[0], &bytes[1]);
        }
    }

    /// Computes the new entries of a layer and brings the first half of them into memory.
    fn write_begin(&self, op: &RunStep, items: &mut [M::Item], layer: u8) -> Vec<Written> {
        let event = |phase, sums| Event::Write { engine: self.index, step: op.step, layer, phase, sums };
        self.parts.log.note(|| event(Phase::Begin, Vec::new()));
        let index = self.pools.unit(layer, Component::IndexK);
        let Some(kv) = self.pools.unit(layer, Component::Kv) else { return Vec::new() };
        let pages = |item: &'_ StepItem| (item.write_from as usize).min(item.pages.len())..item.pages.len();
        let poison = |unit: usize| vec![POISON; self.pools.layout(Tier::DEVICE, unit).page_bytes() as usize];
        let mut written = Vec::new();
        for (at, (item, state)) in op.items.iter().zip(items).enumerate() {
            for position in pages(item) {
                let (mut index, mut kv) = (index.map(poison), poison(kv));
                let changed = self.parts.model.write(state, layer, position, index.as_deref_mut(), &mut kv);
                written.push(Written { item: at, position, index, kv, changed });
            }
        }
        self.load_edges(op, layer, &mut written);
        self.store_half(op, layer, &written, Half::First);
        written
    }

    fn write_end(&self, op: &RunStep, layer: u8, written: &[Written]) {
        self.store_half(op, layer, written, Half::Second);
        let units = [Component::IndexK, Component::Kv].map(|component| self.pools.unit(layer, component));
        let cells = written.iter().flat_map(|page| {
            let block = op.items[page.item].pages[page.position];
            units.into_iter().flatten().map(move |unit| (block, unit))
        });
        self.parts.log.note(|| Event::Write {
            engine: self.index,
            step: op.step,
            layer,
            phase: Phase::End,
            sums: self.pools.sums(cells),
        });
    }

    /// Looks up the bytes that share a word with new ones.
    fn load_edges(&self, op: &RunStep, layer: u8, written: &mut [Written]) {
        let [index, kv] = [Component::IndexK, Component::Kv].map(|component| self.pools.unit(layer, component));
        let mut patches = Vec::new();
        for Written { item, position, index: index_bytes, kv: kv_bytes, changed } in written {
            let block = op.items[*item].pages[*position];
            if let (Some(unit), Some(bytes)) = (index, index_bytes) {
                patches.push(Patch { cell: self.pools.cell_of(block, unit), bytes, ranges: &changed.index });
            }
            if let Some(unit) = kv {
                patches.push(Patch { cell: self.pools.cell_of(block, unit), bytes: kv_bytes, ranges: &changed.kv });
            }
        }
        load_edges(&mut patches);
    }

    fn store_half(&self, op: &RunStep, layer: u8, written: &[Written], half: Half) {
        let index = self.pools.unit(layer, Component::IndexK);
        let kv = self.pools.unit(layer, Component::Kv);
        let mut parts = Vec::new();
        for page in written {
            let block = op.items[page.item].pages[page.position];
            let cells = [(index, page.index.as_deref(), &page.changed.index), (kv, Some(&*page.kv), &page.changed.kv)];
            for (unit, bytes, ranges) in cells {
                let (Some(unit), Some(bytes)) = (unit, bytes) else { continue };
                let cell = self.pools.cell_of(block, unit);
                for range in ranges {
                    let part = half.of_bytes(range.len());
                    let words = words_of(bytes, range.start + part.start..range.start + part.end);
                    parts.extend(words.map(|(first, words)| (cell, first, words)));
                }
            }
        }
        P::Cell::store_all(&parts);
    }

    /// The step is over: its results are reported.
    fn end_step(&self, op: &RunStep, items: Vec<M::Item>) {
        let sampled = op.items.iter().zip(items).map(|(item, state)| Sampled {
            request: item.request,
            life: item.life,
            tokens: item.first_token + item.tokens,
            bytes: self.parts.model.sampled(state),
        });
        let sampled: Vec<Sampled> = sampled.collect();
        let mut core = self.lock();
        sampled.iter().for_each(|item| self.keep_sampled(&mut core, item));
        core.steps.retain(|&known| known != op.step);
        core.reports[FROM_FORWARD].push_back(Report::Step(op.step, sampled));
        drop(core);
        P::notify_all(&self.changed);
    }
}

/// Decode steps read single rows of the KV pages, so that there is no sum of whole pages to tell.
fn by_row(component: Component, item: &StepItem) -> bool {
    component == Component::Kv && item.kind == StepKind::Decode
}
