//! The explorer of kvweft: exhaustive search over any [`system::System`].
pub mod explore;
pub mod liveness;
#[cfg(feature = "scenario-files")]
pub mod scenario;
pub mod shrink;
pub mod system;
pub mod trace;
