//! The operator's reset.

use super::leave::Exit;
use super::{Manager, Role};
use crate::effect::{Ending, Failure};
use crate::ids::{PeerLife, Tier};
use crate::machine::request::RequestState;
use crate::rules::{Rule, Site};
use crate::tree::{NIL, NodeId};

impl Manager {
    /// Ends every request, forgets every cached block, and starts a new incarnation. What is still being moved drains.
    pub(super) fn flush(&mut self) {
        self.life = PeerLife(self.life.0 + 1);
        let ending = Ending::Failed(Failure::Reset);
        let mut ended = self.spare.nodes.take(self.order.len());
        ended.extend_from_slice(&self.order);
        for &index in &ended {
            if self.requests[index as usize].state == RequestState::Draining {
                continue;
            }
            self.stop_for_reset(index, ending);
        }
        self.spare.nodes.keep(ended);
        self.forget_tree();
        let transfers = Rule::ResetClearsEverything.at(Site::Transfers);
        let events = Rule::ResetClearsEverything.at(Site::Events);
        if self.ledger.live() > 0 {
            self.held(transfers);
        }
        if self.events.iter().any(|event| event.busy != NIL) {
            self.held(events);
        }
        if !self.keeps(transfers) {
            // The copies under way are forgotten; their completions will find nothing to release.
            self.ledger.forget_all();
            for event in &mut self.events {
                event.busy = NIL;
            }
        }
        if !self.keeps(events) {
            for event in &mut self.events {
                if event.busy != NIL {
                    event.busy = NIL - 1;
                }
            }
        }
        self.woken = true;
    }

    fn stop_for_reset(&mut self, index: u32, ending: Ending) {
        match self.config.role {
            Role::Together => {
                self.leave(index, Exit::Abort);
                self.answer(index, ending);
                self.end(index);
            }
            Role::Prefill => self.stop_prefill(index, ending, Some(Site::PrefillAbort)),
            Role::Decode => {
                let rooms = Rule::ResetClearsEverything.at(Site::Rooms);
                self.held(rooms);
                if self.keeps(rooms) {
                    self.stop_decode(index, ending, Site::Flush);
                } else {
                    // The request is forgotten; its pages, its metadata row and its peer are not.
                    self.answer(index, ending);
                    self.end(index);
                }
            }
        }
    }

    /// Takes every node out of the tree; nodes that something still touches free their pages when it stops.
    fn forget_tree(&mut self) {
        let mut linked = self.spare.nodes.take(1);
        linked.extend(self.tree.live().filter(|(_, node)| node.linked).map(|(id, _)| id));
        // Leaves first, whatever the numbers of the nodes are.
        while !linked.is_empty() {
            let mut left = self.spare.nodes.take(linked.len());
            let mut leaves = self.spare.nodes.take(linked.len());
            for &id in &linked {
                let list = if self.tree.node(id).children == 0 { &mut leaves } else { &mut left };
                list.push(id);
            }
            self.sort_by_first_block(&mut leaves);
            for &id in &leaves {
                self.tree.unlink(id);
                self.doom(id);
            }
            self.spare.nodes.keep(core::mem::replace(&mut linked, left));
            self.spare.nodes.keep(leaves);
        }
        self.spare.nodes.keep(linked);
        debug_assert!(self.tree.reclaimable == [0; 2] || Tier::HOST == Tier::DEVICE);
    }

    /// Frees in an order that depends on contents alone, never on the numbers of nodes.
    fn sort_by_first_block(&self, nodes: &mut [NodeId]) {
        nodes.sort_unstable_by_key(|&id| self.tree.node(id).blocks[0]);
    }
}
