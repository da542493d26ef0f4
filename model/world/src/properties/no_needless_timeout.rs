//! `no-needless-timeout`: a request ends by its deadline only if a fault was injected into it that its protocol could not repair.

use super::PropertyInfo;
use crate::config::Machine;
use crate::world::{Client, Found, LOST};

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "no-needless-timeout",
    liveness: true,
    says: "a request ends by its deadline only if a fault was injected into it that its protocol could not repair",
    seen_in: "sglang #32267",
};

pub(crate) fn check(machine: &Machine, client: &Client, request: usize, arrived: bool, found: &mut Found) {
    let name = &machine.scripts[request].name;
    if client.faults == 0 {
        found.violation(INFO.name, || format!("{name} ends by its deadline, and no fault was injected into it"));
    } else if client.faults == LOST && arrived {
        found.violation(INFO.name, || {
            format!("{name} ends by its deadline with every byte arrived: only the word of it was lost")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::machine;
    use crate::world::SLOW;

    #[test]
    fn a_timeout_without_a_fault_or_with_everything_there_is_a_violation() {
        let machine = machine();
        for (faults, arrived, broken) in
            [(0, false, true), (LOST, true, true), (LOST, false, false), (SLOW, true, false)]
        {
            let mut found = Found::default();
            check(&machine, &Client { faults, ..Client::default() }, 0, arrived, &mut found);
            assert_eq!(!found.violations.is_empty(), broken);
        }
    }
}
