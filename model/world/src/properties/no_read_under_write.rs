//! `no-read-under-write`: nothing is read while it is being written.

use kvweft_core::Component;

use super::PropertyInfo;
use crate::memory::Cell;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "no-read-under-write",
    liveness: false,
    says: "nothing is read while it is being written",
    seen_in: "sglang #20611, vllm #45704",
};

pub(crate) fn check(cell: Cell, component: Component, layer: u8, reader: &str, found: &mut Found) {
    if cell.writers > 0 {
        found.violation(INFO.name, || {
            format!("{reader} reads {} of layer {layer} while it is being written", component.name())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_between_begin_and_end_of_a_write_is_a_violation() {
        let mut found = Found::default();
        check(Cell { writers: 1, ..Cell::default() }, Component::Kv, 0, "a copy", &mut found);
        assert_eq!(found.violations[0].property, "no-read-under-write");
        let mut found = Found::default();
        check(Cell { readers: 1, ..Cell::default() }, Component::Kv, 0, "a copy", &mut found);
        assert!(found.violations.is_empty());
    }
}
