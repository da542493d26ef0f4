//! `every-transfer-is-reported-once`: every copy and send is taken note of by its manager once it has ended.

use kvweft_core::Accounts;

use super::PropertyInfo;
use crate::properties::Violation;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "every-transfer-is-reported-once",
    liveness: true,
    says: "every copy and send is taken note of by its manager once it has ended",
    seen_in: "vllm #46240, sglang #36612",
};

pub(crate) fn check(engine: usize, accounts: &Accounts, owed: &mut Vec<Violation>) {
    if accounts.transfers + accounts.event_slots > 0 {
        let detail = format!(
            "engine {engine} still waits for {} transfers and {} event slots, and its device has nothing to do",
            accounts.transfers, accounts.event_slots
        );
        owed.push(Violation { property: INFO.name, detail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_never_ends_for_its_manager_is_a_violation() {
        let mut owed = Vec::new();
        check(0, &Accounts { transfers: 1, ..Accounts::default() }, &mut owed);
        assert_eq!(owed[0].property, "every-transfer-is-reported-once");
        owed.clear();
        check(0, &Accounts::default(), &mut owed);
        assert!(owed.is_empty());
    }
}
