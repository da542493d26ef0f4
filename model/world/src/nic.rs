//! One-sided writes into the peer's memory.

use std::ops::Range;
use std::sync::Arc;

use kvweft_core::{MovedPart, Outcome, PartKind};
use kvweft_trace::Content;

use crate::config::{Grain, Machine};
use crate::engine::{FROM_NIC, NicRun, Report};
use crate::protocol::Protocol;
use crate::world::{Found, OTHER, World};

/// What a write moves between one begin and one end: part, layer and pages.
type Piece = Vec<(MovedPart, u8, Range<usize>)>;

/// All of a write at once; at the finest grain, page by page and layer by layer.
fn pieces(machine: &Machine, run: &NicRun) -> Vec<Piece> {
    let mut pieces = vec![Vec::new()];
    for &part in &run.op.parts {
        for layer in (0..machine.engines[0].layers).filter(|&layer| part.layers.has(layer)) {
            if machine.grain == Grain::Finest {
                pieces.extend((0..run.op.pairs.len()).map(|pair| vec![(part, layer, pair..pair + 1)]));
            } else {
                pieces[0].push((part, layer, 0..run.op.pairs.len()));
            }
        }
    }
    if pieces.len() > 1 {
        pieces.remove(0);
    }
    pieces
}

impl<P: Protocol> World<P> {
    pub(crate) fn run_nic(&mut self, machine: &Machine, at: usize, found: &mut Found) {
        if self.engines[0].nic[at].op.part.kind == PartKind::Metadata {
            let run = self.engines[0].nic.remove(at);
            self.write_metadata(&run);
            self.push_completed(0, FROM_NIC, run.op.transfer, run.op.part);
            return;
        }
        let mut run = self.engines[0].nic.remove(at);
        let pieces = pieces(machine, &run);
        let piece = &pieces[usize::from(run.done) / 2];
        if run.done.is_multiple_of(2) {
            for &(part, layer, ref pairs) in piece {
                let NicRun { op, seen, .. } = &mut run;
                self.begin_move(machine, (0, 1), &op.pairs[pairs.clone()], part, layer, seen, found);
            }
        } else {
            self.end_piece(machine, &run, piece, found);
            run.seen.clear();
        }
        run.done += 1;
        if usize::from(run.done) == 2 * pieces.len() {
            self.push_completed(0, FROM_NIC, run.op.transfer, run.op.part);
            self.arrive(machine, &run);
        } else {
            self.engines[0].nic.insert(at, run);
        }
    }

    fn arrive(&mut self, machine: &Machine, run: &NicRun) {
        if !machine.driven {
            self.arrived.push(Arc::clone(&run.op));
        }
    }

    fn end_piece(&mut self, machine: &Machine, run: &NicRun, piece: &Piece, found: &mut Found) {
        let mut seen = run.seen.as_slice();
        for &(part, layer, ref pairs) in piece {
            let pairs = &run.op.pairs[pairs.clone()];
            let (now, rest) = seen.split_at(pairs.len().min(seen.len()));
            self.end_move(machine, (0, 1), pairs, part, layer, now, found);
            seen = rest;
        }
    }

    fn write_metadata(&mut self, run: &NicRun) {
        if let Some(slot) = run.op.metadata {
            self.engines[1].metadata[slot.0 as usize] = Some(run.op.room);
            self.engines[1].reports[FROM_NIC].push_back(Report::Metadata(slot, run.op.room));
        }
    }

    /// A write under way fails: what it has written is unknown.
    pub(crate) fn fail_part(&mut self, machine: &Machine, at: usize) {
        let run = self.engines[0].nic.remove(at);
        if run.done % 2 == 1 {
            let piece = &pieces(machine, &run)[usize::from(run.done) / 2];
            self.end_piece(machine, &run, piece, &mut Found::default());
        }
        for part in &run.op.parts {
            for layer in (0..machine.engines[1].layers).filter(|&layer| part.layers.has(layer)) {
                let Some(unit) = machine.engines[1].unit(layer, part.component) else { continue };
                for pair in &run.op.pairs {
                    self.engines[1].memory.cell_mut(pair.to, unit).content = Content::Torn;
                }
            }
        }
        self.arrive(machine, &run);
        self.clients[run.op.transfer.request.0 as usize].faults |= OTHER;
        let report = Report::Completed(run.op.transfer, run.op.part, Outcome::Failed);
        self.engines[0].reports[FROM_NIC].push_back(report);
    }
}
