//! What the manager remembers of requests, transfers, steps and slots.

use alloc::vec::Vec;

use crate::effect::CopyOp;
use crate::geometry::{Component, Layout};
use crate::ids::{BlockHash, BlockRef, EventSlot, Generation, Life, MetadataSlot, Part, PartKind, RequestId, Room};
use crate::ids::{StepId, TransferId};
use crate::input::Submit;
use crate::machine::request::RequestState;
use crate::page_list::PageList;
use crate::rules::Site;
use crate::tree::{NIL, NodeId};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) life: Life,
    pub(crate) state: RequestState,
    pub(crate) room: Option<Room>,
    pub(crate) answered: bool,
    pub(crate) priority: u8,
    /// Hashes of the full blocks of the prompt.
    pub(crate) blocks: Vec<BlockHash>,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) pages_needed: u32,
    /// What the tree had for it when it was last looked up, and the shape of the tree then.
    pub(crate) found: Option<(u64, Found)>,
    /// The deepest shared node it holds.
    pub(crate) shared: NodeId,
    /// Its new prompt pages; linked once they are computed.
    pub(crate) own: NodeId,
    /// The pages of the prompt's tail and of the answer.
    pub(crate) out: NodeId,
    /// Its pages in order of position.
    pub(crate) pages: PageList,
    /// Tokens whose cache entries are there.
    pub(crate) computed: u32,
    /// Tokens whose cache entries are there when the step in flight ends.
    pub(crate) launched: u32,
    /// Reloads it must wait for: transfer and whether another request asked for it.
    pub(crate) loads: Vec<(TransferId, bool)>,
    /// A reload that will be submitted only behind the step that waits for it.
    pub(crate) late_load: Option<CopyOp>,
    /// Pages that it gave back when it ended.
    pub(crate) released: Vec<BlockRef>,
    // Split roles.
    pub(crate) peer_pages: Vec<BlockRef>,
    pub(crate) peer_layouts: Vec<(Component, Layout)>,
    pub(crate) metadata: Option<MetadataSlot>,
    pub(crate) send: Option<TransferId>,
    pub(crate) arrived: bool,
    pub(crate) status_sent: bool,
    pub(crate) queries: u32,
    pub(crate) settling: Settling,
}

/// What a request would take from the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The deepest node that it shares.
    pub(crate) node: NodeId,
    /// Blocks on the path down to it.
    pub(crate) blocks: u32,
    /// The last of them that need a reload.
    pub(crate) to_load: u32,
}

/// What has to be said once everything of a stopped request has settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settling {
    /// The peer asked to stop and waits for the word that nothing more comes.
    pub(crate) owes_drained: bool,
    /// The peer waits for a terminal status, and why it failed.
    pub(crate) owes_failed: Option<Site>,
    /// The step in flight still writes pages that the peer may be told to fill next.
    pub(crate) step_in_flight: bool,
    /// The pages have been given back already (a rule is dropped).
    pub(crate) released: bool,
}

impl Request {
    pub(crate) fn new(id: RequestId) -> Request {
        Request {
            id,
            life: Life(0),
            state: RequestState::Ended,
            room: None,
            answered: false,
            priority: 0,
            blocks: Vec::new(),
            prompt_tokens: 0,
            output_tokens: 0,
            pages_needed: 0,
            found: None,
            shared: NIL,
            own: NIL,
            out: NIL,
            pages: PageList::default(),
            computed: 0,
            launched: 0,
            loads: Vec::new(),
            late_load: None,
            released: Vec::new(),
            peer_pages: Vec::new(),
            peer_layouts: Vec::new(),
            metadata: None,
            send: None,
            arrived: false,
            status_sent: false,
            queries: 0,
            settling: Settling::default(),
        }
    }

    /// Starts the next life.
    pub(crate) fn begin(&mut self, submit: &Submit<'_>, prompt_tokens: u32, output_tokens: u32, pages_needed: u32) {
        self.life = Life(self.life.0 + 1);
        self.room = submit.room;
        self.answered = false;
        self.priority = submit.priority;
        self.blocks.clear();
        self.blocks.extend_from_slice(submit.blocks);
        self.prompt_tokens = prompt_tokens;
        self.output_tokens = output_tokens;
        self.pages_needed = pages_needed;
        self.peer_pages.clear();
        self.peer_layouts.clear();
        self.released.clear();
        self.restart();
    }

    /// Forgets everything that an admission gave.
    pub(crate) fn restart(&mut self) {
        self.found = None;
        self.shared = NIL;
        self.own = NIL;
        self.out = NIL;
        self.pages = PageList::default();
        self.computed = 0;
        self.launched = 0;
        self.loads.clear();
        self.late_load = None;
        self.metadata = None;
        self.send = None;
        self.arrived = false;
        self.status_sent = false;
        self.queries = 0;
        self.settling = Settling::default();
    }

    pub(crate) fn tokens(&self) -> u32 {
        self.prompt_tokens + self.output_tokens
    }
}

/// What a transfer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferKind {
    /// Host to device, with the events it records.
    Load(EventSlot, Generation),
    /// Device to host; `true` where the device pages are given up once it is done.
    Store(bool),
    /// To the peer.
    Send,
}

/// A copy or send under way.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) id: TransferId,
    pub(crate) live: bool,
    pub(crate) kind: TransferKind,
    /// The nodes it moves. Extended where a node is split.
    pub(crate) nodes: Vec<NodeId>,
    /// Requests that have asked to wait for it (reloads), as indices. They may have stopped waiting since.
    pub(crate) waiters: Vec<u32>,
    /// The node on which its lease was taken.
    pub(crate) anchor: NodeId,
    /// Whether the nodes are still leased for it.
    pub(crate) leased: bool,
    /// Layers that have landed (reloads).
    pub(crate) layers_ready: u64,
    /// Parts that were posted, have settled, have settled well: one bit a part.
    pub(crate) posted: u128,
    pub(crate) settled: u128,
    pub(crate) arrived: u128,
    /// Reports so far, where reports are counted and not told apart (a rule is dropped).
    pub(crate) reports: u32,
}

/// KV parts that one transfer has at most: a bit each, beside those of metadata and index keys.
pub(crate) const KV_PARTS_MAX: u32 = 124;

/// The bit of a part in a transfer's sets.
pub(crate) fn part_bit(part: Part) -> u128 {
    match part.kind {
        PartKind::Whole => 1,
        PartKind::Metadata => 2,
        PartKind::IndexK => 4,
        PartKind::Kv => 8 << part.handle.min(KV_PARTS_MAX),
    }
}

/// Every transfer under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    transfers: Vec<Transfer>,
    unused: Vec<u32>,
    next_serial: u32,
}

impl Ledger {
    pub(crate) fn open(&mut self, request: RequestId, life: Life, kind: TransferKind) -> TransferId {
        let serial = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
        let reused = self.unused.pop();
        let index = reused.unwrap_or(self.transfers.len() as u32);
        let id = TransferId { serial, index, request, life };
        let fresh = Transfer {
            id,
            live: true,
            kind,
            nodes: Vec::new(),
            waiters: Vec::new(),
            anchor: NIL,
            leased: false,
            layers_ready: 0,
            posted: 0,
            settled: 0,
            arrived: 0,
            reports: 0,
        };
        if reused.is_some() {
            // Its lists went back when it completed.
            self.transfers[index as usize] = fresh;
        } else {
            self.transfers.push(fresh);
        }
        id
    }

    /// The record, if the transfer is still under way.
    pub(crate) fn get(&self, id: TransferId) -> Option<&Transfer> {
        self.transfers.get(id.index as usize).filter(|transfer| transfer.live && transfer.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.transfers.get_mut(id.index as usize).filter(|transfer| transfer.live && transfer.id == id)
    }

    /// The record that a node points to.
    pub(crate) fn at(&self, index: u32) -> Option<&Transfer> {
        self.transfers.get(index as usize).filter(|transfer| transfer.live)
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Transfer> {
        self.transfers.get_mut(index as usize).filter(|transfer| transfer.live)
    }

    /// The number of records, live or not.
    pub(crate) fn records(&self) -> u32 {
        self.transfers.len() as u32
    }

    pub(crate) fn close(&mut self, id: TransferId) {
        if let Some(transfer) = self.get_mut(id) {
            transfer.live = false;
            self.unused.push(id.index);
        }
    }

    /// Forgets every transfer (a rule is dropped).
    pub(crate) fn forget_all(&mut self) {
        for transfer in &mut self.transfers {
            if core::mem::replace(&mut transfer.live, false) {
                self.unused.push(transfer.id.index);
            }
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transfer> {
        self.transfers.iter().filter(|transfer| transfer.live)
    }
}

/// A rotating slot of layer events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRecord {
    /// The transfer record that uses it.
    pub(crate) busy: u32,
    pub(crate) generation: Generation,
}

impl Default for EventRecord {
    fn default() -> EventRecord {
        EventRecord { busy: NIL, generation: Generation(0) }
    }
}

/// A row of the metadata buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetadataRow {
    /// The request that owns it.
    pub(crate) owner: u32,
    /// The room that was last seen in it. Not cleared when the row changes hands.
    pub(crate) seen: Option<Room>,
}

impl Default for MetadataRow {
    fn default() -> MetadataRow {
        MetadataRow { owner: NIL, seen: None }
    }
}

/// A step in flight.
#[derive(Clone, Debug)]
pub(crate) struct Launched {
    pub(crate) step: StepId,
    pub(crate) items: Vec<(u32, Life)>,
}
