//! The life of a request in one engine.

use super::Next;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum RequestState {
    /// Prefill engine: the decode engine has not named its pages yet.
    Bootstrapping,
    /// Holds nothing and waits for pages.
    Queued,
    /// Decode engine: pages are reserved, the cache has not arrived.
    Waiting,
    /// Holds all it needs and waits for the forward stream.
    Ready,
    /// A step of it is in flight.
    Running,
    /// Every token it may generate is there; the engine has not ended it yet.
    Idle,
    /// Prefill engine: computed, parts of the transfer are outstanding.
    Sending,
    /// Ended for its client; operations may still touch its pages.
    Draining,
    /// Holds nothing and asks for nothing.
    #[default]
    Ended,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RequestEvent {
    /// Submitted to an engine that computes its prompt on its own, or receives it.
    Submit,
    /// Submitted to a prefill engine.
    SubmitForPeer,
    /// The decode engine named its pages.
    PeerReserved,
    /// All pages are there and the prompt is computed here.
    Admit,
    /// All pages are there and the peer will fill them.
    AdmitForPeer,
    /// A step with its tokens is launched.
    Launch,
    /// A step ended and more tokens follow.
    StepMore,
    /// A step ended and no token follows.
    StepLast,
    /// A step ended, the prompt is computed, and its transfer goes on.
    StepSent,
    /// The cache has arrived from the peer.
    Arrive,
    /// A policy took its pages; it starts again.
    Preempt,
    /// It ends for its client while operations are outstanding.
    Stop,
    /// It ends with nothing outstanding.
    End,
}

impl RequestState {
    /// Every state, in order.
    pub const ALL: [RequestState; 9] = [
        RequestState::Bootstrapping,
        RequestState::Queued,
        RequestState::Waiting,
        RequestState::Ready,
        RequestState::Running,
        RequestState::Idle,
        RequestState::Sending,
        RequestState::Draining,
        RequestState::Ended,
    ];
}

impl RequestEvent {
    /// Every event, in order.
    pub const ALL: [RequestEvent; 13] = [
        RequestEvent::Submit,
        RequestEvent::SubmitForPeer,
        RequestEvent::PeerReserved,
        RequestEvent::Admit,
        RequestEvent::AdmitForPeer,
        RequestEvent::Launch,
        RequestEvent::StepMore,
        RequestEvent::StepLast,
        RequestEvent::StepSent,
        RequestEvent::Arrive,
        RequestEvent::Preempt,
        RequestEvent::Stop,
        RequestEvent::End,
    ];

    /// The state that the event leads to wherever it takes effect.
    pub const fn target(self) -> RequestState {
        use RequestEvent as E;
        use RequestState as S;
        match self {
            E::Submit | E::PeerReserved | E::Preempt => S::Queued,
            E::SubmitForPeer => S::Bootstrapping,
            E::Admit | E::Arrive | E::StepMore => S::Ready,
            E::AdmitForPeer => S::Waiting,
            E::Launch => S::Running,
            E::StepLast => S::Idle,
            E::StepSent => S::Sending,
            E::Stop => S::Draining,
            E::End => S::Ended,
        }
    }
}

/// The table.
pub const fn next(state: RequestState, event: RequestEvent) -> Next<RequestState> {
    use RequestEvent as E;
    use RequestState as S;
    const TWICE: &str = "a live request id is not submitted again: the submission is rejected";
    const STALE: &str = "the step belongs to a life that is over";
    const UNASKED: &str = "only the state before it asks for this";
    match (state, event) {
        (S::Ended, E::Submit | E::SubmitForPeer) => Next::To(event.target()),
        (_, E::Submit | E::SubmitForPeer) => Next::Never(TWICE),
        (S::Bootstrapping, E::PeerReserved) => Next::To(S::Queued),
        (S::Ended, E::PeerReserved) => {
            Next::Never("a room that has ended is answered from the list of concluded rooms")
        }
        (S::Waiting | S::Idle, E::PeerReserved) => Next::Never("states of the other role"),
        (_, E::PeerReserved) => Next::Stay("the peer asks again for the status"),
        (S::Queued, E::Admit | E::AdmitForPeer) => Next::To(event.target()),
        (_, E::Admit | E::AdmitForPeer) => Next::Never(UNASKED),
        (S::Ready, E::Launch) => Next::To(S::Running),
        (_, E::Launch) => Next::Never(UNASKED),
        (S::Running, E::StepMore | E::StepLast | E::StepSent) => Next::To(event.target()),
        (S::Draining | S::Ended | S::Queued | S::Ready, E::StepMore) => Next::Stay(STALE),
        (S::Bootstrapping | S::Waiting | S::Idle | S::Sending, E::StepMore) => {
            Next::Never("a stale step of these is known by its life before the table is asked")
        }
        (_, E::StepLast | E::StepSent) => Next::Never(UNASKED),
        (S::Waiting, E::Arrive) => Next::To(S::Ready),
        (S::Draining, E::Arrive) => Next::Stay("it ended for its client before its cache arrived"),
        (_, E::Arrive) => Next::Never(UNASKED),
        (S::Ready | S::Running, E::Preempt) => Next::To(S::Queued),
        (_, E::Preempt) => Next::Never("the preemption is rejected: there is nothing to take, or the peer needs it"),
        (S::Idle, E::Stop) => Next::Never("no step of it is in flight and its cache has arrived"),
        (S::Bootstrapping, E::Stop) => Next::Never("nothing can be outstanding before its pages are named"),
        (S::Draining | S::Ended, E::Stop) => Next::Never("it has ended for its client"),
        (_, E::Stop) => Next::To(S::Draining),
        (S::Ended, E::End) => Next::Stay("it has ended"),
        (_, E::End) => Next::To(S::Ended),
    }
}
