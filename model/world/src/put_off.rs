//! Which steps can wait: those that commute with every other that is possible now, and whatever they make possible as well.
//! What is left is a persistent set; `docs/reductions.md` has the argument.

use kvweft_core::{Body, Message, PartKind, Status};

use crate::actions::Action;
use crate::engine::{FROM_NIC, NicRun, Report};
use crate::protocol::Protocol;
use crate::world::World;

impl<P: Protocol> World<P> {
    /// Takes out of `actions`, all that are possible, those that can wait, unless their kind is in `refuted`: see
    /// [`Found::refuted`](crate::Found::refuted).
    pub fn put_off(&self, refuted: u128, actions: &mut Vec<Action>) {
        if self.engines.len() < 2 {
            return;
        }
        let refuted = self.refuted_now(refuted);
        let metadata_waits = self.metadata_waits();
        let expires = actions.iter().any(|action| matches!(action, Action::Fire { .. }));
        // A report queues up behind others whenever its send ends; but two sends that end queue up in their order.
        let ends_wait = !self.engines[0].reports[FROM_NIC].is_empty()
            && (self.left.part_failures == 0 && self.left.duplicates == 0)
            && actions.iter().all(|action| match *action {
                Action::Nic { at } if self.ends(at) => self.end_waits(at, refuted, metadata_waits && !expires),
                _ => true,
            });
        actions.retain(|action| match *action {
            Action::Nic { at } => !(ends_wait && self.ends(at)),
            Action::Report { engine: 1, source } => !(metadata_waits && usize::from(source) == FROM_NIC),
            _ => true,
        });
    }

    fn nic_run(&self, at: u8) -> &NicRun {
        &self.engines[0].nic[usize::from(at)]
    }

    fn ends(&self, at: u8) -> bool {
        let run = self.nic_run(at);
        run.op.part.kind == PartKind::Metadata || !run.done.is_multiple_of(2)
    }

    /// Whether all that the end of a send does, beside its writes, is to queue a report behind another.
    fn end_waits(&self, at: u8, refuted: u64, metadata_waits: bool) -> bool {
        let op = &self.nic_run(at).op;
        // Where the peer has been told already, a deadline looks at whether sends are under way.
        let told = self.links[1].iter().any(|message| message.room == op.room && is_success(message));
        let commutes = match op.metadata {
            _ if op.part.kind != PartKind::Metadata => self.send_commutes(usize::from(at), refuted),
            // Nobody reads the row before he is told of it, or that all has arrived.
            Some(slot) => metadata_waits && self.engines[1].manager.only_notes_metadata(slot),
            None => metadata_waits,
        };
        commutes && !told
    }

    /// Whether the decode manager would only note that metadata has come: no status is about to be delivered for which it
    /// matters. A deadline that passes takes in what is queued before it looks.
    fn metadata_waits(&self) -> bool {
        let back = &self.engines[1];
        !self.links[1].front().is_some_and(|message| is_success(message))
            && back.reports[FROM_NIC].iter().all(|report| match *report {
                Report::Metadata(slot, _) => back.manager.only_notes_metadata(slot),
                Report::Step(_) | Report::Completed(..) => false,
            })
    }
}

fn is_success(message: &Message) -> bool {
    matches!(message.body, Body::Status(Status::Success))
}
