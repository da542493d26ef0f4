//! One file a command.

pub(crate) mod bench;
mod beside_torch;
pub(crate) mod check;
pub(crate) mod conform;
pub(crate) mod list;
pub(crate) mod meta;
pub(crate) mod render;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod shrink;
pub(crate) mod step;
