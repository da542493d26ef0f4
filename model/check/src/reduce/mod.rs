//! Searching less, with the same verdicts: `docs/reductions.md` says why, and what each part assumes.
//!
//! * *Persistent sets*: in a state, only the actions of some processes are taken, if nothing that the others may ever do
//!   interferes with them.
//! * *Eager actions*: an action that commutes with all that can come before it is taken at once, and the state before it
//!   is not kept.
//! * *Symmetry*: states are stored by [`System::canonical`]. Traces stay concrete.
//!
//! All three keep every maximal run up to the order of independent actions, in a system whose runs all end. Whether they
//! do is read off the reduced graph: it has a cycle if and only if the system has one. Then nothing is concluded from it,
//! and the whole system is searched.

mod footprint;
mod reduced;

use std::sync::PoisonError;

pub use footprint::{Footprint, Process};

use crate::explore::{Options, Outcome, Progress, explore_whole};
use crate::system::System;
use reduced::Reduced;

/// How the outcome of a reduced search came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The reduced graph has no cycle, and stands for the whole.
    Applied {
        /// Kinds of eager actions that had to be given up on the way, as the system numbers them.
        refuted: u128,
    },
    /// The reduced graph has a cycle: the outcome is that of the whole system.
    Cyclic,
}

/// The search of a part of `system`. Counts and marks are those of the part; traces are traces of the system.
pub(crate) fn explore<S: System>(system: &S, options: &Options, progress: &dyn Fn(&Progress)) -> Outcome<S::Action> {
    let whole = Options { reduce: false, liveness: true, ..options.clone() };
    let part = Options { all_steps: true, ..whole.clone() };
    let mut refuted = 0;
    loop {
        let reduced = Reduced::new(system, &part, refuted);
        let mut outcome = explore_whole(&reduced, &part, progress);
        let found = refuted | *reduced.refuting.lock().unwrap_or_else(PoisonError::into_inner);
        if found != refuted {
            refuted = found;
            continue;
        }
        if outcome.acyclic == Some(false) {
            let reduction = Some(Reduction::Cyclic);
            return Outcome { reduction, ..explore_whole(system, &whole, progress) };
        }
        outcome.traces.iter_mut().for_each(|trace| reduced.expand(trace));
        outcome.reduction = Some(Reduction::Applied { refuted });
        return outcome;
    }
}
