//! Support for the tests of kvweft that drive the manager with random inputs: a device that honours every contract in
//! any legal order, and a reference that knows what each page must hold.
#![forbid(unsafe_code)]

pub mod device;
pub mod drive;
mod honour;
pub mod known;
pub mod names;
pub mod operation;
pub mod rig;
pub mod runner;
pub mod shadow;
pub mod twins;
