//! A foreign block manager in the world of kvweft: `cargo run --example block_manager`.
//!
//! `manager.rs` is the guest; it defines no property. Each of its defects is found by one of the world's.

mod manager;
mod world;

use kvweft_check::builder::Checker;
use manager::Defect;
use world::world;

fn main() {
    for defect in [Defect::None, Defect::FreeOnAbort, Defect::PublishAtEnqueue, Defect::NoLayerWait] {
        let checked = Checker::new(world(defect)).named(&format!("{defect:?}")).check();
        println!("== {defect:?}: {:?}\n{}", checked.verdict, checked.report());
    }
}
