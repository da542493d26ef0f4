//! A symbolic machine around a cache manager.
//!
//! Everything a manager asks for runs here one small operation at a time: streams with fences and events as on CUDA,
//! copies that can be caught half way, one-sided writes, a network, timers and faults. Every cell of memory knows whose
//! bytes it holds, so that a violation is a read of the wrong content.
//!
//! Any manager that speaks [`Protocol`] gets all of this, and the properties, for nothing.
#![forbid(unsafe_code)]

mod actions;
mod config;
mod describe;
mod driven;
mod eager;
mod effects;
mod encode;
mod engine;
mod kept;
mod memory;
mod nic;
mod observe;
mod operation;
mod ops;
pub mod properties;
mod protocol;
mod put_off;
mod reuse;
mod stream;
mod world;

pub use actions::{Action, Class};
pub use config::{Budget, EngineConfig, Grain, Machine, Script, SubjectFault};
pub use describe::{Blocked, Described};
pub use driven::{Driven, NotAllowed};
pub use observe::CellView;
pub use operation::Operation;
pub use properties::{PROPERTIES, PropertyInfo, Violation};
pub use protocol::Protocol;
pub use world::{Found, LogEntry, World};
