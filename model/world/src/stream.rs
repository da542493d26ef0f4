//! Streams: what keeps their heads back, and what their heads do.

use std::ops::Range;

use kvweft_core::{Component, CopyOp, Input, MovedPart, Part, PartKind, Rank, StepItem};
use kvweft_trace::Content;

use crate::config::Machine;
use crate::engine::{FROM_FORWARD, FROM_LOAD, FROM_STORE, Hold, HoldOn, Report};
use crate::ops::{CopyRun, Micro, OnePage, Op, RecordRun, joins};
use crate::properties;
use crate::protocol::Protocol;
use crate::world::{Found, LogEntry, World};

/// The whole of a copy, as its completion names it.
pub(crate) const WHOLE: Part = Part { rank: Rank(0), kind: PartKind::Whole, handle: 0 };

impl<P: Protocol> World<P> {
    /// What keeps the head of a stream back, if anything.
    pub(crate) fn stream_hold(&self, engine: usize, stream: usize) -> Option<Hold> {
        let op = self.engines[engine].streams[stream].front()?;
        let micros = op.micros();
        match micros.get(usize::from(op.done())) {
            Some(&micro) => self.micro_hold(engine, op, micro),
            None => self.first_hold(engine, op),
        }
    }

    fn first_hold(&self, engine: usize, op: &Op) -> Option<Hold> {
        let Op::Copy(run) = op else { return None };
        if run.done > 0 {
            return None;
        }
        let fence = self.engines[engine].unmet(&run.op.after)?;
        Some(Hold { owed_to: fence.owed_to, on: HoldOn::Fence(fence.on) })
    }

    /// What keeps a small operation back, if anything.
    pub(crate) fn micro_hold(&self, engine: usize, op: &Op, micro: Micro) -> Option<Hold> {
        match (op, micro) {
            (Op::Copy(_), Micro::CopyBegin { .. }) => self.first_hold(engine, op),
            (Op::Step(run), Micro::Read { layer, component, .. }) => run.op.items.iter().find_map(|item| {
                item.waits.iter().find_map(|wait| {
                    let owed_to = if component == Component::IndexK { wait.index } else { wait.kv }?;
                    let landed = self.engines[engine].landed(wait, layer);
                    (!landed).then_some(Hold { owed_to, on: HoldOn::Layer(*wait, layer) })
                })
            }),
            _ => None,
        }
    }

    /// Whether a small operation has a fence in its contract, met or not: a step ends before it.
    fn fenced(op: &Op, micro: Micro) -> bool {
        match (op, micro) {
            (Op::Step(run), Micro::Read { component, .. }) => run.op.items.iter().any(|item| {
                item.waits
                    .iter()
                    .any(|wait| if component == Component::IndexK { wait.index } else { wait.kv }.is_some())
            }),
            _ => false,
        }
    }

    /// The small operations that the head of a stream does next.
    pub(crate) fn next_micros(&self, machine: &Machine, engine: usize, stream: usize) -> &[Micro] {
        let Some(op) = self.engines[engine].streams[stream].front() else { return &[] };
        let micros = op.micros();
        let left = &micros[usize::from(op.done()).min(micros.len())..];
        let apart = |pair: &[Micro]| !joins(pair[0], pair[1], Self::fenced(op, pair[1]), machine.grain);
        let end = left.windows(2).position(apart).map_or(left.len(), |at| at + 1);
        &left[..end]
    }

    pub(crate) fn run_stream(&mut self, machine: &Machine, engine: usize, stream: usize, found: &mut Found) {
        let count = self.next_micros(machine, engine, stream).len();
        self.run_micros(machine, engine, stream, count, found);
    }

    /// Runs the next `count` small operations of the head of a stream.
    pub(crate) fn run_micros(
        &mut self,
        machine: &Machine,
        engine: usize,
        stream: usize,
        count: usize,
        found: &mut Found,
    ) {
        let mut op = self.engines[engine].streams[stream].pop_front().expect("enabled");
        let first = usize::from(op.done());
        for at in first..first + count {
            let micro = op.micros()[at];
            self.run_micro(machine, engine, &mut op, micro, found);
        }
        let total = op.micros().len();
        let done = match &mut op {
            Op::Copy(run) => {
                run.done += count as u16;
                usize::from(run.done)
            }
            Op::Step(run) => {
                run.done += count as u16;
                usize::from(run.done)
            }
            Op::Record(_) => total,
        };
        if done < total {
            self.engines[engine].streams[stream].push_front(op);
        } else {
            self.op_done(machine, engine, op);
        }
    }

    fn op_done(&mut self, machine: &Machine, engine: usize, op: Op) {
        if !machine.driven && !matches!(op, Op::Record(_)) {
            self.engines[engine].landed.push(op.clone());
        }
        match op {
            Op::Copy(run) if run.op.record_on == run.op.stream => self.copy_reported(engine, &run.op),
            Op::Copy(_) => {}
            Op::Record(run) => self.copy_reported(engine, &run.op),
            Op::Step(run) => self.engines[engine].reports[FROM_FORWARD].push_back(Report::Step(run.op.step)),
        }
    }

    fn copy_reported(&mut self, engine: usize, op: &CopyOp) {
        let source = if op.direction == kvweft_core::Direction::Reload { FROM_LOAD } else { FROM_STORE };
        self.push_completed(engine, source, op.transfer, WHOLE);
    }

    fn run_micro(&mut self, machine: &Machine, engine: usize, op: &mut Op, micro: Micro, found: &mut Found) {
        match (op, micro) {
            (Op::Copy(run), Micro::CopyBegin { layer, part, pair }) => {
                let moved = run.op.parts[usize::from(part)];
                let pairs = range(pair, run.op.pairs.len());
                self.begin_move(machine, (engine, engine), &run.op.pairs[pairs], moved, layer, &mut run.seen, found);
            }
            (Op::Copy(run), Micro::CopyEnd { layer, part, pair }) => {
                let moved = run.op.parts[usize::from(part)];
                let pairs = range(pair, run.op.pairs.len());
                let seen = std::mem::take(&mut run.seen);
                self.end_move(machine, (engine, engine), &run.op.pairs[pairs], moved, layer, &seen, found);
            }
            (Op::Copy(CopyRun { op, .. }) | Op::Record(RecordRun { op, .. }), Micro::Record { layer: Some(layer) }) => {
                let op = op.clone();
                self.record(machine, engine, &op, layer, found);
            }
            (Op::Step(run), Micro::Read { layer, component, one }) => {
                for (at, item) in run.op.items.iter().enumerate() {
                    let positions = chosen(at, one, 0..item.read as usize);
                    self.read(machine, engine, item, positions, (layer, component), found);
                }
            }
            (Op::Step(run), Micro::WriteBegin { layer, one }) => {
                for (at, item) in run.op.items.iter().enumerate() {
                    let positions = chosen(at, one.map(|(page, _)| page), written(item));
                    self.write_begin(machine, engine, item, positions, (layer, one.map(|(_, only)| only)), found);
                }
            }
            (Op::Step(run), Micro::WriteEnd { layer, one }) => {
                for (at, item) in run.op.items.iter().enumerate() {
                    let positions = chosen(at, one.map(|(page, _)| page), written(item));
                    self.write_end(machine, engine, item, positions, (layer, one.map(|(_, only)| only)));
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, machine: &Machine, engine: usize, op: &CopyOp, layer: u8, found: &mut Found) {
        if let Some(record) = op.record {
            let state = &mut self.engines[engine].events[usize::from(record.slot.0)];
            state.recorded[usize::from(layer)] = Some(record.generation);
            state.flags.0 |= 1 << layer;
            if !machine.driven {
                self.input(machine, engine as u8, Input::LayerReady { transfer: op.transfer, layer }, found);
            }
        }
    }

    /// A copy or send begins to move one component of one layer.
    #[allow(clippy::too_many_arguments, reason = "both ends of a move and what is moved")]
    pub(crate) fn begin_move(
        &mut self,
        machine: &Machine,
        (from, to): (usize, usize),
        pairs: &[kvweft_core::Pair],
        moved: MovedPart,
        layer: u8,
        seen: &mut Vec<Content>,
        found: &mut Found,
    ) {
        let Some(source) = machine.engines[from].unit(layer, moved.component) else { return };
        let Some(target) = machine.engines[to].unit(layer, moved.component) else { return };
        properties::layouts_match::check(moved, found);
        for pair in pairs {
            properties::owner_only::check(&self.engines[from].memory, pair.from, "reads", found);
            properties::owner_only::check(&self.engines[to].memory, pair.to, "writes", found);
            let cell = self.engines[from].memory.cell_mut(pair.from, source);
            properties::no_read_under_write::check(*cell, moved.component, layer, "a copy", found);
            cell.readers += 1;
            seen.push(if cell.writers > 0 { Content::Torn } else { cell.content });
            let cell = self.engines[to].memory.cell_mut(pair.to, target);
            properties::no_write_under_read::check(*cell, moved.component, layer, "a copy", found);
            cell.writers += 1;
        }
    }

    /// A copy or send has moved one component of one layer.
    #[allow(clippy::too_many_arguments, reason = "both ends of a move and what is moved")]
    pub(crate) fn end_move(
        &mut self,
        machine: &Machine,
        (from, to): (usize, usize),
        pairs: &[kvweft_core::Pair],
        moved: MovedPart,
        layer: u8,
        seen: &[Content],
        found: &mut Found,
    ) {
        let Some(source) = machine.engines[from].unit(layer, moved.component) else { return };
        let Some(target) = machine.engines[to].unit(layer, moved.component) else { return };
        for (pair, &seen) in pairs.iter().zip(seen) {
            properties::owner_only::check(&self.engines[from].memory, pair.from, "reads", found);
            properties::owner_only::check(&self.engines[to].memory, pair.to, "writes", found);
            let cell = self.engines[from].memory.cell_mut(pair.from, source);
            cell.readers = cell.readers.saturating_sub(1);
            let read = if cell.writers > 0 || cell.content != seen { Content::Torn } else { seen };
            let cell = self.engines[to].memory.cell_mut(pair.to, target);
            cell.content = if cell.writers > 1 { Content::Torn } else { arrives_as(read, moved) };
            cell.writers = cell.writers.saturating_sub(1);
        }
    }

    fn read(
        &mut self,
        machine: &Machine,
        engine: usize,
        item: &StepItem,
        positions: Range<usize>,
        (layer, component): (u8, Component),
        found: &mut Found,
    ) {
        let Some(unit) = machine.engines[engine].unit(layer, component) else { return };
        if !self.engines[engine].manager.wants(item.request, item.life) {
            return;
        }
        for position in positions {
            let Some(&block) = item.pages.get(position) else { break };
            let expected = machine.scripts[item.request.0 as usize].content(position);
            let cell = self.engines[engine].memory.cell(block, unit);
            properties::no_read_under_write::check(cell, component, layer, "the forward step", found);
            let content = if cell.writers > 0 { Content::Torn } else { cell.content };
            found.note(|| LogEntry::Read { expected, found: content });
            properties::reads_see_own_content::check(machine, item.request, component, layer, expected, content, found);
        }
    }

    fn write_begin(
        &mut self,
        machine: &Machine,
        engine: usize,
        item: &StepItem,
        positions: Range<usize>,
        (layer, only): (u8, Option<Component>),
        found: &mut Found,
    ) {
        for (component, unit) in components(machine, engine, layer, only) {
            for &block in &item.pages[positions.clone()] {
                let cell = self.engines[engine].memory.cell_mut(block, unit);
                properties::no_write_under_read::check(*cell, component, layer, "the forward step", found);
                cell.writers += 1;
            }
        }
    }

    fn write_end(
        &mut self,
        machine: &Machine,
        engine: usize,
        item: &StepItem,
        positions: Range<usize>,
        (layer, only): (u8, Option<Component>),
    ) {
        for (_, unit) in components(machine, engine, layer, only) {
            for position in positions.clone() {
                let content = machine.scripts[item.request.0 as usize].content(position);
                let cell = self.engines[engine].memory.cell_mut(item.pages[position], unit);
                cell.content = if cell.writers > 1 { Content::Torn } else { Content::Block(content) };
                cell.writers = cell.writers.saturating_sub(1);
            }
        }
    }
}

/// The pages that an item writes, by position.
fn written(item: &StepItem) -> Range<usize> {
    (item.write_from as usize).min(item.pages.len())..item.pages.len()
}

/// The positions of an item that a small operation is about: all, or the one it names.
fn chosen(item: usize, one: Option<OnePage>, all: Range<usize>) -> Range<usize> {
    match one {
        None => all,
        Some(page) if usize::from(page.item) == item => usize::from(page.position)..usize::from(page.position) + 1,
        Some(_) => 0..0,
    }
}

/// The components of a layer, or the one named, with their cells.
fn components(
    machine: &Machine,
    engine: usize,
    layer: u8,
    only: Option<Component>,
) -> impl Iterator<Item = (Component, usize)> + '_ {
    [Component::IndexK, Component::Kv]
        .into_iter()
        .filter(move |&component| only.is_none_or(|only| only == component))
        .filter_map(move |component| machine.engines[engine].unit(layer, component).map(|unit| (component, unit)))
}

fn range(pair: Option<u16>, count: usize) -> std::ops::Range<usize> {
    match pair {
        Some(pair) => usize::from(pair)..usize::from(pair) + 1,
        None => 0..count,
    }
}

/// What bytes are worth where they arrive: the same, if source, copy and destination lay them out alike.
fn arrives_as(content: Content, moved: MovedPart) -> Content {
    let alike = moved.from == moved.moved && moved.moved == moved.to;
    match content {
        Content::Block(block) if !alike => Content::Mislaid(block),
        other => other,
    }
}
