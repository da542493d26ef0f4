//! Support for the tests of kvweft that drive the manager with random inputs: a device that honours every contract in
//! any legal order, and a reference that knows what each page must hold. And for those that run the concurrent shell under
//! model checkers of threads.
#![deny(unsafe_code)]

pub mod device;
pub mod drive;
mod honour;
pub mod known;
pub mod names;
pub mod operation;
pub mod rig;
pub mod runner;
pub mod shadow;
pub mod threads;
pub mod twins;
