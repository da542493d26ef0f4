//! One-sided writes into the peer's memory.

use kvweft_core::{Outcome, PartKind};
use kvweft_trace::Content;

use crate::config::Machine;
use crate::engine::{FROM_NIC, NicRun, Report};
use crate::protocol::Protocol;
use crate::world::{Found, OTHER, World};

impl<P: Protocol> World<P> {
    pub(crate) fn run_nic(&mut self, machine: &Machine, at: usize, found: &mut Found) {
        if self.engines[0].nic[at].op.part.kind == PartKind::Metadata {
            let run = self.engines[0].nic.remove(at);
            self.write_metadata(&run);
            self.push_completed(0, FROM_NIC, run.op.transfer, run.op.part);
            return;
        }
        if self.engines[0].nic[at].begun {
            let run = self.engines[0].nic.remove(at);
            self.move_all(machine, &run, found);
            self.push_completed(0, FROM_NIC, run.op.transfer, run.op.part);
        } else {
            let mut run = self.engines[0].nic[at].clone();
            for part in run.op.parts.clone() {
                for layer in (0..machine.engines[0].layers).filter(|&layer| part.layers.has(layer)) {
                    self.begin_move(machine, (0, 1), &run.op.pairs, part, layer, &mut run.seen, found);
                }
            }
            run.begun = true;
            self.engines[0].nic[at] = run;
        }
    }

    fn move_all(&mut self, machine: &Machine, run: &NicRun, found: &mut Found) {
        let mut seen = run.seen.as_slice();
        for &part in &run.op.parts {
            for layer in (0..machine.engines[0].layers).filter(|&layer| part.layers.has(layer)) {
                let (now, rest) = seen.split_at(run.op.pairs.len().min(seen.len()));
                self.end_move(machine, (0, 1), &run.op.pairs, part, layer, now, found);
                seen = rest;
            }
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
        let mut ignored = Found::default();
        self.move_all(machine, &run, &mut ignored);
        for part in &run.op.parts {
            for layer in (0..machine.engines[1].layers).filter(|&layer| part.layers.has(layer)) {
                let Some(unit) = machine.engines[1].unit(layer, part.component) else { continue };
                for pair in &run.op.pairs {
                    self.engines[1].memory.cell_mut(pair.to, unit).content = Content::Torn;
                }
            }
        }
        self.clients[run.op.transfer.request.0 as usize].faults |= OTHER;
        let report = Report::Completed(run.op.transfer, run.op.part, Outcome::Failed);
        self.engines[0].reports[FROM_NIC].push_back(report);
    }
}
