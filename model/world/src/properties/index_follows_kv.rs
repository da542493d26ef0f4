//! `index-follows-kv`: wherever the KV of a block can be matched, its index keys can be used.

use kvweft_core::{BlockRef, Component, Tier};
use kvweft_trace::Content;

use super::PropertyInfo;
use crate::config::{EngineConfig, Machine};
use crate::memory::Memory;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "index-follows-kv",
    liveness: false,
    says: "wherever the KV of a block can be matched, its index keys can be used",
    seen_in: "sglang #38031, #39156, Mooncake #2236",
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
        let Some(kv) = config.unit(layer, Component::Kv) else { continue };
        let kv_complete = memory.cell(block, kv).content == Content::Block(content);
        if component == Component::IndexK && kv_complete && cell.content != Content::Block(content) {
            found.violation(INFO.name, || {
                let tier = if block.tier == Tier::DEVICE { "device" } else { "host" };
                let name = |block| machine.block_name(block);
                format!(
                    "{} is made visible on the {tier} with its kv, its index-k of layer {layer} holds: {}",
                    name(content),
                    cell.content.show(name)
                )
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
    fn publishing_kv_without_its_index_keys_is_a_violation() {
        let (machine, mut memory) = (machine(), memory());
        memory.cell_mut(block(0, 1), 1).content = Content::Block(0);
        let mut found = Found::default();
        check(&machine, &machine.engines[0], &memory, block(0, 1), 0, &mut found);
        assert_eq!(found.violations[0].property, "index-follows-kv");
        memory.cell_mut(block(0, 1), 0).content = Content::Block(0);
        let mut found = Found::default();
        check(&machine, &machine.engines[0], &memory, block(0, 1), 0, &mut found);
        assert!(found.violations.is_empty());
    }
}
