//! Small worlds by lot, attacked from two sides: their verdicts in reduced searches, and what eager steps claim of single
//! states. `KVWEFT_RANDOM_WORLDS` asks for more of them.

mod commuting;
mod verdicts;
mod worlds;
