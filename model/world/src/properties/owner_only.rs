//! `owner-only`: a copy or send touches a page only while the page is owned, or draining, in the life it was issued for.

use kvweft_core::{BlockRef, Tier};

use super::PropertyInfo;
use crate::memory::Memory;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "owner-only",
    liveness: false,
    says: "a copy or send touches a page only while the page is owned, or draining, in the life it was issued for",
    seen_in: "vllm #32255, sglang #35360, TensorRT-LLM #13713",
};

// Operations of the forward stream are not judged here: a page may be freed while a launched step still names it, because
// whoever uses the page next is ordered behind that step, and what he reads is judged by its content.
pub(crate) fn check(memory: &Memory, block: BlockRef, does: &str, found: &mut Found) {
    if memory.owned(block) {
        return;
    }
    found.violation(INFO.name, || {
        let tier = if block.tier == Tier::DEVICE { "device" } else { "host" };
        let page = memory.page(block.tier, block.page);
        let now = if page.generation == block.generation { "is free by now" } else { "has a new owner by now" };
        format!("a copy or send {does} a {tier} page that {now}")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::{block, memory};

    #[test]
    fn touching_a_free_page_or_one_of_another_life_is_a_violation() {
        let memory = memory();
        for (page, generation, broken) in [(0, 1, false), (0, 2, true), (1, 0, true)] {
            let mut found = Found::default();
            check(&memory, block(page, generation), "writes", &mut found);
            assert_eq!(!found.violations.is_empty(), broken);
        }
    }
}
