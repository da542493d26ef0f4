//! How effects are honoured, and what operations do to pages.

use kvweft_core::{Body, CopyOp, Effect, Input, Outcome, Part, PartKind, Rank, RunStep, SendOp, StepItem, Wake};

use crate::device::{Queued, Report, Sending};
use crate::operation::LAYERS;
use crate::rig::Rig;
use crate::shadow::{Checked, Content, Owner};

const WHOLE: Part = Part { rank: Rank(0), kind: PartKind::Whole, handle: 0 };

impl Rig {
    /// Queues, sends or checks one effect.
    pub(crate) fn effect(&mut self, e: usize, effect: Effect) -> Checked {
        let engine = &mut self.engines[e];
        match effect {
            Effect::Move(moved) => engine.shadow.moved(&moved)?,
            Effect::Copy(op) => self.take_copy(e, op)?,
            Effect::Send(op) => engine.device.queue_send(op),
            Effect::RunStep(op) => {
                for item in &op.items {
                    self.check_item(e, item)?;
                }
                self.engines[e].device.queue_step(op)?;
            }
            Effect::Answer(answer) => {
                if !engine.open.remove(&answer.request) {
                    return Err(format!("nobody waits for {answer:?}"));
                }
                if !engine.scripts.contains_key(&(answer.request, answer.life)) {
                    return Err(format!("{answer:?} is of no life"));
                }
            }
            Effect::Message(message) => {
                if let Body::Reserved { metadata, .. } = &message.body {
                    engine.promised.insert(metadata.0, message.room);
                }
                self.links[1 - e].push_back(message);
            }
            Effect::Wake(wake) => self.woken(e, &wake)?,
            Effect::Arm(timer) => {
                if engine.device.timers.contains(&timer) {
                    return Err(format!("{timer:?} is armed twice"));
                }
                engine.device.timers.push(timer);
            }
            Effect::Disarm(timer) => engine.device.timers.retain(|&known| known != timer),
            Effect::Poll(_) | Effect::Collective(_) => {}
        }
        Ok(())
    }

    fn take_copy(&mut self, e: usize, op: CopyOp) -> Checked {
        let shadow = &mut self.engines[e].shadow;
        for pair in &op.pairs {
            shadow.check_owned(pair.from, "a copy")?;
            shadow.check_owned(pair.to, "a copy")?;
            if shadow.page(pair.to).published.is_some() {
                return Err(format!("{:?} is copied over while it is visible", pair.to));
            }
            if op.record.is_some() {
                let name = shadow.page(pair.from).published;
                let name = name.ok_or_else(|| format!("{:?} is reloaded but was never complete", pair.from))?;
                shadow.page_mut(pair.to).loading = Some(name);
            }
        }
        self.engines[e].device.queue_copy(op);
        Ok(())
    }

    /// What a step's item may touch, and whether its cached head is what the prompt says.
    fn check_item(&mut self, e: usize, item: &StepItem) -> Checked {
        let engine = &mut self.engines[e];
        let named = (item.request, item.life);
        let script = engine.scripts.get(&named).ok_or_else(|| format!("{named:?} was never handed over"))?;
        let page_tokens = u32::from(self.setup.page_tokens);
        let end = (item.first_token + item.tokens).div_ceil(page_tokens) as usize;
        if item.pages.len() != end {
            return Err(format!("a step of {end} pages names {}: {item:?}", item.pages.len()));
        }
        for (at, &block) in item.pages.iter().enumerate() {
            engine.shadow.check_owned(block, "a step")?;
            let page = engine.shadow.page(block);
            if page.owner != Owner::Taken || (at >= item.write_from as usize && page.published.is_some()) {
                return Err(format!("page {at} of {item:?} is {:?}, published {:?}", page.owner, page.published));
            }
            if item.pages[..at].contains(&block) {
                return Err(format!("{block:?} comes twice in {item:?}"));
            }
        }
        if !engine.launched.insert(named) || engine.computed.contains_key(&named) {
            return Ok(());
        }
        let cached = (item.first_token / page_tokens) as usize;
        for (at, &block) in item.pages[..cached].iter().enumerate() {
            let page = engine.shadow.page(block);
            if page.published.or(page.loading) != Some(script.names[at]) {
                return Err(format!("block {at} of {named:?} should be {:?}, is {page:?}", script.names[at]));
            }
        }
        let expected = engine.expected.get(&named).copied().unwrap_or(0);
        if cached < expected {
            return Err(format!("{named:?} reuses {cached} blocks, {expected} were published"));
        }
        Ok(())
    }

    fn woken(&mut self, e: usize, wake: &Wake) -> Checked {
        let page_tokens = u32::from(self.setup.page_tokens);
        let named = (wake.request, wake.life);
        let engine = &mut self.engines[e];
        let script = engine.scripts.get(&named).ok_or_else(|| format!("{wake:?} is of no life"))?;
        if wake.pages.len() != script.prompt_tokens.div_ceil(page_tokens) as usize {
            return Err(format!("{wake:?} lacks pages of {script:?}"));
        }
        for (at, &block) in wake.pages.iter().enumerate() {
            let tokens = page_tokens.min(script.prompt_tokens - at as u32 * page_tokens);
            engine.shadow.check_owned(block, "a wake")?;
            engine.shadow.check_arrived(block, script.names[at], tokens)?;
        }
        let slot = wake.metadata.ok_or("a wake without metadata")?;
        if engine.device.rows.get(&slot.0).copied() != script.room {
            return Err(format!("{wake:?} reads the row of {:?}", engine.device.rows.get(&slot.0)));
        }
        engine.computed.insert(named, script.prompt_tokens);
        Ok(())
    }

    /// The head of a stream does its next phase.
    pub(crate) fn go(&mut self, e: usize, stream: usize) -> Checked {
        let head = self.engines[e].device.streams[stream].pop_front().expect("the caller asked whether it can");
        match head {
            Queued::Copy { op, phase, seen } => self.go_copy(e, stream, op, phase, seen),
            Queued::Step { op, phase } => self.go_step(e, op, phase),
        }
    }

    fn go_copy(&mut self, e: usize, stream: usize, op: CopyOp, phase: u8, mut seen: Vec<Content>) -> Checked {
        let layer = phase / 2;
        let shadow = &mut self.engines[e].shadow;
        let units: Vec<_> =
            op.parts.iter().filter(|part| part.layers.has(layer)).map(|part| (layer, part.component)).collect();
        if phase.is_multiple_of(2) {
            for &unit in &units {
                for pair in &op.pairs {
                    seen.push(shadow.begin_read(pair.from, unit, "a copy")?);
                    shadow.check_owned(pair.to, "a copy")?;
                    shadow.begin_write(pair.to, unit, "a copy")?;
                }
            }
        } else {
            let mut before = std::mem::take(&mut seen).into_iter();
            for &unit in &units {
                for pair in &op.pairs {
                    let content = before.next().expect("read when it began");
                    let content = shadow.end_read(pair.from, unit, content, "a copy")?;
                    shadow.check_owned(pair.to, "a copy")?;
                    shadow.end_write(pair.to, unit, content);
                }
            }
            self.engines[e].device.record_layer(&op, layer);
        }
        let device = &mut self.engines[e].device;
        if phase + 1 < 2 * LAYERS {
            device.streams[stream].push_front(Queued::Copy { op, phase: phase + 1, seen });
        } else {
            device.reports[stream].push_back(Report::Completed(op.transfer, WHOLE, Outcome::Done));
        }
        Ok(())
    }

    fn go_step(&mut self, e: usize, op: RunStep, phase: u8) -> Checked {
        let layer = phase / 2;
        let components = self.engines[e].shadow.components();
        for item in &op.items {
            let spoiled = self.engines[e].device.is_spoiled(item);
            for &component in &components {
                if phase.is_multiple_of(2) {
                    self.read_item(e, item, (layer, component), spoiled)?;
                }
                self.write_item(e, item, (layer, component), phase.is_multiple_of(2), spoiled)?;
            }
        }
        let device = &mut self.engines[e].device;
        if phase + 1 < 2 * LAYERS {
            device.streams[0].push_front(Queued::Step { op, phase: phase + 1 });
        } else {
            if op.items.iter().any(|item| device.is_spoiled(item)) {
                device.note_spoiled(&op);
            }
            device.reports[0].push_back(Report::Step(op.step));
            self.steps.insert((e, op.step), op.items);
        }
        Ok(())
    }

    fn read_item(&self, e: usize, item: &StepItem, unit: (u8, kvweft_core::Component), spoiled: bool) -> Checked {
        let engine = &self.engines[e];
        if spoiled || engine.manager.live_life(item.request) != Some(item.life) {
            return Ok(());
        }
        let page_tokens = u32::from(self.setup.page_tokens);
        let script = &engine.scripts[&(item.request, item.life)];
        for at in 0..item.read as usize {
            let tokens = page_tokens.min(item.first_token - at as u32 * page_tokens);
            engine.shadow.check_read(item.pages[at], unit, script.names[at], tokens)?;
        }
        Ok(())
    }

    fn write_item(
        &mut self,
        e: usize,
        item: &StepItem,
        unit: (u8, kvweft_core::Component),
        begins: bool,
        spoiled: bool,
    ) -> Checked {
        let page_tokens = u32::from(self.setup.page_tokens);
        let engine = &mut self.engines[e];
        let script = &engine.scripts[&(item.request, item.life)];
        for at in item.write_from as usize..item.pages.len() {
            let start = at as u32 * page_tokens;
            let from = item.first_token.max(start) - start;
            let to = (item.first_token + item.tokens).min(start + page_tokens).saturating_sub(start);
            if from >= to {
                continue;
            }
            if begins {
                engine.shadow.begin_write(item.pages[at], unit, "a step")?;
            } else {
                engine.shadow.end_tokens(item.pages[at], unit, script.names[at], from, to, spoiled);
            }
        }
        Ok(())
    }

    /// A write to the peer begins, or ends.
    pub(crate) fn send(&mut self, at: usize) -> Checked {
        let mut sending = self.engines[0].device.nic.remove(at);
        self.engines[0].device.touch(sending.op.transfer);
        if let Some(slot) = sending.op.metadata {
            if self.engines[1].promised.get(&slot.0) != Some(&sending.op.room) {
                return Err(format!("{:?} writes a row that was promised to another", sending.op));
            }
            self.engines[1].device.row_written(slot, sending.op.room);
            self.engines[0].device.part_ended(&sending.op, Outcome::Done);
        } else if sending.begun {
            self.end_send(&sending, false)?;
            self.engines[0].device.part_ended(&sending.op, Outcome::Done);
        } else {
            for (unit, pair) in moved_cells(&sending.op) {
                sending.seen.push(self.engines[0].shadow.begin_read(pair.from, unit, "a send")?);
                self.engines[1].shadow.check_owned(pair.to, "a send")?;
                self.engines[1].shadow.begin_write(pair.to, unit, "a send")?;
            }
            sending.begun = true;
            self.engines[0].device.nic.insert(at, sending);
        }
        Ok(())
    }

    fn end_send(&mut self, sending: &Sending, failed: bool) -> Checked {
        for ((unit, pair), &seen) in moved_cells(&sending.op).into_iter().zip(&sending.seen) {
            let content = self.engines[0].shadow.end_read(pair.from, unit, seen, "a send")?;
            self.engines[1].shadow.check_owned(pair.to, "a send")?;
            self.engines[1].shadow.end_write(pair.to, unit, if failed { Content::Torn } else { content });
        }
        Ok(())
    }

    /// A write to the peer stops; what it wrote is unknown.
    pub(crate) fn fail_send(&mut self, at: usize) -> Checked {
        let sending = self.engines[0].device.nic.remove(at);
        if sending.begun {
            self.end_send(&sending, true)?;
        }
        self.engines[0].device.part_ended(&sending.op, Outcome::Failed);
        Ok(())
    }

    /// The copy at the head of a stream stops; what it wrote is unknown.
    pub(crate) fn fail_copy(&mut self, e: usize, stream: usize) -> Checked {
        let head = self.engines[e].device.streams[stream].pop_front();
        let Some(Queued::Copy { op, phase, seen }) = head else { return Ok(()) };
        let shadow = &mut self.engines[e].shadow;
        let layer = phase / 2;
        let units: Vec<_> =
            op.parts.iter().filter(|part| part.layers.has(layer)).map(|part| (layer, part.component)).collect();
        let mut before = seen.into_iter();
        for &unit in units.iter().filter(|_| phase % 2 == 1) {
            for pair in &op.pairs {
                let content = before.next().expect("read when it began");
                shadow.end_read(pair.from, unit, content, "a copy")?;
                shadow.end_write(pair.to, unit, Content::Torn);
            }
        }
        let device = &mut self.engines[e].device;
        device.give_up(&op);
        device.reports[stream].push_back(Report::Completed(op.transfer, WHOLE, Outcome::Failed));
        Ok(())
    }

    /// The next report of a queue is handed in.
    pub fn report(&mut self, e: usize, source: usize) -> Checked {
        let Some(report) = self.engines[e].device.reports[source].pop_front() else { return Ok(()) };
        self.engines[e].device.tell(report);
        if let Report::Step(step) = report {
            for item in self.steps.remove(&(e, step)).unwrap_or_default() {
                let computed = item.first_token + item.tokens;
                self.engines[e].computed.insert((item.request, item.life), computed);
            }
        }
        self.hand_in(e, report)
    }

    /// Hands a report in, for the first time or again.
    pub(crate) fn hand_in(&mut self, e: usize, report: Report) -> Checked {
        let input = match report {
            Report::Submitted(transfer) => Input::Submitted { transfer },
            Report::SubmitFailed(transfer) => Input::SubmitFailed { transfer },
            Report::Layer(transfer, layer) => Input::LayerReady { transfer, layer },
            Report::Completed(transfer, part, outcome) => Input::Completed { transfer, part, outcome },
            Report::Step(step) => Input::StepDone { step },
            // A second look at a row sees what it names by then.
            Report::Metadata(slot, _) => Input::Metadata { slot, room: self.engines[e].device.rows[&slot.0] },
        };
        self.input(e, input)?;
        Ok(())
    }
}

fn moved_cells(op: &SendOp) -> Vec<((u8, kvweft_core::Component), kvweft_core::Pair)> {
    let mut cells = Vec::new();
    for part in &op.parts {
        for layer in (0..LAYERS).filter(|&layer| part.layers.has(layer)) {
            cells.extend(op.pairs.iter().map(|&pair| ((layer, part.component), pair)));
        }
    }
    cells
}
