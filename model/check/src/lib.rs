//! The explorer of kvweft: exhaustive search over any [`system::System`].
#[cfg(feature = "scenario-files")]
pub mod build;
pub mod explore;
pub mod graph;
pub mod lanes;
pub mod liveness;
pub mod record;
pub mod reduce;
#[cfg(feature = "scenario-files")]
pub mod scenario;
pub mod shrink;
pub mod system;
pub mod trace;
#[cfg(feature = "scenario-files")]
pub mod verdict;
pub mod world_system;
