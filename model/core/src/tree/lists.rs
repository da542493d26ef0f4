//! What may be evicted, and how much of it there is: one list and two counts a tier, kept up to date node by node.

use super::{Lease, NIL, NodeId, Residence, Tree};
use crate::ids::Tier;

/// Its pages are in [`Tree::reclaimable`].
const COUNTED: u8 = 1;
/// It is in [`Tree::withheld`].
const WITHHELD: u8 = 2;
/// It is in the list of what may be evicted.
const LISTED: u8 = 4;

/// A list of nodes that may be evicted from one tier, least recently used first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lru {
    first: NodeId,
    last: NodeId,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru { first: NIL, last: NIL }
    }
}

impl Tree {
    /// Makes what can be evicted from `tier` on the path down to a node the last to go, as a lease that is taken and
    /// given back would. Of a path, only the deepest node with pages in a tier can be on its list.
    pub(crate) fn touch(&mut self, id: NodeId, tier: Tier) {
        let t = tier.0 as usize;
        let deepest = self.upwards(id).find(|&at| self.node(at).has(tier));
        if let Some(deepest) = deepest.filter(|&at| self.node(at).standing[t] & LISTED != 0 && !self.evict_leased[t]) {
            self.remove(deepest, t);
            self.push(deepest, t);
        }
    }

    /// The next node to evict from a tier.
    pub(crate) fn victim(&self, tier: Tier) -> Option<NodeId> {
        let first = self.lru[tier.0 as usize].first;
        (first != NIL).then_some(first)
    }

    /// Brings the lists and counts up to date with a node.
    pub(crate) fn refresh(&mut self, id: NodeId) {
        self.refresh_in(id, Tier::DEVICE);
        self.refresh_in(id, Tier::HOST);
    }

    /// Brings the lists and counts up to date where a kind of lease matters.
    pub(super) fn refresh_held(&mut self, id: NodeId, lease: Lease) {
        match lease {
            Lease::Request => self.refresh_in(id, Tier::DEVICE),
            Lease::Store => self.refresh(id),
            Lease::Load => self.refresh_in(id, Tier::HOST),
        }
    }

    fn refresh_in(&mut self, id: NodeId, tier: Tier) {
        let t = tier.0 as usize;
        let node = &mut self.nodes[id as usize];
        let resident = node.linked && node.is(tier, Residence::Resident);
        let held = node.held_in(tier);
        let open = resident && (self.evict_leased[t] || !held);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let listed = open && node.child_in[t] == 0;
        let standing = bit(open, COUNTED) | bit(resident && held, WITHHELD) | bit(listed, LISTED);
        self.stand(id, t, standing);
    }

    /// Takes a node off all lists and counts, before its pages change.
    pub(crate) fn unlist(&mut self, id: NodeId) {
        self.stand(id, 0, 0);
        self.stand(id, 1, 0);
    }

    /// Puts a node on the lists and into the counts of `standing`, and off the others.
    fn stand(&mut self, id: NodeId, t: usize, standing: u8) {
        let node = &mut self.nodes[id as usize];
        let changed = standing ^ core::mem::replace(&mut node.standing[t], standing);
        if changed & COUNTED != 0 {
            let pages = node.resident_pages[t];
            let sum = &mut self.reclaimable[t];
            *sum = if standing & COUNTED != 0 { *sum + pages } else { *sum - pages };
        }
        if changed & WITHHELD != 0 {
            let sum = &mut self.withheld[t];
            *sum = if standing & WITHHELD != 0 { *sum + 1 } else { *sum - 1 };
        }
        if changed & LISTED != 0 {
            if standing & LISTED != 0 {
                self.push(id, t);
            } else {
                self.remove(id, t);
            }
        }
    }

    fn push(&mut self, id: NodeId, t: usize) {
        let last = self.lru[t].last;
        let node = self.node_mut(id);
        node.previous[t] = last;
        node.following[t] = NIL;
        if last == NIL {
            self.lru[t].first = id;
        } else {
            self.node_mut(last).following[t] = id;
        }
        self.lru[t].last = id;
    }

    fn remove(&mut self, id: NodeId, t: usize) {
        let node = self.node_mut(id);
        let (previous, following) = (node.previous[t], node.following[t]);
        if previous == NIL {
            self.lru[t].first = following;
        } else {
            self.node_mut(previous).following[t] = following;
        }
        if following == NIL {
            self.lru[t].last = previous;
        } else {
            self.node_mut(following).previous[t] = previous;
        }
    }

    /// The nodes of a tier's list, least recently used first.
    pub(crate) fn listed(&self, tier: Tier) -> impl Iterator<Item = NodeId> + '_ {
        let t = tier.0 as usize;
        let start = self.lru[t].first;
        core::iter::successors((start != NIL).then_some(start), move |&id| {
            let next = self.node(id).following[t];
            (next != NIL).then_some(next)
        })
    }
}
