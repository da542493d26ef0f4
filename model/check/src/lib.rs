//! The explorer of kvweft: exhaustive search over any [`system::System`].
#[cfg(feature = "scenario-files")]
pub mod build;
pub mod explore;
pub mod liveness;
#[cfg(feature = "scenario-files")]
pub mod scenario;
pub mod shrink;
pub mod system;
pub mod trace;
pub mod world_system;
