//! One file a command.

pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod conform;
pub(crate) mod exposure;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod meta;
pub(crate) mod redact;
pub(crate) mod render;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod selftest;
pub(crate) mod shrink;
pub(crate) mod simulate;
pub(crate) mod step;
