//! The explorer of kvweft: exhaustive search over any [`system::System`].
pub mod system;
