//! Gates: what may hold a thread before its next named step.

use kvweft_core::RuleSite;
use kvweft_world::Operation;

/// What keeps an operation back although its turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The rule that the fence or wait is owed to.
    pub owed_to: RuleSite,
}

/// Decides whose turn it is. Asked while the lock of an engine is held, and again whenever the engine is poked.
pub trait Gate: Send + Sync {
    /// Whether everything may run as it comes.
    fn open(&self) -> bool;
    /// Whether this operation may happen now.
    fn allows(&self, operation: &Operation) -> bool;
    /// The operation has happened, with everything that follows from it at once.
    fn done(&self, operation: &Operation);
    /// The operation may happen, and a fence keeps it back.
    fn held(&self, operation: &Operation, held: Held);
}

/// A gate that holds nothing.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Gate for Open {
    fn open(&self) -> bool {
        true
    }

    fn allows(&self, _: &Operation) -> bool {
        true
    }

    fn done(&self, _: &Operation) {}

    fn held(&self, _: &Operation, _: Held) {}
}
