//! Operations on streams, cut into small ones.

use std::sync::Arc;

use kvweft_core::{Component, CopyOp, RunStep, Stream};
use kvweft_trace::Content;

use crate::config::{EngineConfig, Grain};

/// Something queued on a stream.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Copy(CopyRun),
    Step(StepRun),
    /// Events of a copy that are recorded on another stream than the copy runs on.
    Record(RecordRun),
}

/// A copy between tiers, and how far it has come.
#[derive(Clone, Debug)]
pub(crate) struct CopyRun {
    pub(crate) op: Arc<CopyOp>,
    pub(crate) micros: Arc<[Micro]>,
    /// Small operations done.
    pub(crate) done: u16,
    /// What the cells being copied held when the copy began to read them, pair by pair.
    pub(crate) seen: Vec<Content>,
}

/// A forward step, and how far it has come.
#[derive(Clone, Debug)]
pub(crate) struct StepRun {
    pub(crate) op: Arc<RunStep>,
    pub(crate) micros: Arc<[Micro]>,
    pub(crate) done: u16,
}

/// Events that are recorded on a stream of their own.
#[derive(Clone, Debug)]
pub(crate) struct RecordRun {
    pub(crate) op: Arc<CopyOp>,
    pub(crate) micros: Arc<[Micro]>,
}

/// One page of one item of a forward step, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnePage {
    pub(crate) item: u8,
    pub(crate) position: u16,
}

/// The smallest thing a stream does. `pair` and `one` are set at the finest grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Micro {
    CopyBegin {
        layer: u8,
        part: u8,
        pair: Option<u16>,
    },
    CopyEnd {
        layer: u8,
        part: u8,
        pair: Option<u16>,
    },
    /// The event of a layer; `None` for the completion of a copy without layer events.
    Record {
        layer: Option<u8>,
    },
    Read {
        layer: u8,
        component: Component,
        one: Option<OnePage>,
    },
    WriteBegin {
        layer: u8,
        one: Option<(OnePage, Component)>,
    },
    WriteEnd {
        layer: u8,
        one: Option<(OnePage, Component)>,
    },
}

/// The small operations of a copy, in order.
pub(crate) fn copy_micros(op: &CopyOp, layers: u8, grain: Grain) -> Vec<Micro> {
    let mut micros = Vec::new();
    let own_events = op.record_on == op.stream;
    for layer in 0..layers {
        let mut any = false;
        for (part, moved) in op.parts.iter().enumerate() {
            if !moved.layers.has(layer) {
                continue;
            }
            any = true;
            let part = part as u8;
            if grain == Grain::Finest {
                for pair in 0..op.pairs.len() as u16 {
                    micros.push(Micro::CopyBegin { layer, part, pair: Some(pair) });
                    micros.push(Micro::CopyEnd { layer, part, pair: Some(pair) });
                }
            } else {
                micros.push(Micro::CopyBegin { layer, part, pair: None });
                micros.push(Micro::CopyEnd { layer, part, pair: None });
            }
        }
        if own_events && op.record.is_some() && any {
            micros.push(Micro::Record { layer: Some(layer) });
        }
    }
    micros
}

/// The small operations of a forward step, in order.
pub(crate) fn step_micros(op: &RunStep, config: &EngineConfig, grain: Grain) -> Vec<Micro> {
    let mut micros = Vec::new();
    let reads = op.items.iter().any(|item| item.read > 0);
    let writes = op.items.iter().any(|item| (item.write_from as usize) < item.pages.len());
    for layer in 0..config.layers {
        for component in [Component::IndexK, Component::Kv] {
            if !reads || config.unit(layer, component).is_none() {
                continue;
            }
            if grain == Grain::Finest {
                let pages = pages_of(op, |item| 0..item.read as usize);
                micros.extend(pages.map(|one| Micro::Read { layer, component, one: Some(one) }));
            } else {
                micros.push(Micro::Read { layer, component, one: None });
            }
        }
        if grain == Grain::Finest {
            for one in pages_of(op, |item| item.write_from as usize..item.pages.len()) {
                for component in [Component::IndexK, Component::Kv] {
                    if config.unit(layer, component).is_some() {
                        micros.push(Micro::WriteBegin { layer, one: Some((one, component)) });
                        micros.push(Micro::WriteEnd { layer, one: Some((one, component)) });
                    }
                }
            }
        } else if writes {
            micros.push(Micro::WriteBegin { layer, one: None });
            micros.push(Micro::WriteEnd { layer, one: None });
        }
    }
    micros
}

fn pages_of(
    op: &RunStep,
    positions: impl Fn(&kvweft_core::StepItem) -> std::ops::Range<usize>,
) -> impl Iterator<Item = OnePage> {
    let pages: Vec<OnePage> = op
        .items
        .iter()
        .enumerate()
        .flat_map(|(item, step)| {
            positions(step).map(move |position| OnePage { item: item as u8, position: position as u16 })
        })
        .collect();
    pages.into_iter()
}

/// The records of a copy whose events are not recorded where it runs.
pub(crate) fn record_micros(op: &CopyOp, layers: u8) -> Vec<Micro> {
    if op.record.is_none() {
        return vec![Micro::Record { layer: None }];
    }
    let moved = (0..layers).filter(|&layer| op.parts.iter().any(|part| part.layers.has(layer)));
    moved.map(|layer| Micro::Record { layer: Some(layer) }).collect()
}

impl Op {
    /// All small operations of this one.
    pub(crate) fn micros(&self) -> &Arc<[Micro]> {
        match self {
            Op::Copy(run) => &run.micros,
            Op::Step(run) => &run.micros,
            Op::Record(run) => &run.micros,
        }
    }

    pub(crate) fn done(&self) -> u16 {
        match self {
            Op::Copy(run) => run.done,
            Op::Step(run) => run.done,
            Op::Record(_) => 0,
        }
    }
}

/// Whether the small operation `next` may share a step with those before it in the same operation.
pub(crate) fn joins(before: Micro, next: Micro, fenced: bool, grain: Grain) -> bool {
    if fenced {
        return false;
    }
    match grain {
        Grain::Finest => matches!(next, Micro::Record { .. }),
        Grain::Atomic => match (before, next) {
            (_, Micro::Record { .. }) => true,
            (Micro::Read { .. }, Micro::Read { .. }) => false,
            _ => true,
        },
        Grain::Default => match (before, next) {
            (_, Micro::Record { .. }) => true,
            // The end of one extent and the begin of the next are one step; so is a read with what begins behind it.
            (Micro::CopyEnd { .. } | Micro::Record { .. }, Micro::CopyBegin { .. }) => true,
            (Micro::WriteEnd { .. }, Micro::Read { .. } | Micro::WriteBegin { .. }) => true,
            (Micro::Read { component: Component::Kv, .. }, Micro::WriteBegin { .. }) => true,
            _ => false,
        },
    }
}

/// Where a stream stands in an engine.
pub(crate) fn stream_index(stream: Stream) -> usize {
    match stream {
        Stream::Forward => 0,
        Stream::Load => 1,
        Stream::Store => 2,
    }
}

/// All streams, in order.
pub(crate) const STREAMS: [Stream; 3] = [Stream::Forward, Stream::Load, Stream::Store];
