//! Everything that can happen to the manager.

use crate::effect::{Message, Timer};
use crate::ids::{BlockHash, PeerLife, RequestId, Room, StepId, TransferId};
use crate::ids::{MetadataSlot, Part};

/// One input. Slices are borrowed: handling an input allocates nothing in steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A client or router hands over a request.
    Submit(Submit<'a>),
    /// The client has gone away.
    Abort {
        /// Which request.
        request: RequestId,
    },
    /// The engine has sampled the end of the answer.
    Finish {
        /// Which request.
        request: RequestId,
        /// Hashes of the full blocks that the answer completed, in order; they become matchable.
        output: &'a [BlockHash],
    },
    /// A policy outside takes the pages of a running request away; it goes back to the head of the queue.
    Preempt {
        /// Which request.
        request: RequestId,
    },
    /// The device accepted a copy or send.
    Submitted {
        /// Which one.
        transfer: TransferId,
    },
    /// The device refused a copy, or a send as a whole: no part of it has begun, and parts posted later do not run either.
    SubmitFailed {
        /// Which one.
        transfer: TransferId,
    },
    /// A layer of a reload has landed.
    LayerReady {
        /// The reload.
        transfer: TransferId,
        /// The layer.
        layer: u8,
    },
    /// A part of a copy or send has stopped touching memory. A reload that failed is reported before the end of any step
    /// that waited for it.
    Completed {
        /// Which one.
        transfer: TransferId,
        /// Which part.
        part: Part,
        /// How it ended.
        outcome: Outcome,
    },
    /// A forward step has ended and its results are known.
    StepDone {
        /// Which one.
        step: StepId,
    },
    /// A message from the peer engine.
    Peer {
        /// The incarnation that sent it.
        life: PeerLife,
        /// What it says.
        message: &'a Message,
    },
    /// A metadata row was written by the peer.
    Metadata {
        /// The row.
        slot: MetadataSlot,
        /// The room that the row names.
        room: Room,
    },
    /// A timer that was armed has run out.
    Deadline {
        /// Which one.
        timer: Timer,
    },
    /// The answer to [`Effect::Poll`](crate::Effect::Poll): everything that was queued before it has been handed in.
    Polled {
        /// The timer that asked.
        timer: Timer,
    },
    /// An operator resets the engine.
    Flush,
}

/// A request as it is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submit<'a> {
    /// The client's name for it.
    pub request: RequestId,
    /// The hand-over between prefill and decode; `None` where one engine does both.
    pub room: Option<Room>,
    /// Hashes of the full blocks of the prompt, in order.
    pub blocks: &'a [BlockHash],
    /// Prompt tokens behind the last block, `0..=page_tokens`: a whole page where its tokens must be computed, cached or not.
    pub tail_tokens: u32,
    /// At most so many tokens will be generated.
    pub output_tokens: u32,
    /// Requests of a higher priority are considered first.
    pub priority: u8,
}

/// How a copy, a send or a part of one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Outcome {
    /// All bytes are where they belong.
    Done,
    /// It stopped; what was written is unknown.
    Failed,
}
