//! `layouts-match`: source, copy and destination of a move lay the bytes out alike.

use kvweft_core::{Layout, MovedPart};

use super::PropertyInfo;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "layouts-match",
    liveness: false,
    says: "source, copy and destination of a move lay the bytes out alike",
    seen_in: "the case; sglang #37534, #40304, vllm #48633",
};

fn bytes(layout: &Layout) -> u16 {
    layout.bytes_per_entry + layout.scale_bytes_per_entry
}

pub(crate) fn check(moved: MovedPart, found: &mut Found) {
    if moved.from == moved.moved && moved.moved == moved.to {
        return;
    }
    found.violation(INFO.name, || {
        format!(
            "{} leaves a pool of {} bytes an entry, is moved as {}, and lands in a pool of {}",
            moved.component.name(),
            bytes(&moved.from),
            bytes(&moved.moved),
            bytes(&moved.to)
        )
    });
}

#[cfg(test)]
mod tests {
    use kvweft_core::{Component, Dtype, LayerSet};

    use super::*;

    #[test]
    fn a_host_pool_of_132_bytes_under_a_device_pool_of_256_is_a_violation() {
        let device = Layout::index_k(Dtype::Bf16, 1, 64);
        let host = Layout::index_k(Dtype::Fp8, 1, 64);
        let layers = LayerSet::first(1);
        let part = MovedPart { component: Component::IndexK, layers, from: device, moved: device, to: host };
        let mut found = Found::default();
        check(part, &mut found);
        assert_eq!(
            found.violations[0].detail,
            "index-k leaves a pool of 256 bytes an entry, is moved as 256, and lands in a pool of 132"
        );
        let mut found = Found::default();
        check(MovedPart { to: device, ..part }, &mut found);
        assert!(found.violations.is_empty());
    }
}
