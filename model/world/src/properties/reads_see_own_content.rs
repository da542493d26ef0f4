//! `reads-see-own-content`: a forward step reads the bytes of its own request, and nothing else.

use kvweft_core::{Component, RequestId};
use kvweft_trace::Content;

use super::PropertyInfo;
use crate::config::Machine;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "reads-see-own-content",
    liveness: false,
    says: "a forward step reads the bytes of its own request, and nothing else",
    seen_in: "sglang #22811, vllm #32255, the case",
};

pub(crate) fn check(
    machine: &Machine,
    request: RequestId,
    component: Component,
    layer: u8,
    expected: u16,
    content: Content,
    found: &mut Found,
) {
    if content == Content::Block(expected) {
        return;
    }
    found.violation(INFO.name, || {
        let name = |block| machine.block_name(block);
        format!(
            "{} reads {} of layer {layer}: expects {}, finds {}",
            machine.scripts[request.0 as usize].name,
            component.name(),
            name(expected),
            content.show(name)
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::machine;

    #[test]
    fn stale_torn_mislaid_and_poisoned_reads_are_violations_and_own_reads_are_not() {
        let machine = machine();
        for content in [Content::Block(1), Content::Torn, Content::Mislaid(0), Content::Poison] {
            let mut found = Found::default();
            check(&machine, RequestId(0), Component::IndexK, 0, 0, content, &mut found);
            assert_eq!(found.violations.len(), 1, "{content:?}");
        }
        let mut found = Found::default();
        check(&machine, RequestId(0), Component::IndexK, 0, 0, Content::Block(0), &mut found);
        assert!(found.violations.is_empty());
    }
}
