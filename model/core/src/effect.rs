//! Everything the manager asks for. Each effect carries its whole ordering contract.

use alloc::vec::Vec;

use crate::geometry::{Component, LayerSet, Layout};
use crate::ids::{BlockHash, BlockRef, EventSlot, Generation, Life, MetadataSlot, Part, PeerLife, RequestId, Room};
use crate::ids::{StepId, TransferId};
use crate::page_list::PageList;
use crate::rules::RuleSite;

/// One effect. A device that honours the contract in it needs to know nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Effect {
    /// Move pages between tiers.
    Copy(CopyOp),
    /// Write pages into the peer's memory.
    Send(SendOp),
    /// Launch a forward step.
    RunStep(RunStep),
    /// The request has ended for its client.
    Answer(Answer),
    /// Tell the peer.
    Message(Message),
    /// Ownership or visibility of pages has changed.
    Move(Move),
    /// The last thing a request waited for is there.
    Wake(Wake),
    /// Hand in everything that is already queued, then [`Input::Polled`](crate::Input::Polled).
    Poll(Timer),
    /// Start a timer.
    Arm(Timer),
    /// Stop a timer.
    Disarm(Timer),
    /// A decision that all ranks must take alike; there is one rank now.
    Collective(Collective),
}

/// A queue of the device whose operations run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Stream {
    /// The model's forward pass.
    Forward,
    /// Host to device.
    Load,
    /// Device to host.
    Store,
}

/// Something an operation must not overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FenceOn {
    /// The end of a forward step.
    Step(StepId),
    /// Every layer of a reload.
    Load(EventSlot, Generation),
}

/// An edge of the ordering contract, with the rule that it is owed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fence {
    /// What must have happened.
    pub on: FenceOn,
    /// Why.
    pub owed_to: RuleSite,
}

/// Bytes of one component that a copy moves: both ends, and what the copy takes them for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MovedPart {
    /// What is moved.
    pub component: Component,
    /// In which layers.
    pub layers: LayerSet,
    /// How the source pool lays it out.
    pub from: Layout,
    /// What the copy assumes.
    pub moved: Layout,
    /// How the destination pool lays it out.
    pub to: Layout,
}

/// A page to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pair {
    /// Read here.
    pub from: BlockRef,
    /// Write there.
    pub to: BlockRef,
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Direction {
    /// Host to device.
    Reload,
    /// Device to host.
    Offload,
}

/// The per-layer events that a reload records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// The rotating slot.
    pub slot: EventSlot,
    /// The generation that is recorded.
    pub generation: Generation,
}

/// A copy between tiers. Runs layer by layer on `stream`, behind all of `after`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CopyOp {
    /// Its name; one [`Input::Completed`](crate::Input::Completed) with part [`PartKind::Whole`](crate::PartKind) answers it.
    pub transfer: TransferId,
    /// Which way.
    pub direction: Direction,
    /// Where it runs.
    pub stream: Stream,
    /// What it must not overtake.
    pub after: Vec<Fence>,
    /// The pages.
    pub pairs: Vec<Pair>,
    /// The components and layers.
    pub parts: Vec<MovedPart>,
    /// The events it records after each layer (reloads).
    pub record: Option<Record>,
    /// The stream on which those events, and the completion, are recorded.
    pub record_on: Stream,
}

/// One-sided writes into the pages of the peer: one part of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SendOp {
    /// The transfer of the whole request.
    pub transfer: TransferId,
    /// The hand-over.
    pub room: Room,
    /// Which part of the transfer this is; it is reported by itself.
    pub part: Part,
    /// What it must not overtake.
    pub after: Vec<Fence>,
    /// Own pages and the peer's.
    pub pairs: Vec<Pair>,
    /// The components and layers; empty for metadata.
    pub parts: Vec<MovedPart>,
    /// The peer's metadata row, for the metadata part.
    pub metadata: Option<MetadataSlot>,
}

/// What kind of kernels an item of a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StepKind {
    /// Many new tokens: the ragged path.
    Prefill,
    /// One new token: the paged path.
    Decode,
}

/// The wait of a step's item on a reload, layer by layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerWait {
    /// The slot whose events are waited on.
    pub slot: EventSlot,
    /// The generation that must have been recorded; `None` takes whatever the slot shows.
    pub generation: Option<Generation>,
    /// Whether the index-K read waits, and the rule it owes that to.
    pub index: Option<RuleSite>,
    /// Whether the KV read waits, and the rule it owes that to.
    pub kv: Option<RuleSite>,
    /// Set where the reload belongs to another request.
    pub shared: bool,
}

/// One request's share of a forward step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StepItem {
    /// Whose.
    pub request: RequestId,
    /// In which life.
    pub life: Life,
    /// Which path.
    pub kind: StepKind,
    /// The request's pages in order of position, up to the end of what this step writes.
    pub pages: PageList,
    /// The first `read` pages are complete before the step and are read by it.
    pub read: u32,
    /// Pages `write_from..` receive new tokens.
    pub write_from: u32,
    /// Token positions that the step computes, from the first.
    pub first_token: u32,
    /// How many.
    pub tokens: u32,
    /// The reloads that must have landed first, layer by layer.
    pub waits: Vec<LayerWait>,
}

/// A forward step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RunStep {
    /// Its name.
    pub step: StepId,
    /// Whose tokens it computes.
    pub items: Vec<StepItem>,
}

/// How a request ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Ending {
    /// With its answer.
    Finished,
    /// The client went away.
    Aborted,
    /// A deadline passed.
    Timeout,
    /// The peer, the device or an operator ended it.
    Failed(Failure),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Failure {
    /// Prefill and decode lay out their pages differently.
    Layout,
    /// The peer could not complete it.
    Peer,
    /// A copy or send failed.
    Device,
    /// The engine was reset.
    Reset,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answer {
    /// Which request.
    pub request: RequestId,
    /// In which life.
    pub life: Life,
    /// How.
    pub ending: Ending,
}

/// What engines tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Message {
    /// The incarnation of the sender.
    pub life: PeerLife,
    /// The hand-over it is about.
    pub room: Room,
    /// The request it is about.
    pub request: RequestId,
    /// What.
    pub body: Body,
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Body {
    /// Decode to prefill: the pages are reserved. Sent again as a status query.
    Reserved {
        /// Where to write, in order of position.
        pages: Vec<BlockRef>,
        /// Where to write the metadata.
        metadata: MetadataSlot,
        /// How the decode side lays out each component, in the order of its geometry.
        layouts: Vec<(Component, Layout)>,
    },
    /// Decode to prefill: stop, and say when nothing more will be written.
    Abort,
    /// Prefill to decode: the terminal status.
    Status(Status),
    /// Prefill to decode: nothing will be written for this room any more.
    Drained,
}

/// The terminal status of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Status {
    /// KV and index keys have arrived.
    Success,
    /// They will not; nothing more will be written.
    Failed,
    /// The layouts differ; nothing was or will be written.
    Refused,
}

/// A change of ownership or visibility.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Move {
    /// What changes.
    pub what: MoveKind,
    /// For which pages.
    pub pages: Vec<BlockRef>,
    /// With [`MoveKind::Publish`]: what each page holds.
    pub blocks: Vec<BlockHash>,
}

/// What changes about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MoveKind {
    /// It left the free list and has a new owner and generation.
    Take,
    /// It can be matched by other requests from now on.
    Publish,
    /// It has no owner and waits for an operation to stop.
    Drain,
    /// It is back on the free list.
    Free,
}

/// The last thing that a request waited for is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Wake {
    /// Which request.
    pub request: RequestId,
    /// In which life.
    pub life: Life,
    /// The pages that have arrived, in order of position.
    pub pages: Vec<BlockRef>,
    /// The metadata row that is read now.
    pub metadata: Option<MetadataSlot>,
}

/// A timer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timer {
    /// Whose.
    pub request: RequestId,
    /// In which life.
    pub life: Life,
    /// What is waited for.
    pub wait: Wait,
}

/// What a timer bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Wait {
    /// The arrival of the cache from the prefill engine.
    Receive,
    /// The word that an aborted writer has stopped.
    Drain,
}

/// A decision of one rank that the others must take too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Collective {
    /// The step of the decision.
    pub step: StepId,
    /// A digest of what was decided.
    pub decision: u64,
}
