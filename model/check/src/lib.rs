//! The explorer of kvweft: exhaustive search over any state machine.
//!
//! There are three doors for code that is not kvweft's own. A cache manager that speaks
//! [`Protocol`](kvweft_world::Protocol) is put into [`world_system::WorldSystem`] and gets streams, torn copies, shadow
//! memory and properties for nothing. Any other state machine is a [`system::System`]. One that cannot be cloned or hashed
//! goes through [`replayed::Replayed`]. [`builder::Checker`] asks the questions, in a plain `#[test]`.
#[cfg(feature = "scenario-files")]
pub mod bounded;
#[cfg(feature = "scenario-files")]
pub mod build;
pub mod builder;
pub mod deviations;
pub mod explore;
#[cfg(feature = "scenario-files")]
pub mod extent;
pub mod graph;
#[cfg(feature = "scenario-files")]
pub mod grow;
pub mod lanes;
pub mod liveness;
mod numbers;
pub mod plan;
pub mod record;
pub mod reduce;
mod regressions;
#[cfg(feature = "scenario-files")]
pub mod repair;
pub mod replayed;
#[cfg(feature = "scenario-files")]
pub mod scenario;
pub mod shrink;
#[cfg(feature = "scenario-files")]
pub mod sweep;
pub mod system;
pub mod trace;
#[cfg(feature = "scenario-files")]
pub mod verdict;
pub mod walk;
pub mod words;
pub mod world_system;
