//! The concurrent engine around one cache manager.
//!
//! An [`Engine`] is a manager under a lock, the queues of a device, and the threads that work on them. It is generic over
//! the [`Platform`] (locks, threads, page memory) and the [`Model`] (what is computed from the pages), so that real
//! threads, and model checkers of threads, run the same code.
//!
//! Locks are taken in this order: prefill engine, decode engine, link, log, marks.
#![forbid(unsafe_code)]

pub mod ask;
mod asked;
pub mod conform;
mod engine;
mod events;
pub mod faults;
pub mod gate;
mod link;
pub mod lockstep;
pub mod log;
pub mod model;
pub mod platform;
pub mod pool;
pub mod recall;
pub mod run;
mod shell;
mod std_platform;

pub use engine::{Counts, Ended, Engine, Forced, Parts, Submission, Threads};
pub use link::Link;
pub use model::Model;
pub use platform::Platform;
pub use shell::{Setting, Shell, Stop};
pub use std_platform::{Std, Words};
