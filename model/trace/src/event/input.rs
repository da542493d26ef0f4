//! Inputs of a manager, owned, as a log holds them.

use kvweft_core::{
    BlockHash, Input, Message, MetadataSlot, Outcome, Part, PeerLife, RequestId, Room, StepId, Submit, Timer,
    TransferId,
};
use serde::{Deserialize, Serialize};

/// One input, with everything it needs. The variants are those of [`Input`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each variant and field is documented at `Input`")]
pub enum InputRecord {
    Submit {
        request: RequestId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        room: Option<Room>,
        blocks: Vec<BlockHash>,
        tail_tokens: u32,
        output_tokens: u32,
        priority: u8,
    },
    Abort {
        request: RequestId,
    },
    Finish {
        request: RequestId,
        output: Vec<BlockHash>,
    },
    Preempt {
        request: RequestId,
    },
    Submitted {
        transfer: TransferId,
    },
    SubmitFailed {
        transfer: TransferId,
    },
    LayerReady {
        transfer: TransferId,
        layer: u8,
    },
    Completed {
        transfer: TransferId,
        part: Part,
        outcome: Outcome,
    },
    StepDone {
        step: StepId,
    },
    Peer {
        life: PeerLife,
        message: Message,
    },
    Metadata {
        slot: MetadataSlot,
        room: Room,
    },
    Deadline {
        timer: Timer,
    },
    Polled {
        timer: Timer,
    },
    Flush,
}

impl From<&Input<'_>> for InputRecord {
    fn from(input: &Input<'_>) -> InputRecord {
        match *input {
            Input::Submit(Submit { request, room, blocks, tail_tokens, output_tokens, priority }) => {
                InputRecord::Submit { request, room, blocks: blocks.to_vec(), tail_tokens, output_tokens, priority }
            }
            Input::Abort { request } => InputRecord::Abort { request },
            Input::Finish { request, output } => InputRecord::Finish { request, output: output.to_vec() },
            Input::Preempt { request } => InputRecord::Preempt { request },
            Input::Submitted { transfer } => InputRecord::Submitted { transfer },
            Input::SubmitFailed { transfer } => InputRecord::SubmitFailed { transfer },
            Input::LayerReady { transfer, layer } => InputRecord::LayerReady { transfer, layer },
            Input::Completed { transfer, part, outcome } => InputRecord::Completed { transfer, part, outcome },
            Input::StepDone { step } => InputRecord::StepDone { step },
            Input::Peer { life, message } => InputRecord::Peer { life, message: message.clone() },
            Input::Metadata { slot, room } => InputRecord::Metadata { slot, room },
            Input::Deadline { timer } => InputRecord::Deadline { timer },
            Input::Polled { timer } => InputRecord::Polled { timer },
            Input::Flush => InputRecord::Flush,
        }
    }
}

impl InputRecord {
    /// The input as a manager takes it.
    pub fn as_input(&self) -> Input<'_> {
        match self {
            &InputRecord::Submit { request, room, ref blocks, tail_tokens, output_tokens, priority } => {
                Input::Submit(Submit { request, room, blocks, tail_tokens, output_tokens, priority })
            }
            &InputRecord::Abort { request } => Input::Abort { request },
            &InputRecord::Finish { request, ref output } => Input::Finish { request, output },
            &InputRecord::Preempt { request } => Input::Preempt { request },
            &InputRecord::Submitted { transfer } => Input::Submitted { transfer },
            &InputRecord::SubmitFailed { transfer } => Input::SubmitFailed { transfer },
            &InputRecord::LayerReady { transfer, layer } => Input::LayerReady { transfer, layer },
            &InputRecord::Completed { transfer, part, outcome } => Input::Completed { transfer, part, outcome },
            &InputRecord::StepDone { step } => Input::StepDone { step },
            &InputRecord::Peer { life, ref message } => Input::Peer { life, message },
            &InputRecord::Metadata { slot, room } => Input::Metadata { slot, room },
            &InputRecord::Deadline { timer } => Input::Deadline { timer },
            &InputRecord::Polled { timer } => Input::Polled { timer },
            InputRecord::Flush => Input::Flush,
        }
    }
}
