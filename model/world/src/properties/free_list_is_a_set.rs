//! `free-list-is-a-set`: a free page is on the free list once, and a page with an owner is not.

use kvweft_core::{BlockRef, Tier};

use super::PropertyInfo;
use crate::memory::{Owner, Page};
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "free-list-is-a-set",
    liveness: false,
    says: "a free page is on the free list once, and a page with an owner is not",
    seen_in: "sglang #13483, #29310, TensorRT-LLM #12648",
};

fn tier(block: BlockRef) -> &'static str {
    if block.tier == Tier::DEVICE { "device" } else { "host" }
}

pub(crate) fn check_taken(page: &Page, block: BlockRef, found: &mut Found) {
    if page.owner != Owner::Free {
        found.violation(INFO.name, || format!("a {} page is handed out while it has an owner", tier(block)));
    }
}

pub(crate) fn check_freed(page: &Page, block: BlockRef, found: &mut Found) {
    if page.owner == Owner::Free {
        found.violation(INFO.name, || format!("a {} page that is free is freed again", tier(block)));
    } else if page.generation != block.generation {
        found.violation(INFO.name, || format!("a {} page is freed in the name of its former owner", tier(block)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::{block, memory};

    #[test]
    fn handing_out_an_owned_page_and_freeing_a_free_one_are_violations() {
        let mut memory = memory();
        let mut found = Found::default();
        check_taken(memory.page_mut(block(0, 1)), block(0, 1), &mut found);
        check_freed(memory.page_mut(block(1, 0)), block(1, 0), &mut found);
        check_freed(memory.page_mut(block(0, 1)), block(0, 0), &mut found);
        assert_eq!(found.violations.len(), 3);
        let mut found = Found::default();
        check_taken(memory.page_mut(block(1, 0)), block(1, 0), &mut found);
        check_freed(memory.page_mut(block(0, 1)), block(0, 1), &mut found);
        assert!(found.violations.is_empty());
    }
}
