//! What the machine needs of a cache manager.

use kvweft_core::machine::request::RequestState;
use kvweft_core::{
    Accounts, Effect, Input, Life, Manager, MetadataSlot, Part, Rejected, Renamer, RequestId, Touched, TransferId,
};

/// A cache manager: one input in, all effects out. [`Manager`] is the one in production.
pub trait Protocol: Clone + Send + Sync {
    /// Takes one input.
    ///
    /// # Errors
    /// A rejected input has changed nothing.
    fn handle(&mut self, input: Input<'_>) -> Result<(), Rejected>;
    /// The next effect of the last input.
    fn poll_effect(&mut self) -> Option<Effect>;
    /// Appends an encoding that is equal for equal states up to the names in `names`.
    fn encode(&self, names: &mut Renamer, out: &mut Vec<u8>);
    /// How pages and records add up, if the manager can tell.
    fn accounts(&self) -> Option<Accounts> {
        None
    }
    /// What the last inputs reached, for coverage.
    fn take_touched(&mut self) -> Touched {
        Touched::default()
    }
    /// Whether a preemption or the end of an answer would be taken now.
    fn accepts(&self, input: &Input<'_>) -> bool {
        let _ = input;
        true
    }
    /// Whether a layer event changes nothing but what the manager remembers of that layer, which decides nothing.
    fn only_notes_layers(&self) -> bool {
        false
    }
    /// Whether the report that a part of a transfer is done would only be remembered, now and behind any other inputs, until
    /// the index keys of the transfer are reported, if a wake does nothing.
    fn only_notes(&self, transfer: TransferId, part: Part) -> bool {
        let _ = (transfer, part);
        false
    }
    /// Whether the report that a metadata row was written would only be remembered, as long as no peer tells of success.
    fn only_notes_metadata(&self, slot: MetadataSlot) -> bool {
        let _ = slot;
        false
    }
    /// Whether a wake would do nothing now.
    fn at_rest(&self) -> bool {
        false
    }
    /// Whether results of this life of a request are still wanted.
    fn wants(&self, request: RequestId, life: Life) -> bool {
        let _ = (request, life);
        true
    }
}

impl Protocol for Manager {
    fn handle(&mut self, input: Input<'_>) -> Result<(), Rejected> {
        Manager::handle(self, input)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Manager::poll_effect(self)
    }

    fn encode(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        Manager::encode(self, names, out);
    }

    fn accounts(&self) -> Option<Accounts> {
        Some(Manager::accounts(self))
    }

    fn take_touched(&mut self) -> Touched {
        Manager::take_touched(self)
    }

    fn accepts(&self, input: &Input<'_>) -> bool {
        match input {
            Input::Preempt { request } => {
                matches!(self.state_of(*request), Some(RequestState::Ready | RequestState::Running))
            }
            Input::Submit(submit) => matches!(self.state_of(submit.request), None | Some(RequestState::Ended)),
            Input::Finish { request, .. } => self.state_of(*request) == Some(RequestState::Idle),
            _ => true,
        }
    }

    fn only_notes_layers(&self) -> bool {
        true
    }

    fn only_notes(&self, transfer: TransferId, part: Part) -> bool {
        Manager::index_decides(self, transfer, part)
    }

    fn only_notes_metadata(&self, slot: MetadataSlot) -> bool {
        !Manager::awaits_metadata(self, slot)
    }

    fn at_rest(&self) -> bool {
        Manager::at_rest(self)
    }

    fn wants(&self, request: RequestId, life: Life) -> bool {
        self.live_life(request) == Some(life)
    }
}
