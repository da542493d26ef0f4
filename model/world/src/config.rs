//! What a world is built from. Does not change while it runs.

use kvweft_core::{Component, Config, Geometry, Role};

/// How finely operations are cut into steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grain {
    /// Each write has a begin and an end per layer and component; the other side of a conflict is one point.
    #[default]
    Default,
    /// Each page of each layer and component by itself; every small operation is a step.
    Finest,
    /// A copy, and each layer of a forward step, is one step. Hides torn reads; for comparison only.
    Atomic,
}

/// One request, as its client scripts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its name in traces.
    pub name: String,
    /// Contents of its prompt, one page each.
    pub prompt: Vec<u16>,
    /// Contents of its answer, one page each.
    pub output: Vec<u16>,
    /// Requests that must have ended before it is submitted.
    pub after: Vec<usize>,
    /// Requests of a higher priority are considered first.
    pub priority: u8,
    /// How often the client submits it again once it has ended without an answer.
    pub retries: u8,
}

impl Script {
    /// The content at a position of the sequence.
    pub fn content(&self, position: usize) -> u16 {
        if position < self.prompt.len() { self.prompt[position] } else { self.output[position - self.prompt.len()] }
    }

    /// Pages of the whole sequence.
    pub fn pages(&self) -> usize {
        self.prompt.len() + self.output.len()
    }
}

/// A fault that names a request: each happens at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubjectFault {
    /// Which request.
    pub request: usize,
    /// At which engine.
    pub engine: u8,
}

/// How much the outside world may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Clients that may go away.
    pub aborts: Vec<SubjectFault>,
    /// Requests that may be preempted.
    pub preempts: Vec<SubjectFault>,
    /// Resets, by engine.
    pub flushes: [u8; 2],
    /// Control messages that may be lost.
    pub losses: u8,
    /// Control messages, or completion reports of sends, that may come twice.
    pub duplicates: u8,
    /// Control messages that may be overtaken.
    pub reorders: u8,
    /// Deadlines that may pass while everything is only slow.
    pub slow: u8,
    /// Parts of sends that may fail.
    pub part_failures: u8,
}

/// One engine of a world.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Its role.
    pub role: Role,
    /// The cells of a page: layer and component.
    pub units: Vec<(u8, Component)>,
    /// Layers.
    pub layers: u8,
    /// Pages of device and host pool.
    pub pages: [u32; 2],
    /// Rows of the metadata buffer.
    pub metadata_rows: u32,
    /// Rotating event slots.
    pub event_slots: u8,
}

impl EngineConfig {
    /// The engine that a manager of this configuration runs on.
    pub fn of(config: &Config) -> EngineConfig {
        EngineConfig {
            role: config.role,
            units: units(&config.geometry),
            layers: config.geometry.layers,
            pages: [config.device_pages, config.host_pages],
            metadata_rows: config.metadata_slots,
            event_slots: config.event_slots.max(1),
        }
    }

    /// The number of a cell in its page.
    pub fn unit(&self, layer: u8, component: Component) -> Option<usize> {
        self.units.iter().position(|&unit| unit == (layer, component))
    }
}

fn units(geometry: &Geometry) -> Vec<(u8, Component)> {
    let mut units = Vec::new();
    for layer in 0..geometry.layers {
        for component in [Component::IndexK, Component::Kv] {
            if geometry.layout(layer, component).is_some() {
                units.push((layer, component));
            }
        }
    }
    units
}

/// Everything fixed about a world.
#[derive(Clone, Debug)]
pub struct Machine {
    /// One engine, or prefill and decode in this order.
    pub engines: Vec<EngineConfig>,
    /// The requests.
    pub scripts: Vec<Script>,
    /// Names of contents.
    pub blocks: Vec<String>,
    /// What may go wrong.
    pub budget: Budget,
    /// How finely operations are cut.
    pub grain: Grain,
    /// Whether inputs that follow from what happens (layer events, reports of a poll, the end of an answer) are handed in
    /// by whoever drives the world, and not by the world itself.
    pub driven: bool,
}

impl Machine {
    /// The name of a content.
    pub fn block_name(&self, block: u16) -> String {
        self.blocks.get(usize::from(block)).cloned().unwrap_or_else(|| format!("block{block}"))
    }

    /// Whether prefill and decode are apart.
    pub fn split(&self) -> bool {
        self.engines.len() == 2
    }

    /// The engine that answers clients.
    pub fn front(&self) -> u8 {
        self.engines.len() as u8 - 1
    }
}
