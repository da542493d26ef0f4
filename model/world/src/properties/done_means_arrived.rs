//! `done-means-arrived`: a request is told that its cache has arrived only when KV, index keys and metadata are all there.

use kvweft_core::{BlockRef, Room};
use kvweft_trace::Content;

use super::PropertyInfo;
use crate::config::{EngineConfig, Machine, Script};
use crate::memory::Memory;
use crate::world::Found;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "done-means-arrived",
    liveness: false,
    says: "a request is told that its cache has arrived only when KV, index keys and metadata are all there",
    seen_in: "vllm #23917, sglang #25698, #17430",
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
        if cell.content != Content::Block(content) || cell.writers > 0 {
            found.violation(INFO.name, || {
                let name = |block| machine.block_name(block);
                format!(
                    "{} is taken for arrived, its {} of layer {layer} holds: {}",
                    name(content),
                    component.name(),
                    if cell.writers > 0 { "a write under way".to_owned() } else { cell.content.show(name) }
                )
            });
            return;
        }
    }
}

pub(crate) fn check_metadata(script: &Script, found_room: Option<Room>, own: Option<Room>, found: &mut Found) {
    if found_room != own {
        found.violation(INFO.name, || {
            let holds = if found_room.is_some() { "the row of another room" } else { "nothing yet" };
            format!("{} reads its metadata row: expects its own, finds {holds}", script.name)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::testing::{block, machine, memory};

    #[test]
    fn waking_a_request_before_its_index_keys_or_with_foreign_metadata_is_a_violation() {
        let (machine, mut memory) = (machine(), memory());
        memory.cell_mut(block(0, 1), 1).content = Content::Block(0);
        let mut found = Found::default();
        check(&machine, &machine.engines[0], &memory, block(0, 1), 0, &mut found);
        check_metadata(&machine.scripts[0], Some(Room(1)), Some(Room(2)), &mut found);
        assert_eq!(found.violations.len(), 2);
        memory.cell_mut(block(0, 1), 0).content = Content::Block(0);
        let mut found = Found::default();
        check(&machine, &machine.engines[0], &memory, block(0, 1), 0, &mut found);
        check_metadata(&machine.scripts[0], Some(Room(2)), Some(Room(2)), &mut found);
        assert!(found.violations.is_empty());
    }
}
