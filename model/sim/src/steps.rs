//! Forward steps: how long they take, what they wait for, what they read and write.

use kvweft_core::{Effect, Input, LayerWait, RunStep, StepItem, StepKind};

use crate::engine::{Forward, Race, StepRun};
use crate::memory::{NIL, POISON, STEP, TORN};
use crate::simulation::{Event, Simulation};

impl Simulation<'_> {
    pub(crate) fn queue_step(&mut self, e: usize, op: RunStep) {
        self.engines[e].forward.push_back(Forward::Step(op));
    }

    /// Runs what is first on the forward stream.
    pub(crate) fn start_forward(&mut self, e: usize) {
        while self.engines[e].running.is_none() {
            match self.engines[e].forward.pop_front() {
                Some(Forward::Step(op)) => self.start_step(e, op),
                Some(Forward::Record(id)) => self.record_elsewhere(e, id),
                None => return,
            }
        }
    }

    fn start_step(&mut self, e: usize, op: RunStep) {
        let took = self.step_ns(&op);
        let took = self.jitter(took);
        let layers = u64::from(self.engines[e].layers.max(1));
        let start = self.now + self.costs.step_launch_ns;
        let mut waits: Vec<LayerWait> = Vec::new();
        for wait in op.items.iter().filter(|item| item.read > 0).flat_map(|item| &item.waits) {
            if self.engines[e].is_queued(wait) && !waits.contains(wait) {
                waits.push(*wait);
            }
        }
        let mut run = StepRun {
            op,
            start,
            layer_ns: took / layers,
            rest_ns: took % layers,
            waits,
            races: Vec::new(),
            layer: 0,
            index_read: false,
            clock: start,
            reads: Vec::new(),
        };
        self.begin_step(e, &mut run);
        let end = start + took;
        let waits = !run.waits.is_empty();
        self.engines[e].running = Some(run);
        if waits {
            self.advance_step(e);
        } else {
            self.at(end, Event::StepEnd { engine: e as u8 });
        }
    }

    fn step_ns(&mut self, op: &RunStep) -> u64 {
        let (mut decodes, mut context, mut took) = (0, 0, 0);
        for item in &op.items {
            match item.kind {
                StepKind::Prefill => {
                    took += self.costs.prefill_ns(u64::from(item.first_token), u64::from(item.tokens));
                    self.report.tokens.computed += u64::from(item.tokens);
                }
                StepKind::Decode => {
                    decodes += 1;
                    context += u64::from(item.first_token);
                }
            }
        }
        if decodes > 0 {
            took += self.costs.decode_ns(decodes, context);
        }
        self.report.requests.decodes_peak = self.report.requests.decodes_peak.max(decodes);
        self.report.links.forward.operations += 1;
        took
    }

    /// Goes through the layers of a step that waits for reloads, as far as these have come.
    pub(crate) fn advance_step(&mut self, e: usize) {
        let engine = &mut self.engines[e];
        let waits = |run: &StepRun| !run.waits.is_empty() && run.layer < engine.layers;
        if !engine.running.as_ref().is_some_and(waits) {
            return;
        }
        let mut run = engine.running.take().expect("just looked at");
        while run.layer < engine.layers {
            let [index, kv] = engine.has[usize::from(run.layer)];
            let blocked = |wanted: fn(&LayerWait) -> bool| {
                run.waits.iter().any(|wait| wanted(wait) && !engine.landed(wait, run.layer))
            };
            if !run.index_read {
                if index && blocked(|wait| wait.index.is_some()) {
                    break;
                }
                run.clock = run.clock.max(self.now);
                run.reads.push([run.clock; 2]);
                run.clock += run.layer_ns / 2;
                run.index_read = true;
            }
            if kv && blocked(|wait| wait.kv.is_some()) {
                break;
            }
            run.clock = run.clock.max(self.now);
            run.reads[usize::from(run.layer)][1] = run.clock;
            run.clock += run.layer_ns - run.layer_ns / 2;
            run.layer += 1;
            run.index_read = false;
        }
        let end = (run.layer == engine.layers).then_some(run.clock + run.rest_ns);
        engine.running = Some(run);
        if let Some(end) = end {
            self.at(end, Event::StepEnd { engine: e as u8 });
        }
    }

    /// A step begins: what it will write is being written from now on.
    fn begin_step(&mut self, e: usize, run: &mut StepRun) {
        let moving = !self.engines[e].copies[0].is_empty() || !self.network.idle();
        let mut disturbed = false;
        for (at, item) in run.op.items.iter().enumerate() {
            self.sync_watch(e, item);
            if moving {
                let seen = self.watched(e, item);
                self.find_races(e, item, at as u32, seen, &mut run.races);
            }
            let tier = &mut self.engines[e].tiers[0];
            for block in &item.pages[written_from(item)..] {
                let page = tier.page_mut(block.page);
                if page.generation == block.generation.0 {
                    page.begin_write(STEP, [true; 2]);
                    disturbed |= page.watchers > 0;
                }
            }
        }
        for race in &run.races {
            self.moves[race.moved as usize].users += 1;
        }
        if disturbed {
            self.disturb(e);
        }
    }

    /// Moves that are writing pages which an item will read, or are queued to.
    fn find_races(&self, e: usize, item: &StepItem, at: u32, seen: usize, races: &mut Vec<Race>) {
        let tier = &self.engines[e].tiers[0];
        for block in item.pages.get(seen..item.read as usize).unwrap_or_default() {
            let page = tier.page(block.page);
            let [kv, index] = page.writers;
            for writer in [Some(kv), (index != kv).then_some(index), Some(page.coming)].into_iter().flatten() {
                if writer == NIL || writer == STEP {
                    continue;
                }
                match races.iter_mut().rev().find(|race| race.moved == writer && race.item == at) {
                    Some(race) => race.pages += 1,
                    None => races.push(Race { moved: writer, item: at, pages: 1 }),
                }
            }
        }
    }

    /// A step has ended: what it read is looked at, what it wrote is there, and its requests go on.
    pub(crate) fn step_ended(&mut self, e: usize) {
        let run = self.engines[e].running.take().expect("it runs");
        let took = self.now - run.start;
        for (at, item) in run.op.items.iter().enumerate() {
            self.check_reads(e, item, at as u32, &run);
        }
        for race in &run.races {
            self.release_move(race.moved);
        }
        for item in &run.op.items {
            self.end_writes(e, item);
        }
        if !self.engines[e].copies[1].is_empty() || !self.network.idle() {
            self.engines[e].remember(&run);
        }
        self.engines[e].ended = Some(run.op.step);
        if e == 0 {
            self.report.links.forward.busy_ns += took;
        }
        self.input(e, Input::StepDone { step: run.op.step });
        for item in &run.op.items {
            self.item_ended(e, item);
        }
        self.engines[e].manager.recycle(Effect::RunStep(run.op));
    }

    fn end_writes(&mut self, e: usize, item: &StepItem) {
        let from = written_from(item);
        for (offset, block) in item.pages[from..].iter().enumerate() {
            let position = from + offset;
            let expected = self.clients.expected(item.request, position);
            let tier = &mut self.engines[e].tiers[0];
            let owned = tier.owns(*block);
            let page = tier.page_mut(block.page);
            if owned {
                page.end_write(STEP, [Some(expected), Some(expected)]);
                page.reloaded = false;
            } else if page.generation != block.generation.0 && page.content[0] != POISON {
                // It has another owner by now, who has written it already.
                page.end_write(STEP, [Some(TORN); 2]);
                self.report.corrupt_reads.foreign_writes += 1;
            } else {
                page.end_write(STEP, [None; 2]);
            }
        }
    }
}

/// The first position that an item writes.
fn written_from(item: &StepItem) -> usize {
    (item.write_from as usize).min(item.pages.len())
}
