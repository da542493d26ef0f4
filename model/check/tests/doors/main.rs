//! The doors for managers that are not kvweft's own, and the checks of a plain test.

mod checker;
mod foreign;
mod regressions;
mod replayed;

#[path = "../../examples/block_manager/manager.rs"]
mod manager;
#[path = "../../examples/shared_pool/pool.rs"]
mod pool;
#[path = "../../examples/block_manager/world.rs"]
mod world;
