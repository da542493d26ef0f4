//! From a scenario file to a world.

use kvweft_core::{
    AllocationOrder, Component, ComponentLayout, Config, Dtype, Geometry, LayerSet, Layout, Manager, Role, RuleSet,
    Scale, UnknownRule, WritePolicy, parse_rule,
};
use kvweft_world::{Budget, EngineConfig, Grain, Machine, PROPERTIES, Script, SubjectFault};

use crate::scenario::{self, ModelFile, Names, RuleName, Scenario, Side};
use crate::world_system::WorldSystem;

/// The cache manager of kvweft in the world of a scenario.
pub type CacheSystem = WorldSystem<Manager>;

/// The names of rules and properties, as scenario files may use them.
pub fn with_names<T>(use_names: impl FnOnce(&Names<'_>) -> T) -> T {
    let sites: Vec<Vec<&str>> =
        kvweft_core::RULES.iter().map(|info| info.sites.iter().map(|site| site.name()).collect()).collect();
    let rules: Vec<RuleName<'_>> =
        kvweft_core::RULES.iter().zip(&sites).map(|(info, sites)| RuleName { name: info.name, sites }).collect();
    let properties: Vec<&str> = PROPERTIES.iter().map(|info| info.name).collect();
    use_names(&Names { rules: &rules, properties: &properties })
}

/// The rules that a list of `rule` and `rule@site` drops.
///
/// # Errors
/// The first text that names no rule that can be dropped, and why.
pub fn dropped<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<RuleSet, (String, UnknownRule)> {
    let mut dropped = RuleSet::EMPTY;
    for text in texts {
        let set = parse_rule(text).map_err(|why| (text.to_owned(), why))?;
        dropped = dropped.union(set);
    }
    Ok(dropped)
}

/// The rules that the scenario itself drops.
///
/// # Panics
/// If the scenario was read with other names than [`with_names`] gives.
pub fn scenario_drops(scenario: &Scenario) -> RuleSet {
    let texts: Vec<String> = scenario.drop.iter().map(ToString::to_string).collect();
    dropped(texts.iter().map(String::as_str)).expect("the scenario's rules were looked up when it was read")
}

/// The world of a scenario with every rule but `drops`.
pub fn build(scenario: &Scenario, drops: RuleSet) -> CacheSystem {
    build_with(scenario, drops, None, AllocationOrder::Ascending)
}

/// As [`build`], at another grain or with pages handed out in another order.
pub fn build_with(
    scenario: &Scenario,
    drops: RuleSet,
    grain: Option<scenario::Grain>,
    order: AllocationOrder,
) -> CacheSystem {
    let mut contents = Contents::default();
    let mut scripts = Vec::new();
    for request in &scenario.requests {
        let mut path = None;
        let mut walk = |names: &[String]| -> Vec<u16> {
            names.iter().map(|name| *path.insert(contents.number(path, name))).collect()
        };
        let prompt = walk(&request.prompt);
        let output = walk(&request.output);
        let after = request.after.iter().map(|name| position(scenario, name)).collect();
        scripts.push(Script {
            name: request.name.clone(),
            prompt,
            output,
            after,
            priority: request.priority as u8,
            retries: request.retries as u8,
        });
    }
    let configs = configs(scenario, drops, order);
    let machine = Machine {
        engines: configs.iter().map(EngineConfig::of).collect(),
        scripts,
        blocks: contents.names(),
        budget: budget(scenario),
        grain: match grain.unwrap_or(scenario.world.grain) {
            scenario::Grain::Default => Grain::Default,
            scenario::Grain::Finest => Grain::Finest,
            scenario::Grain::Atomic => Grain::Atomic,
        },
        driven: false,
    };
    WorldSystem { machine, managers: configs.into_iter().map(Manager::new).collect() }
}

fn position(scenario: &Scenario, name: &str) -> usize {
    scenario.requests.iter().position(|request| request.name == name).expect("checked when the scenario was read")
}

/// Contents are told apart by their whole history: the same name after another prefix is another block.
#[derive(Default)]
struct Contents(Vec<(Option<u16>, String)>);

impl Contents {
    fn number(&mut self, parent: Option<u16>, name: &str) -> u16 {
        let known = self.0.iter().position(|(p, n)| *p == parent && n == name);
        let at = known.unwrap_or_else(|| {
            self.0.push((parent, name.to_owned()));
            self.0.len() - 1
        });
        at as u16
    }

    /// The names as written; where one is used after several prefixes, with ticks.
    fn names(&self) -> Vec<String> {
        let named = self.0.iter().enumerate().map(|(i, (_, name))| {
            let earlier = self.0[..i].iter().filter(|(_, other)| other == name).count();
            format!("{name}{}", "'".repeat(earlier))
        });
        named.collect()
    }
}

fn configs(scenario: &Scenario, drops: RuleSet, order: AllocationOrder) -> Vec<Config> {
    let world = &scenario.world;
    let rules = drops.iter().fold(RuleSet::ALL, RuleSet::without);
    let split = world.roles == scenario::Roles::Split;
    let first = Config {
        role: if split { Role::Prefill } else { Role::Together },
        geometry: geometry(scenario, false),
        device_pages: world.device_pages,
        host_pages: world.host_pages,
        metadata_slots: 0,
        event_slots: world.event_slots as u8,
        write_policy: match world.write_policy {
            scenario::WritePolicy::Off => WritePolicy::Off,
            scenario::WritePolicy::Through => WritePolicy::Through,
            scenario::WritePolicy::Back => WritePolicy::Back,
        },
        prefix_cache: world.prefix_cache,
        chunk_pages: world.chunk_pages,
        max_batch: world.batch_max,
        pipeline_depth: 1,
        deadlines: world.deadlines,
        status_queries: scenario.faults.lose + 1,
        concluded_kept: 64,
        order,
        rules,
    };
    if !split {
        return vec![first];
    }
    let second =
        Config { geometry: geometry(scenario, true), ..first.decode(world.decode_pages, world.metadata_slots) };
    vec![first, second]
}

/// One page of the world stands for one page of the model: a token of the world is a page.
fn geometry(scenario: &Scenario, decode: bool) -> Geometry {
    let layers = scenario.model.layers.iter().map(|layer| {
        let index_k = if decode { &layer.decode_index_k } else { &layer.index_k };
        (&layer.kv, index_k.as_ref())
    });
    gathered(1, scenario.model.geometry.page_tokens as u16, layers)
}

/// The cache of some layers of a model as it is, where a token is a token; index keys in `index_k`, or as the model file
/// says. A layer that has no layout for that dtype has no index keys.
///
/// # Panics
/// If the model has no such layer, or there are more than 64.
pub fn model_geometry(model: &ModelFile, layers: &[usize], index_k: Option<scenario::Dtype>) -> Geometry {
    assert!(layers.len() <= 64, "a geometry has at most 64 layers");
    let index_k = index_k.or(model.index_k_dtype);
    let layers = layers.iter().map(|&layer| {
        let kind = &model.layers[layer];
        let kv = model.layout(kind, scenario::Component::Kv, model.kv_dtype);
        let kv = kv.expect("checked when the model was read: every kind has a kv layout of the model's dtype");
        (kv, index_k.and_then(|dtype| model.layout(kind, scenario::Component::IndexK, dtype)))
    });
    let page_tokens = model.page_tokens as u16;
    gathered(page_tokens, page_tokens, layers)
}

/// Layers whose layouts are alike share an entry. A page is of `page_tokens` tokens, and of `page_tokens_counted` for the
/// manager.
fn gathered<'a>(
    page_tokens_counted: u16,
    page_tokens: u16,
    layers: impl ExactSizeIterator<Item = (&'a scenario::Layout, Option<&'a scenario::Layout>)>,
) -> Geometry {
    let count = layers.len() as u8;
    let mut components: Vec<ComponentLayout> = Vec::new();
    for (at, (kv, index_k)) in layers.enumerate() {
        let layouts = [(Component::Kv, Some(kv)), (Component::IndexK, index_k)];
        for (component, layout) in layouts {
            let Some(layout) = layout.map(|layout| convert(layout, page_tokens)) else { continue };
            match components.iter_mut().find(|known| known.component == component && known.layout == layout) {
                Some(known) => known.layers = LayerSet(known.layers.0 | 1 << at),
                None => components.push(ComponentLayout { component, layers: LayerSet(1 << at), layout }),
            }
        }
    }
    Geometry { layers: count, page_tokens: page_tokens_counted, components }
}

fn convert(layout: &scenario::Layout, page_tokens: u16) -> Layout {
    Layout {
        dtype: match layout.dtype {
            scenario::Dtype::Fp8 => Dtype::Fp8,
            scenario::Dtype::Bf16 => Dtype::Bf16,
            scenario::Dtype::Fp4 => Dtype::Fp4,
        },
        scale: match layout.scale {
            scenario::Scale::None => Scale::None,
            scenario::Scale::PerPage => Scale::PerPage,
            scenario::Scale::PerRow => Scale::PerRow,
        },
        bytes_per_entry: layout.bytes_per_entry as u16,
        scale_bytes_per_entry: layout.scale_bytes_per_entry as u16,
        tokens_per_entry: layout.tokens_per_entry as u16,
        page_tokens,
    }
}

fn budget(scenario: &Scenario) -> Budget {
    let faults = &scenario.faults;
    let split = scenario.world.roles == scenario::Roles::Split;
    let engine = |side: Option<Side>| u8::from(split && side != Some(Side::Prefill));
    let mut flushes = [0; 2];
    flushes[usize::from(engine(faults.flush.at))] = faults.flush.times as u8;
    let subject = |name: &str, engine| SubjectFault { request: position(scenario, name), engine };
    Budget {
        aborts: faults.abort.iter().map(|abort| subject(&abort.request, engine(abort.at))).collect(),
        preempts: faults.preempt.iter().map(|name| subject(name, 0)).collect(),
        flushes,
        losses: faults.lose as u8,
        duplicates: faults.duplicate as u8,
        reorders: faults.reorder as u8,
        slow: faults.slow as u8,
        part_failures: faults.fail_part as u8,
    }
}
