//! Random walks of the worlds, taken by real threads on real memory at the same time.

use kvweft_check::build::{build_with, with_names};
use kvweft_check::scenario::{self, Scenario};
use kvweft_core::{AllocationOrder, RuleSet};
use kvweft_shell::lockstep::Lockstep;

/// Walks in all, over all scenarios.
const WALKS: usize = 10_000;
const STEPS_MAX: usize = 400;

fn scenarios() -> Vec<Scenario> {
    with_names(scenario::load_embedded).expect("the built-in scenarios are good")
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }
}

#[test]
fn threads_make_the_same_effects_and_the_same_bytes_as_the_world_on_ten_thousand_walks() {
    let scenarios = scenarios();
    let mut taken = 0;
    let mut unserved = Vec::new();
    for (at, scenario) in scenarios.iter().enumerate() {
        let system = build_with(scenario, RuleSet::EMPTY, Some(scenario::Grain::Default), AllocationOrder::Ascending);
        let walks = WALKS / scenarios.len() + usize::from(at < WALKS % scenarios.len());
        for walk in 0..walks {
            let mut random = Random((at * WALKS + walk) as u64);
            let mut lockstep: Lockstep<'_> = match Lockstep::new(&system.machine, system.managers.clone()) {
                Ok(lockstep) => lockstep,
                Err(why) => {
                    unserved.push(format!("{}: {why}", scenario.name));
                    break;
                }
            };
            let mut actions = Vec::new();
            for step in 0..STEPS_MAX {
                actions.clear();
                lockstep.world.enabled(&system.machine, &mut actions);
                if actions.is_empty() {
                    break;
                }
                let action = actions[random.below(actions.len())];
                if let Err(mismatch) = lockstep.take(action) {
                    panic!("{}, walk {walk}, step {step}, {action}: {mismatch}", scenario.name);
                }
                taken += 1;
            }
        }
    }
    println!("{WALKS} walks, {taken} steps; not served: {unserved:#?}");
}
