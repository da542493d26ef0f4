//! The cache manager of kvweft: one pure state machine that allocates, offloads, reloads, transfers and releases the
//! pages of a paged KV cache and its index keys.
//!
//! One [`Input`] goes in through [`Manager::handle`], then every [`Effect`] is drained with [`Manager::poll_effect`]
//! before the next input. The explorer, loom, shuttle, host threads and the GPU all drive this one type.
//!
//! No IO, clock, thread or randomness; nothing depends on the value of an id or on hash order.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod effect;
mod encode;
mod geometry;
mod ids;
mod input;
pub mod machine;
mod manager;
mod map;
mod page_list;
mod pool;
mod rules;
#[cfg(feature = "serde")]
mod serial;
mod shelf;
mod tree;

pub use effect::*;
pub use encode::Renamer;
pub use geometry::*;
pub use ids::*;
pub use input::*;
pub use manager::{Accounts, Config, Manager, Rejected, Role, Touched, WritePolicy};
pub use page_list::PageList;
pub use pool::AllocationOrder;
pub use rules::*;
