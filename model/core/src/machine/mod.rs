//! The two declared state machines: a slot of a pool, and a request.
//!
//! Every change of a slot or a request goes through one of these tables, so that the tables are the protocol and a
//! change of protocol is a change of a table.

pub mod request;
pub mod slot;

use crate::rules::Rule;

/// What a table says about one (state, event) cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<S> {
    /// The machine moves.
    To(S),
    /// The event means nothing here any more; why.
    Stay(&'static str),
    /// The event must not take effect here; the rule that refuses it. With the rule dropped it takes effect.
    Refused(Rule),
    /// The event cannot come here; why. Seeing it is a defect of the manager.
    Never(&'static str),
}
