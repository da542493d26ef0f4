//! What a search will cost, before it is made.

use std::collections::BTreeMap;

use crate::explore::{Options, explore, fingerprint};
use crate::numbers::Numbers;
use crate::system::{Class, Found, System};

/// States of the search whose end is waited for.
const SAMPLE_STATES: u64 = 5_000;
/// Walks that tell how many states there are at each depth, and steps of each at most.
const WALKS: u64 = 2_000;
const STEPS_MAX: usize = 2_000;
/// In one of so many steps all actions are drawn from, in the others those of the system.
const OUTSIDE_EVERY: usize = 8;

/// What a search will cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// States.
    pub states: u64,
    /// Whether that is the number itself: the sample was the whole.
    pub exact: bool,
    /// Bytes of the tables, in proportion to those of the sample.
    pub table_bytes: u64,
}

/// Searches a part, which may turn out to be the whole. If not, it walks at random, and tells the number of states at each
/// depth from how many of them the walks saw once and how many twice (Chao 1984). States that walks hardly ever see are
/// not told: the number is rough and rather too low, and the same on every run.
pub fn estimate<S: System>(system: &S, options: &Options) -> Estimate {
    let outcome = explore(system, &Options { states_max: SAMPLE_STATES.min(options.states_max), ..options.clone() });
    let sampled = outcome.counts.states;
    if outcome.exhausted {
        return Estimate { states: sampled, exact: true, table_bytes: outcome.table_bytes };
    }
    let states = states_by_walks(system, options).max(sampled);
    let table_bytes = u128::from(outcome.table_bytes) * u128::from(states) / u128::from(sampled.max(1));
    Estimate { states, exact: false, table_bytes: u64::try_from(table_bytes).unwrap_or(u64::MAX) }
}

fn states_by_walks<S: System>(system: &S, options: &Options) -> u64 {
    let mut numbers = Numbers::new(0);
    // By depth, how often each state was seen.
    let mut seen: Vec<BTreeMap<u128, u32>> = Vec::new();
    let (mut enabled, mut encoding) = (Vec::new(), Vec::new());
    for _ in 0..WALKS {
        let mut initials = system.initial();
        if initials.is_empty() {
            return 0;
        }
        let initial = numbers.below(initials.len());
        let mut state = initials.swap_remove(initial);
        for depth in 0..STEPS_MAX {
            encoding.clear();
            system.encode(&state, &mut encoding);
            if seen.len() == depth {
                seen.push(BTreeMap::new());
            }
            *seen[depth].entry(fingerprint(&encoding)).or_default() += 1;
            enabled.clear();
            system.enabled(&state, &mut enabled);
            if enabled.is_empty() {
                break;
            }
            // The outside world acts now and then: a walk that spends all faults at the start sees little of what they do.
            let outside = |action: &S::Action| system.class(&state, action) != Class::System;
            if enabled.iter().any(|action| !outside(action)) && numbers.below(OUTSIDE_EVERY) > 0 {
                enabled.retain(|action| !outside(action));
            }
            let mut found = Found::default();
            system.step(&mut state, &enabled[numbers.below(enabled.len())], &mut found);
            if options.ends_at(system, &found.violations) {
                break;
            }
        }
    }
    seen.iter().map(all_of).sum()
}

/// How many there are, from how often each was seen.
fn all_of(seen: &BTreeMap<u128, u32>) -> u64 {
    let times = |wanted: u32| seen.values().filter(|&&times| times == wanted).count() as u64;
    let (once, twice) = (times(1), times(2));
    seen.len() as u64 + once * once.saturating_sub(1) / (2 * (twice + 1))
}
