//! `visible-means-complete`: a block can be matched in a tier only when its last byte is there.

use kvweft_core::{BlockRef, Component, Tier};
use kvweft_trace::Content;

use super::PropertyInfo;
use crate::config::{EngineConfig, Machine};
use crate::memory::Memory;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "visible-means-complete",
    liveness: false,
    says: "a block can be matched in a tier only when its last byte is there",
    seen_in: "vllm #35092, LMCache #4991",
};

pub(crate) fn check(
    machine: &Machine,
    config: &EngineConfig,
    memory: &Memory,
    block: BlockRef,
    content: u16,
    found: &mut Found,
) {
    for (unit, &(layer, component)) in config.units.iter().enumerate() {
        let cell = memory.cell(block, unit);
        if component == Component::Kv && (cell.content != Content::Block(content) || cell.writers > 0) {
            found.violation(INFO.name, || {
                let tier = if block.tier == Tier::DEVICE { "device" } else { "host" };
                let name = |block| machine.block_name(block);
                let holds = if cell.writers > 0 { "is being written".to_owned() } else { cell.content.show(name) };
                format!("{} is made visible on the {tier}, its kv of layer {layer} holds: {holds}", name(content))
            });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::{block, machine, memory};

    #[test]
    fn publishing_a_page_that_lacks_its_kv_is_a_violation() {
        let (machine, mut memory) = (machine(), memory());
        let mut found = Found::default();
        check(&machine, &machine.engines[0], &memory, block(0, 1), 0, &mut found);
        assert_eq!(found.violations[0].property, "visible-means-complete");
        memory.cell_mut(block(0, 1), 1).content = Content::Block(0);
        let mut found = Found::default();
        check(&machine, &machine.engines[0], &memory, block(0, 1), 0, &mut found);
        assert!(found.violations.is_empty());
    }
}
