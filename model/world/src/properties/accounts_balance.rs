//! `accounts-balance`: free, reserved, filling, resident and draining pages add up to the pool.

use kvweft_core::Accounts;

use super::PropertyInfo;
use crate::memory::{Memory, Owner};
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "accounts-balance",
    liveness: false,
    says: "free, reserved, filling, resident and draining pages add up to the pool",
    seen_in: "TensorRT-LLM #12648, several",
};

/// Nothing is known of a manager that does not tell its accounts.
pub(crate) fn check(accounts: Option<&Accounts>, memory: &Memory, found: &mut Found) {
    let Some(accounts) = accounts else { return };
    for (t, name) in ["device", "host"].into_iter().enumerate() {
        let states = accounts.pages[t];
        let pages = memory.tiers[t].pages.len() as u32;
        let owned = memory.tiers[t].pages.iter().filter(|page| page.owner != Owner::Free).count() as u32;
        let free = states[0];
        if states.iter().sum::<u32>() != pages || free != accounts.free_listed[t] || free + owned != pages {
            found.violation(INFO.name, || {
                format!(
                    "the {name} pool of {pages} pages has {free} free, {} on its free list, {owned} with an owner",
                    accounts.free_listed[t]
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::memory;

    #[test]
    fn a_page_twice_on_the_free_list_and_a_page_lost_are_violations() {
        let balanced =
            Accounts { pages: [[1, 1, 0, 0, 0], [2, 0, 0, 0, 0]], free_listed: [1, 2], ..Accounts::default() };
        let twice = Accounts { free_listed: [2, 2], ..balanced };
        let lost = Accounts { pages: [[1, 0, 0, 0, 0], [2, 0, 0, 0, 0]], ..balanced };
        for (accounts, broken) in [(balanced, false), (twice, true), (lost, true)] {
            let mut found = Found::default();
            check(Some(&accounts), &memory(), &mut found);
            assert_eq!(!found.violations.is_empty(), broken);
        }
    }
}
