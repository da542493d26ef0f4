//! `every-request-ends`: every request ends, by the system's own steps.

use super::PropertyInfo;
use crate::config::Machine;
use crate::properties::Violation;
use crate::world::Client;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "every-request-ends",
    liveness: true,
    says: "every request ends, by the system's own steps",
    seen_in: "vllm #45388, sglang #25699, #36033, the case",
};

pub(crate) fn check(machine: &Machine, clients: &[Client], owed: &mut Vec<Violation>) {
    let waiting: Vec<&str> = clients
        .iter()
        .zip(&machine.scripts)
        .filter(|(client, _)| client.open != 0)
        .map(|(_, script)| script.name.as_str())
        .collect();
    if !waiting.is_empty() {
        owed.push(Violation { property: INFO.name, detail: format!("{} waits for ever", waiting.join(", ")) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::machine;

    #[test]
    fn a_stuck_request_is_a_violation() {
        let mut owed = Vec::new();
        check(&machine(), &[Client { open: 1, ..Client::default() }], &mut owed);
        assert_eq!(owed[0].detail, "r1 waits for ever");
        owed.clear();
        check(&machine(), &[Client::default()], &mut owed);
        assert!(owed.is_empty());
    }
}
