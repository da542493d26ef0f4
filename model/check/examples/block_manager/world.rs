//! The world in which the guest is tried: two requests that share a prefix, a client that goes away.

use kvweft_check::world_system::WorldSystem;
use kvweft_core::Role;
use kvweft_world::{Budget, EngineConfig, Grain, Machine, Script, SubjectFault};

use crate::manager::{BlockManager, COMPONENTS, Defect, LAYERS};

/// `r1` computes A B and leaves A on the host; `r2` needs A C and reloads A; `r3` takes what room there is.
pub(crate) fn world(defect: Defect) -> WorldSystem<BlockManager> {
    let (device, host) = (3, 1);
    let script = |name: &str, prompt: &[u16], output: &[u16], after: &[usize]| Script {
        name: name.to_owned(),
        prompt: prompt.to_vec(),
        output: output.to_vec(),
        after: after.to_vec(),
        priority: 0,
        retries: 0,
    };
    let machine = Machine {
        engines: vec![EngineConfig {
            role: Role::Together,
            units: (0..LAYERS).flat_map(|layer| COMPONENTS.map(|component| (layer, component))).collect(),
            layers: LAYERS,
            pages: [device, host],
            metadata_rows: 0,
            event_slots: 1,
        }],
        scripts: vec![script("r1", &[0], &[1], &[]), script("r2", &[0, 2], &[3], &[0]), script("r3", &[4], &[], &[0])],
        blocks: ["A", "B", "C", "D", "E"].map(str::to_owned).to_vec(),
        budget: Budget { aborts: vec![SubjectFault { request: 1, engine: 0 }], ..Budget::default() },
        grain: Grain::Default,
        driven: false,
    };
    WorldSystem { machine, managers: vec![BlockManager::new(device, host, defect)] }
}
