//! The prefix tree: runs of blocks, where their pages are, and who holds them.
//!
//! A node is a run of blocks with the same history. A node that is not linked belongs to one request (its new prompt
//! pages, its answer) and cannot be matched. Leases are taken on a node and all its ancestors, so a node without a lease
//! has no descendant with one.

mod lists;

use alloc::vec::Vec;

use lists::Lru;

use crate::ids::{BlockHash, PageId, Tier};
use crate::map::Map;
use crate::shelf::Shelf;

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

/// Index of a node.
pub(crate) type NodeId = u32;

/// Whether a node's pages are in a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Residence {
    /// It has no pages there.
    #[default]
    Absent,
    /// They are being written.
    Filling,
    /// They are complete.
    Resident,
}

/// Why a node is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Lease {
    /// A request reads or writes it.
    Request,
    /// An offload reads its device pages.
    Store,
    /// A reload reads its host pages.
    Load,
}

const LEASES: usize = 3;

/// A run of blocks. What a match and a lease look at comes first and fits a cache line: at real size a path is a hundred
/// nodes and more, and each of them is far away in memory.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Node {
    pub(crate) blocks: Vec<BlockHash>,
    pub(crate) parent: NodeId,
    pub(crate) leases: [u32; LEASES],
    /// Linked children that have pages in each tier.
    pub(crate) child_in: [u32; 2],
    /// Its pages in each tier where it is resident.
    resident_pages: [u32; 2],
    pub(crate) linked: bool,
    pub(crate) live: bool,
    /// Its owner is gone: free its pages as soon as no lease is left.
    pub(crate) doomed: bool,
    /// Its reload has failed, and somebody still holds its device pages: they go with the last lease.
    pub(crate) broken: bool,
    pub(crate) residence: [Residence; 2],
    /// By tier: where the tree counts and lists it, as bits.
    standing: [u8; 2],
    pub(crate) pages: [Vec<PageId>; 2],
    /// Where to look first for the child that a prompt goes on with: the youngest. Not part of the state.
    likely_child: NodeId,
    /// The offload and the reload under way, as transfer records.
    pub(crate) store: u32,
    pub(crate) load: u32,
    pub(crate) children: u32,
    previous: [NodeId; 2],
    following: [NodeId; 2],
}

const _: () = assert!(core::mem::offset_of!(Node, pages) <= 64);

impl Node {
    pub(crate) fn lease_count(&self) -> u32 {
        self.leases.iter().sum()
    }

    pub(crate) fn leased(&self, lease: Lease) -> bool {
        self.leases[lease as usize] > 0
    }

    pub(crate) fn has(&self, tier: Tier) -> bool {
        self.residence[tier.0 as usize] != Residence::Absent
    }

    pub(crate) fn is(&self, tier: Tier, residence: Residence) -> bool {
        self.residence[tier.0 as usize] == residence
    }

    pub(crate) fn pages_in(&self, tier: Tier) -> &[PageId] {
        &self.pages[tier.0 as usize]
    }

    /// Whether a request may use its content, after a reload if need be.
    pub(crate) fn usable(&self) -> bool {
        !self.broken && (self.has(Tier::DEVICE) || self.is(Tier::HOST, Residence::Resident))
    }

    /// Whether nobody holds it and there is nothing to keep it for.
    pub(crate) fn is_loose(&self) -> bool {
        let needless = if self.linked {
            self.broken || !self.has(Tier::DEVICE) && !self.has(Tier::HOST) && self.children == 0
        } else {
            self.doomed
        };
        needless && self.lease_count() == 0
    }

    /// Whether a lease forbids to evict it from `tier`.
    pub(crate) fn held_in(&self, tier: Tier) -> bool {
        if tier == Tier::DEVICE {
            self.leased(Lease::Request) || self.leased(Lease::Store)
        } else {
            self.leased(Lease::Load) || self.leased(Lease::Store)
        }
    }
}

/// How far a prompt is in the tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Match {
    /// The deepest node that matched as a whole.
    pub(crate) node: NodeId,
    /// Blocks that matched.
    pub(crate) blocks: u32,
}

/// The tree and its detached nodes.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    unused: Vec<NodeId>,
    /// Grows whenever a match may end elsewhere than before, or need another reload.
    pub(crate) shape: u64,
    /// Linked nodes by their first block; a block's hash covers everything before it.
    by_first: Map<BlockHash, NodeId>,
    lru: [Lru; 2],
    /// Pages of unheld resident nodes, by tier: what eviction can give at most.
    pub(crate) reclaimable: [u32; 2],
    /// Linked resident nodes that only a lease keeps from eviction, by tier.
    pub(crate) withheld: [u32; 2],
    /// With the rule that eviction skips leased nodes dropped, leased nodes are candidates too.
    pub(crate) evict_leased: [bool; 2],
    spare_blocks: Shelf<BlockHash>,
    spare_pages: Shelf<PageId>,
}

impl Tree {
    pub(crate) fn new(evict_leased: [bool; 2]) -> Tree {
        Tree {
            nodes: Vec::new(),
            unused: Vec::new(),
            shape: 0,
            by_first: Map::default(),
            lru: [Lru::default(); 2],
            reclaimable: [0; 2],
            withheld: [0; 2],
            evict_leased,
            spare_blocks: Shelf::default(),
            spare_pages: Shelf::default(),
        }
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// A detached node below `parent`.
    pub(crate) fn detached(&mut self, parent: NodeId) -> NodeId {
        let id = self.unused.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.nodes.len() as u32 - 1
        });
        let node = &mut self.nodes[id as usize];
        debug_assert!(!node.live);
        node.parent = parent;
        node.live = true;
        node.store = NIL;
        node.load = NIL;
        node.likely_child = NIL;
        id
    }

    /// Appends to the blocks of a node.
    pub(crate) fn add_blocks(&mut self, id: NodeId, blocks: &[BlockHash]) {
        let node = &mut self.nodes[id as usize];
        self.spare_blocks.reserve(&mut node.blocks, blocks.len());
        node.blocks.extend_from_slice(blocks);
    }

    /// The pages of a node in a tier, with room for `more`.
    pub(crate) fn pages_for(&mut self, id: NodeId, tier: Tier, more: usize) -> &mut Vec<PageId> {
        let pages = &mut self.nodes[id as usize].pages[tier.0 as usize];
        self.spare_pages.reserve(pages, more);
        pages
    }

    /// Keeps the emptied list of a node's pages for another one.
    pub(crate) fn keep_pages(&mut self, pages: Vec<PageId>) {
        self.spare_pages.keep(pages);
    }

    /// The longest run of whole blocks of `blocks` that the tree has, splitting a node where the match ends inside it.
    /// `split` is told (upper, lower) of a split.
    pub(crate) fn match_prefix(
        &mut self,
        blocks: &[BlockHash],
        mut split: impl FnMut(&mut Tree, NodeId, NodeId),
    ) -> Match {
        let mut found = Match { node: NIL, blocks: 0 };
        while let Some(id) = self.child(found.node, &blocks[found.blocks as usize..]) {
            let node = self.node(id);
            if !node.usable() {
                break;
            }
            let rest = &blocks[found.blocks as usize..];
            let length = node.blocks.len();
            let whole = rest.len() >= length && rest[..length] == node.blocks[..];
            let same = || node.blocks.iter().zip(rest).take_while(|(a, b)| a == b).count();
            let common = if whole { length } else { same() };
            if !whole {
                let upper = self.split(id, common);
                split(self, upper, id);
                return Match { node: upper, blocks: found.blocks + common as u32 };
            }
            found = Match { node: id, blocks: found.blocks + common as u32 };
        }
        found
    }

    /// The child of `parent` that starts with the first of `blocks`.
    fn child(&self, parent: NodeId, blocks: &[BlockHash]) -> Option<NodeId> {
        let first = blocks.first()?;
        if parent != NIL && self.node(parent).likely_child != NIL {
            let likely = self.node(parent).likely_child;
            let node = self.node(likely);
            if node.linked && node.parent == parent && node.blocks.first() == Some(first) {
                return Some(likely);
            }
        }
        let id = *self.by_first.get(first)?;
        (self.node(id).parent == parent).then_some(id)
    }

    /// Whether a linked node starts with this block.
    pub(crate) fn starts(&self, first: BlockHash) -> bool {
        self.by_first.contains_key(&first)
    }

    /// Cuts the first `at` blocks off into a new parent. Leases and pending ids are left to the caller's rule.
    fn split(&mut self, lower: NodeId, at: usize) -> NodeId {
        self.shape += 1;
        self.unlist(lower);
        let upper = self.detached(self.node(lower).parent);
        let node = &mut self.nodes[lower as usize];
        let mut blocks = self.spare_blocks.take(at);
        blocks.extend(node.blocks.drain(..at));
        let mut pages = [Vec::new(), Vec::new()];
        for (taken, pages) in pages.iter_mut().zip(&mut node.pages) {
            if !pages.is_empty() {
                *taken = self.spare_pages.take(at);
                taken.extend(pages.drain(..at));
            }
        }
        let residence = node.residence;
        let lengths = |pages: &[Vec<PageId>; 2]| [pages[0].len() as u32, pages[1].len() as u32];
        node.resident_pages = lengths(&node.pages);
        node.parent = upper;
        let first_below = node.blocks[0];
        let first_above = blocks[0];
        let top = self.node_mut(upper);
        top.blocks = blocks;
        top.resident_pages = lengths(&pages);
        top.pages = pages;
        top.residence = residence;
        top.linked = true;
        top.likely_child = lower;
        top.children = 1;
        top.child_in = [u32::from(residence[0] != Residence::Absent), u32::from(residence[1] != Residence::Absent)];
        self.by_first.insert(first_above, upper);
        self.by_first.insert(first_below, lower);
        self.refresh(upper);
        self.refresh(lower);
        upper
    }

    /// Makes a detached node matchable below `parent`. The caller has checked that the tree lacks its first block.
    pub(crate) fn link(&mut self, id: NodeId, parent: NodeId) {
        self.shape += 1;
        let node = self.node_mut(id);
        node.parent = parent;
        node.linked = true;
        let first = node.blocks[0];
        let present = [node.has(Tier::DEVICE), node.has(Tier::HOST)];
        self.by_first.insert(first, id);
        if parent != NIL {
            let above = self.node_mut(parent);
            above.likely_child = id;
            above.children += 1;
            for (count, present) in above.child_in.iter_mut().zip(present) {
                *count += u32::from(present);
            }
            self.refresh(parent);
        }
        self.refresh(id);
    }

    /// Takes a node out of the tree; its pages are the caller's business.
    pub(crate) fn unlink(&mut self, id: NodeId) {
        self.shape += 1;
        let node = self.node(id);
        debug_assert!(node.linked);
        let (first, parent) = (node.blocks[0], node.parent);
        let present = [node.has(Tier::DEVICE), node.has(Tier::HOST)];
        self.by_first.remove(&first);
        self.unlist(id);
        self.node_mut(id).linked = false;
        if parent != NIL {
            let above = self.node_mut(parent);
            above.children -= 1;
            for (count, present) in above.child_in.iter_mut().zip(present) {
                *count -= u32::from(present);
            }
            self.refresh(parent);
        }
    }

    /// Forgets a node without pages.
    pub(crate) fn forget(&mut self, id: NodeId) {
        let node = core::mem::take(self.node_mut(id));
        debug_assert!(!node.linked && node.pages.iter().all(Vec::is_empty));
        self.spare_blocks.keep(node.blocks);
        node.pages.into_iter().for_each(|pages| self.spare_pages.keep(pages));
        self.unused.push(id);
    }

    /// Sets where the node's pages are. Keeps the parent's count right.
    pub(crate) fn set_residence(&mut self, id: NodeId, tier: Tier, residence: Residence) {
        let t = tier.0 as usize;
        let node = self.node_mut(id);
        let (before, was) = (node.residence[t], (node.usable(), node.has(Tier::DEVICE)));
        node.residence[t] = residence;
        node.resident_pages[t] = node.pages[t].len() as u32;
        let (parent, linked) = (node.parent, node.linked);
        if linked && was != (node.usable(), node.has(Tier::DEVICE)) {
            self.shape += 1;
        }
        if linked && parent != NIL && (before == Residence::Absent) != (residence == Residence::Absent) {
            let above = self.node_mut(parent);
            if residence == Residence::Absent {
                above.child_in[t] -= 1;
            } else {
                above.child_in[t] += 1;
            }
            self.refresh(parent);
        }
        self.refresh(id);
    }

    /// The node and its ancestors.
    pub(crate) fn upwards(&self, id: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        core::iter::successors((id != NIL).then_some(id), |&at| {
            let parent = self.node(at).parent;
            (parent != NIL).then_some(parent)
        })
    }

    /// Takes a lease on the node and its ancestors.
    pub(crate) fn lease(&mut self, id: NodeId, lease: Lease) {
        let mut at = id;
        while at != NIL {
            let node = self.node_mut(at);
            node.leases[lease as usize] += 1;
            let parent = node.parent;
            if node.leases[lease as usize] == 1 {
                self.refresh_held(at, lease);
            }
            at = parent;
        }
    }

    /// Gives a lease back. Every node that this leaves without a reason to stay is reported to `loose`.
    pub(crate) fn unlease(&mut self, id: NodeId, lease: Lease, mut loose: impl FnMut(NodeId)) {
        let mut at = id;
        while at != NIL {
            let node = self.node_mut(at);
            node.leases[lease as usize] = node.leases[lease as usize].saturating_sub(1);
            let (parent, last) = (node.parent, node.leases[lease as usize] == 0);
            if last {
                if node.is_loose() {
                    loose(at);
                }
                self.refresh_held(at, lease);
            }
            at = parent;
        }
    }

    /// All live nodes, in no order that means anything.
    pub(crate) fn live(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.live).map(|(id, node)| (id as u32, node))
    }
}
