//! The small operations of a device, named by what they work on: how a world, an event log and real threads agree.

use std::fmt;

use kvweft_core::{Component, Part, PartKind, StepId, TransferId};

use crate::actions::Action;
use crate::config::Machine;
use crate::describe::part_text;
use crate::engine::NicRun;
use crate::ops::{CopyRun, Micro, Op, RecordRun};
use crate::protocol::Protocol;
use crate::world::World;

/// One small operation, at the default grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields name what is worked on")]
pub enum Operation {
    /// A copy begins to move one component of one layer.
    CopyBegin { engine: u8, transfer: TransferId, layer: u8, component: Component },
    /// It has moved it.
    CopyEnd { engine: u8, transfer: TransferId, layer: u8, component: Component },
    /// The event of a layer is recorded, or the completion of a copy on another stream.
    Record { engine: u8, transfer: TransferId, layer: Option<u8> },
    /// A forward step reads one component of one layer.
    Read { engine: u8, step: StepId, layer: u8, component: Component },
    /// A forward step begins to write one layer.
    WriteBegin { engine: u8, step: StepId, layer: u8 },
    /// It has written it.
    WriteEnd { engine: u8, step: StepId, layer: u8 },
    /// A step that neither reads nor writes.
    Nothing { engine: u8, step: StepId },
    /// A part of a send begins.
    SendBegin { transfer: TransferId, part: Part },
    /// It has ended; metadata is written in this one step.
    SendEnd { transfer: TransferId, part: Part },
    /// It fails.
    SendFail { transfer: TransferId, part: Part },
    /// The scheduler takes the next report of a queue: forward, load, store, NIC.
    Report { engine: u8, source: u8 },
    /// A control message arrives: 0 at prefill, 1 at decode.
    Deliver { link: u8 },
}

impl Operation {
    /// What a send does next.
    pub(crate) fn next_of(run: &NicRun) -> Operation {
        let (transfer, part) = (run.op.transfer, run.op.part);
        let ends = part.kind == PartKind::Metadata || run.done % 2 == 1;
        if ends { Operation::SendEnd { transfer, part } } else { Operation::SendBegin { transfer, part } }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Operation::CopyBegin { engine, transfer, layer, component } => {
                write!(f, "engine {engine}: {transfer} begins {} of layer {layer}", component.name())
            }
            Operation::CopyEnd { engine, transfer, layer, component } => {
                write!(f, "engine {engine}: {transfer} ends {} of layer {layer}", component.name())
            }
            Operation::Record { engine, transfer, layer: Some(layer) } => {
                write!(f, "engine {engine}: {transfer} records layer {layer}")
            }
            Operation::Record { engine, transfer, layer: None } => {
                write!(f, "engine {engine}: {transfer} records its end")
            }
            Operation::Read { engine, step, layer, component } => {
                write!(f, "engine {engine}: step {} reads {} of layer {layer}", step.0, component.name())
            }
            Operation::WriteBegin { engine, step, layer } => {
                write!(f, "engine {engine}: step {} begins to write layer {layer}", step.0)
            }
            Operation::WriteEnd { engine, step, layer } => {
                write!(f, "engine {engine}: step {} has written layer {layer}", step.0)
            }
            Operation::Nothing { engine, step } => write!(f, "engine {engine}: step {} passes", step.0),
            Operation::SendBegin { transfer, part } => write!(f, "{transfer} begins to send {}", part_text(part)),
            Operation::SendEnd { transfer, part } => write!(f, "{transfer} has sent {}", part_text(part)),
            Operation::SendFail { transfer, part } => write!(f, "{transfer} fails to send {}", part_text(part)),
            Operation::Report { engine, source } => write!(f, "engine {engine}: a report of queue {source} is taken"),
            Operation::Deliver { link } => write!(f, "a message arrives at engine {link}"),
        }
    }
}

impl<P: Protocol> World<P> {
    /// The operations of the device that an action consists of; empty for what clients, timers and faults do.
    pub fn operations(&self, machine: &Machine, action: Action) -> Vec<Operation> {
        match action {
            Action::Stream { engine, stream } => self.stream_operations(machine, engine, stream),
            Action::Nic { at } => {
                vec![Operation::next_of(&self.engines[0].nic[usize::from(at)])]
            }
            Action::FailPart { at } => {
                let run = &self.engines[0].nic[usize::from(at)];
                vec![Operation::SendFail { transfer: run.op.transfer, part: run.op.part }]
            }
            Action::Report { engine, source } => vec![Operation::Report { engine, source }],
            Action::Deliver { link } => vec![Operation::Deliver { link }],
            _ => Vec::new(),
        }
    }

    fn stream_operations(&self, machine: &Machine, engine: u8, stream: u8) -> Vec<Operation> {
        let Some(op) = self.engines[usize::from(engine)].streams[usize::from(stream)].front() else {
            return Vec::new();
        };
        let next = self.next_micros(machine, usize::from(engine), usize::from(stream));
        if let (Op::Step(run), true) = (op, next.is_empty()) {
            return vec![Operation::Nothing { engine, step: run.op.step }];
        }
        next.iter().map(|&micro| operation(op, micro, engine)).collect()
    }
}

/// The name of a small operation of `op`.
///
/// # Panics
/// If the operation has no such small operation: a mistake in how it was cut.
pub(crate) fn operation(op: &Op, micro: Micro, engine: u8) -> Operation {
    match (op, micro) {
        (Op::Copy(run), Micro::CopyBegin { layer, part, .. }) => {
            let component = run.op.parts[usize::from(part)].component;
            Operation::CopyBegin { engine, transfer: run.op.transfer, layer, component }
        }
        (Op::Copy(run), Micro::CopyEnd { layer, part, .. }) => {
            let component = run.op.parts[usize::from(part)].component;
            Operation::CopyEnd { engine, transfer: run.op.transfer, layer, component }
        }
        (Op::Copy(CopyRun { op, .. }) | Op::Record(RecordRun { op, .. }), Micro::Record { layer }) => {
            Operation::Record { engine, transfer: op.transfer, layer }
        }
        (Op::Step(run), Micro::Read { layer, component, .. }) => {
            Operation::Read { engine, step: run.op.step, layer, component }
        }
        (Op::Step(run), Micro::WriteBegin { layer, .. }) => Operation::WriteBegin { engine, step: run.op.step, layer },
        (Op::Step(run), Micro::WriteEnd { layer, .. }) => Operation::WriteEnd { engine, step: run.op.step, layer },
        _ => unreachable!("a copy is cut into moves and records, a step into reads and writes"),
    }
}
