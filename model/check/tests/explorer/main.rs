//! The explorer on small systems whose every state, trace and verdict is known.

mod checkpoints;
mod counts;
mod fairness;
mod graph;
mod liveness;
mod random_graphs;
mod safety;
mod shrinking;
mod threads;
mod two_phase_commit;
mod walks;
mod words;
