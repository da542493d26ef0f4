//! `every-page-returns`: every page ends up free, or cached without a lease.

use kvweft_core::Accounts;

use super::PropertyInfo;
use crate::properties::Violation;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "every-page-returns",
    liveness: true,
    says: "every page ends up free, or cached without a lease",
    seen_in: "vllm #46283, sglang #38480",
};

/// Pages of each tier that are neither free nor cached without a lease.
pub(crate) fn missing(accounts: &Accounts) -> [u32; 2] {
    [0, 1].map(|t| {
        let [free, reserved, filling, resident, draining] = accounts.pages[t];
        let _ = free;
        reserved + filling + draining + resident.saturating_sub(accounts.cached[t])
    })
}

pub(crate) fn check(engine: usize, accounts: &Accounts, owed: &mut Vec<Violation>) {
    let [device, host] = missing(accounts);
    if device + host + accounts.metadata_rows + accounts.leases > 0 {
        let detail = format!(
            "engine {engine} never gets back: {device} device pages, {host} host pages, {} metadata rows, {} leases",
            accounts.metadata_rows, accounts.leases
        );
        owed.push(Violation { property: INFO.name, detail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_stays_draining_is_a_violation_and_a_cached_one_is_not() {
        let mut owed = Vec::new();
        let cached = Accounts { pages: [[1, 0, 0, 1, 0], [0; 5]], cached: [1, 0], ..Accounts::default() };
        check(0, &cached, &mut owed);
        assert!(owed.is_empty());
        check(0, &Accounts { pages: [[1, 0, 0, 0, 1], [0; 5]], ..Accounts::default() }, &mut owed);
        assert_eq!(owed[0].property, "every-page-returns");
    }
}
