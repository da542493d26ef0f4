//! A manager that many worlds share.
//!
//! Most steps of a world do not touch its managers, and those that do meet the same manager with the same input again and
//! again, once for each order of everything around it. So worlds share a manager until one of them hands it an input, and
//! a shared manager remembers its answers: what it became, what it asked for, and how it is encoded. A manager is a
//! function of its inputs, so nothing depends on whether an answer was remembered.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kvweft_core::{
    Accounts, BlockHash, CopyOp, Effect, Input, Message, Rejected, Renamer, RunStep, SendOp, Submit, Touched,
};

use crate::config::Machine;
use crate::ops::{Micro, copy_micros, record_micros, step_micros};
use crate::protocol::Protocol;

/// One manager, shared.
#[derive(Debug)]
pub(crate) struct Kept<P>(Arc<Node<P>>);

#[derive(Debug)]
struct Node<P> {
    manager: P,
    accounts: OnceLock<Option<Accounts>>,
    at_rest: OnceLock<bool>,
    encoded: OnceLock<Encoded>,
    answers: Mutex<Vec<(Asked, Answered<P>)>>,
}

/// An encoding of a manager on its own.
#[derive(Debug)]
struct Encoded {
    bytes: Vec<u8>,
    names: Arc<Renamer>,
}

/// What came of an input.
#[derive(Debug)]
pub(crate) struct Answered<P> {
    /// The manager after it.
    next: Result<Kept<P>, Rejected>,
    orders: Arc<[Order]>,
    touched: Touched,
}

/// An effect, ready to be queued: what does not depend on the world is worked out once.
#[derive(Debug)]
pub(crate) enum Order {
    /// A copy, its small operations, and those of its events where they are recorded on another stream.
    Copy(Arc<CopyOp>, Arc<[Micro]>, Option<Arc<[Micro]>>),
    Send(Arc<SendOp>),
    Step(Arc<RunStep>, Arc<[Micro]>),
    Message(Arc<Message>),
    Other(Effect),
}

impl Order {
    fn of(effect: Effect, machine: &Machine, engine: usize) -> Order {
        let config = &machine.engines[engine];
        match effect {
            Effect::Copy(op) => {
                let micros = copy_micros(&op, config.layers, machine.grain).into();
                let apart = (op.record_on != op.stream).then(|| record_micros(&op, config.layers).into());
                Order::Copy(Arc::new(op), micros, apart)
            }
            Effect::Send(op) => Order::Send(Arc::new(op)),
            Effect::RunStep(op) => {
                let micros = step_micros(&op, config, machine.grain).into();
                Order::Step(Arc::new(op), micros)
            }
            Effect::Message(message) => Order::Message(Arc::new(message)),
            other => Order::Other(other),
        }
    }

    /// As the manager asked for it.
    pub(crate) fn effect(&self) -> Effect {
        match self {
            Order::Copy(op, ..) => Effect::Copy((**op).clone()),
            Order::Send(op) => Effect::Send((**op).clone()),
            Order::Step(op, _) => Effect::RunStep((**op).clone()),
            Order::Message(message) => Effect::Message((**message).clone()),
            Order::Other(effect) => effect.clone(),
        }
    }
}

/// An input that is kept.
#[derive(Debug)]
enum Asked {
    Plain(Input<'static>),
    Submit(Submit<'static>, Vec<BlockHash>),
    Finish(kvweft_core::RequestId, Vec<BlockHash>),
    Peer(kvweft_core::PeerLife, Message),
}

impl Asked {
    fn of(input: Input<'_>) -> Asked {
        match input {
            Input::Submit(submit) => Asked::Submit(Submit { blocks: &[], ..submit }, submit.blocks.to_vec()),
            Input::Finish { request, output } => Asked::Finish(request, output.to_vec()),
            Input::Peer { life, message } => Asked::Peer(life, message.clone()),
            Input::Abort { request } => Asked::Plain(Input::Abort { request }),
            Input::Preempt { request } => Asked::Plain(Input::Preempt { request }),
            Input::Submitted { transfer } => Asked::Plain(Input::Submitted { transfer }),
            Input::SubmitFailed { transfer } => Asked::Plain(Input::SubmitFailed { transfer }),
            Input::LayerReady { transfer, layer } => Asked::Plain(Input::LayerReady { transfer, layer }),
            Input::Completed { transfer, part, outcome } => Asked::Plain(Input::Completed { transfer, part, outcome }),
            Input::StepDone { step } => Asked::Plain(Input::StepDone { step }),
            Input::Metadata { slot, room } => Asked::Plain(Input::Metadata { slot, room }),
            Input::Deadline { timer } => Asked::Plain(Input::Deadline { timer }),
            Input::Polled { timer } => Asked::Plain(Input::Polled { timer }),
            Input::Flush => Asked::Plain(Input::Flush),
        }
    }

    fn is(&self, input: Input<'_>) -> bool {
        let kept = match self {
            Asked::Plain(input) => *input,
            Asked::Submit(submit, blocks) => Input::Submit(Submit { blocks, ..*submit }),
            Asked::Finish(request, output) => Input::Finish { request: *request, output },
            Asked::Peer(life, message) => Input::Peer { life: *life, message },
        };
        kept == input
    }
}

impl<P> Clone for Kept<P> {
    fn clone(&self) -> Self {
        Kept(Arc::clone(&self.0))
    }

    fn clone_from(&mut self, source: &Self) {
        if !Arc::ptr_eq(&self.0, &source.0) {
            self.0 = Arc::clone(&source.0);
        }
    }
}

impl<P> Deref for Kept<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0.manager
    }
}

impl<P> Clone for Answered<P> {
    fn clone(&self) -> Self {
        Answered { next: self.next.clone(), orders: Arc::clone(&self.orders), touched: self.touched }
    }
}

impl<P: Protocol> Kept<P> {
    pub(crate) fn new(manager: P) -> Kept<P> {
        Kept(Arc::new(Node {
            manager,
            accounts: OnceLock::new(),
            at_rest: OnceLock::new(),
            encoded: OnceLock::new(),
            answers: Mutex::new(Vec::new()),
        }))
    }

    /// The manager takes an input: everything it asks for, or why it refused.
    pub(crate) fn handle(
        &mut self,
        machine: &Machine,
        engine: usize,
        input: Input<'_>,
        touched: &mut Touched,
    ) -> Result<Arc<[Order]>, Rejected> {
        // Nobody else has it: then there is nobody to remember for.
        if let Some(node) = Arc::get_mut(&mut self.0) {
            node.accounts = OnceLock::new();
            node.at_rest = OnceLock::new();
            node.encoded = OnceLock::new();
            node.answers = Mutex::new(Vec::new());
            let (result, orders) = take(&mut node.manager, machine, engine, input);
            touched.unite(&node.manager.take_touched());
            return result.map(|()| orders);
        }
        let known = {
            let answers = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.iter().find(|(asked, _)| asked.is(input)).map(|(_, answered)| answered.clone())
        };
        let answered = known.unwrap_or_else(|| {
            let mut manager = self.0.manager.clone();
            let (result, orders) = take(&mut manager, machine, engine, input);
            let touched = manager.take_touched();
            let next = result.map(|()| Kept::new(manager));
            let answered = Answered { next, orders, touched };
            // Somebody else may have been as fast; both answers are the same.
            let mut answers = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((Asked::of(input), answered.clone()));
            answered
        });
        touched.unite(&answered.touched);
        *self = answered.next?;
        Ok(answered.orders)
    }

    /// As [`Protocol::accounts`].
    pub(crate) fn accounts(&self) -> Option<Accounts> {
        *self.0.accounts.get_or_init(|| self.0.manager.accounts())
    }

    /// As [`Protocol::at_rest`].
    pub(crate) fn at_rest(&self) -> bool {
        *self.0.at_rest.get_or_init(|| self.0.manager.at_rest())
    }

    /// Appends the encoding, as the first of its engine; a manager is always that of the same engine.
    pub(crate) fn encode(&self, names: &mut Renamer, out: &mut Vec<u8>) {
        let encoded = self.0.encoded.get_or_init(|| {
            let (mut bytes, mut own) = (Vec::new(), Renamer::default());
            own.enter(names.place());
            self.0.manager.encode(&mut own, &mut bytes);
            Encoded { bytes, names: Arc::new(own) }
        });
        out.extend_from_slice(&encoded.bytes);
        names.adopt(&encoded.names, out);
    }
}

fn take<P: Protocol>(
    manager: &mut P,
    machine: &Machine,
    engine: usize,
    input: Input<'_>,
) -> (Result<(), Rejected>, Arc<[Order]>) {
    let result = manager.handle(input);
    let effects = std::iter::from_fn(|| manager.poll_effect());
    (result, effects.map(|effect| Order::of(effect, machine, engine)).collect())
}
