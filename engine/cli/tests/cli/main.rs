//! The command line as a user meets it: the binary, its arguments, its streams and its exit codes.

mod bad_input;
mod bad_traces;
mod bounded;
mod check;
mod checkpoints;
mod compare;
mod conform;
mod determinism;
mod docs;
mod failures;
mod gpu;
mod hits;
mod import;
mod json;
mod kvweft;
mod mutations;
mod other_commands;
mod repair;
mod run;
mod run_input;
mod simulate;
mod streams;
mod sweep;
mod traces;
