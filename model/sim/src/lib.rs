//! Virtual time around the cache manager: the same manager that the explorer checks, driven by a workload under a cost
//! model, with the content of every page known. What goes wrong is seen in what is read, not assumed.
//!
//! ```text
//! log or agents ──> Workload ─┐
//!                             ├─> simulate ──> Report
//! Profile, rules ─> Settings ─┘
//! ```
//!
//! Time is in integer nanoseconds, and chance follows from a seed: one seed gives one run, byte for byte.
#![forbid(unsafe_code)]

mod clients;
mod engine;
pub mod hits;
mod memory;
mod moves;
mod network;
mod profile;
mod prompts;
mod random;
mod reads;
pub mod report;
mod restart;
mod settings;
mod simulation;
mod steps;
mod sums;
pub mod timeline;
pub mod workload;

pub use profile::{Profile, Quantity};
pub use report::Report;
pub use restart::{Before, simulate_after};
pub use settings::{Arrival, Faults, Settings, SettingsError};
pub use simulation::{simulate, simulate_with_timeline};
pub use timeline::Timeline;
pub use workload::Workload;
