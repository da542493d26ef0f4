//! A pool full of locks and guards, checked without changing it: `cargo run --example shared_pool`.

mod pool;

use kvweft_check::builder::Checker;
use kvweft_check::replayed::Replayed;
use kvweft_check::system::Found;
use pool::{Action, Pool};

fn main() {
    for copies_hold in [true, false] {
        let replayed = Replayed {
            fresh: || Pool::new(1, copies_hold),
            enabled: Pool::enabled,
            step: |pool: &mut Pool, action: &Action, _: &mut Found| pool.step(action),
            fingerprint: Pool::view,
        };
        let checked = Checker::new(replayed)
            .always("copies-write-leased-blocks", |state| !state.view().copies_collide())
            .sometimes("both-ended", |state| state.view().ended == [true; 2])
            .leads_to("blocks-come-back", |state| state.view().free.is_empty(), |state| !state.view().free.is_empty())
            .check();
        println!("== a copy holds its lease: {copies_hold}: {:?}\n{}", checked.verdict, checked.report());
    }
    let pool = Pool::new(1, true);
    let shared = Replayed {
        fresh: || pool.shallow_clone(),
        enabled: Pool::enabled,
        step: |pool: &mut Pool, action: &Action, _: &mut Found| pool.step(action),
        fingerprint: Pool::view,
    };
    println!("== clones that share their lock\n{}", shared.verify().expect_err("they share their free list"));
}
