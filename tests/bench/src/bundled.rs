//! Two-phase commit as stateright brings it.
#![allow(dead_code, reason = "the example has a command line of its own")]

include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// Searches it breadth first on one thread: the number of states.
pub(crate) fn search(managers: u32) -> u64 {
    let model = TwoPhaseSys { rms: 0..managers as usize };
    model.checker().threads(1).spawn_bfs().join().unique_state_count() as u64
}
