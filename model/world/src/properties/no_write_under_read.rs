//! `no-write-under-read`: nothing is written while a copy, a send or another write is at it.

use kvweft_core::Component;

use super::PropertyInfo;
use crate::memory::Cell;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "no-write-under-read",
    liveness: false,
    says: "nothing is written while a copy, a send or another write is at it",
    seen_in: "sglang #36738, TensorRT-LLM #12540",
};

pub(crate) fn check(cell: Cell, component: Component, layer: u8, writer: &str, found: &mut Found) {
    if cell.readers > 0 {
        found.violation(INFO.name, || {
            format!("{writer} writes {} of layer {layer} while a copy or send reads it", component.name())
        });
    } else if cell.writers > 0 {
        found.violation(INFO.name, || {
            format!("{writer} writes {} of layer {layer} while it is already being written", component.name())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_under_a_read_or_under_another_write_is_a_violation() {
        for cell in [Cell { readers: 1, ..Cell::default() }, Cell { writers: 1, ..Cell::default() }] {
            let mut found = Found::default();
            check(cell, Component::IndexK, 1, "a copy", &mut found);
            assert_eq!(found.violations[0].property, "no-write-under-read");
        }
        let mut found = Found::default();
        check(Cell::default(), Component::IndexK, 1, "a copy", &mut found);
        assert!(found.violations.is_empty());
    }
}
