//! One file a command.

pub(crate) mod bench;
mod beside_torch;
pub(crate) mod bounded;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod conform;
pub(crate) mod exposure;
mod gpus;
pub(crate) mod grow;
pub(crate) mod hits;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod meta;
pub(crate) mod plan;
pub(crate) mod redact;
pub(crate) mod render;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod shrink;
pub(crate) mod simulate;
pub(crate) mod step;
pub(crate) mod sweep;
