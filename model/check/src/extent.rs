//! How large a scenario's world is, dimension by dimension; and the worlds next to it, one larger or smaller in one.

use std::fmt;

use crate::explore::{MissProbability, Outcome};
use crate::scenario::{Abort, Grain, Roles, Scenario, Side};

/// Something of which a world has so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    /// Requests.
    Requests,
    /// Pages of the device pool of the prefill engine, or of the only one.
    DevicePages,
    /// Pages of its host pool.
    HostPages,
    /// Pages of the decode engine.
    DecodePages,
    /// Layers.
    Layers,
    /// Clients that may go away.
    Aborts,
    /// Requests that may be preempted.
    Preemptions,
    /// Resets.
    Resets,
    /// Messages that may be lost.
    Losses,
    /// Messages that may come twice.
    Duplicates,
    /// Messages that may overtake others.
    Reorders,
    /// Deadlines that may pass while everything is only slow.
    SlowOperations,
    /// Parts of transfers that may fail.
    PartFailures,
}

use Dimension::{
    Aborts, DecodePages, DevicePages, Duplicates, HostPages, Layers, Losses, PartFailures, Preemptions, Reorders,
    Requests, Resets, SlowOperations,
};

impl Dimension {
    /// All of them.
    pub const ALL: [Dimension; 13] = [
        Requests,
        DevicePages,
        HostPages,
        DecodePages,
        Layers,
        Aborts,
        Preemptions,
        Resets,
        Losses,
        Duplicates,
        Reorders,
        SlowOperations,
        PartFailures,
    ];

    /// The name of one, and of several.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Requests => ("request", "requests"),
            DevicePages => ("device page", "device pages"),
            HostPages => ("host page", "host pages"),
            DecodePages => ("decode page", "decode pages"),
            Layers => ("layer", "layers"),
            Aborts => ("abort", "aborts"),
            Preemptions => ("preemption", "preemptions"),
            Resets => ("reset", "resets"),
            Losses => ("loss", "losses"),
            Duplicates => ("duplicate", "duplicates"),
            Reorders => ("reorder", "reorders"),
            SlowOperations => ("slow operation", "slow operations"),
            PartFailures => ("part failure", "part failures"),
        }
    }

    /// How many a scenario has.
    pub fn of(self, scenario: &Scenario) -> u32 {
        let (world, faults) = (&scenario.world, &scenario.faults);
        match self {
            Requests => scenario.requests.len() as u32,
            DevicePages => world.device_pages,
            HostPages => world.host_pages,
            DecodePages => world.decode_pages,
            Layers => scenario.model.layers.len() as u32,
            Aborts => faults.abort.len() as u32,
            Preemptions => faults.preempt.len() as u32,
            Resets => faults.flush.times,
            Losses => faults.lose,
            Duplicates => faults.duplicate,
            Reorders => faults.reorder,
            SlowOperations => faults.slow,
            PartFailures => faults.fail_part,
        }
    }

    /// The scenario with one more; `None` if its world cannot have one. A further request asks for what the last one
    /// does, a further layer is of the last one's kind, a further abort or preemption is of the first request without.
    pub fn grown(self, scenario: &Scenario) -> Option<Scenario> {
        let mut grown = scenario.clone();
        let split = scenario.world.roles == Roles::Split;
        match self {
            Requests => {
                let mut request = scenario.requests.last()?.clone();
                let free = |name: &String| scenario.requests.iter().all(|request| request.name != *name);
                request.name = (1..).map(|number| format!("r{number}")).find(free)?;
                grown.requests.push(request);
            }
            Layers => {
                let mut layer = scenario.model.layers.last()?.clone();
                layer.index += 1;
                grown.model.layers.push(layer);
            }
            Aborts => {
                let aborted = |name: &str| scenario.faults.abort.iter().any(|abort| abort.request == name);
                let request = scenario.requests.iter().find(|request| !aborted(&request.name))?.name.clone();
                grown.faults.abort.push(Abort { request, at: split.then_some(Side::Decode) });
            }
            Preemptions => {
                let free = |name: &String| !scenario.faults.preempt.contains(name);
                let request = scenario.requests.iter().map(|request| &request.name).find(|name| free(name))?;
                grown.faults.preempt.push(request.clone());
            }
            Resets => {
                grown.faults.flush.times += 1;
                grown.faults.flush.at = grown.faults.flush.at.or(split.then_some(Side::Decode));
            }
            DecodePages | Losses | Duplicates | Reorders | PartFailures if !split => return None,
            SlowOperations if !split || !scenario.world.deadlines => return None,
            _ => *self.number(&mut grown)? += 1,
        }
        Some(grown)
    }

    /// The scenario with one less; `None` if its world needs them all.
    pub fn shrunk(self, scenario: &Scenario) -> Option<Scenario> {
        let mut shrunk = scenario.clone();
        let longest = scenario.requests.iter().map(|request| request.prompt.len() + request.output.len()).max()?;
        let least = match self {
            Requests | Layers => 1,
            DevicePages | DecodePages => longest as u32,
            _ => 0,
        };
        if self.of(scenario) <= least {
            return None;
        }
        match self {
            Requests => {
                let gone = shrunk.requests.pop()?.name;
                shrunk.requests.iter_mut().for_each(|request| request.after.retain(|name| *name != gone));
                shrunk.faults.abort.retain(|abort| abort.request != gone);
                shrunk.faults.preempt.retain(|name| *name != gone);
            }
            Layers => drop(shrunk.model.layers.pop()),
            Aborts => drop(shrunk.faults.abort.pop()),
            Preemptions => drop(shrunk.faults.preempt.pop()),
            _ => *self.number(&mut shrunk)? -= 1,
        }
        Some(shrunk)
    }

    /// The number of a dimension that is only that.
    fn number(self, scenario: &mut Scenario) -> Option<&mut u32> {
        let (world, faults) = (&mut scenario.world, &mut scenario.faults);
        Some(match self {
            DevicePages => &mut world.device_pages,
            HostPages => &mut world.host_pages,
            DecodePages => &mut world.decode_pages,
            Resets => &mut faults.flush.times,
            Losses => &mut faults.lose,
            Duplicates => &mut faults.duplicate,
            Reorders => &mut faults.reorder,
            SlowOperations => &mut faults.slow,
            PartFailures => &mut faults.fail_part,
            Requests | Layers | Aborts | Preemptions => return None,
        })
    }
}

/// The whole extent of a scenario, in one line: `3 requests, 1 device page, 3 layers, 1 loss`.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a>(pub &'a Scenario);

impl Extent<'_> {
    /// Each dimension of which there is at least one, and how many.
    pub fn dimensions(&self) -> impl Iterator<Item = (Dimension, u32)> {
        Dimension::ALL.into_iter().map(|dimension| (dimension, dimension.of(self.0))).filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(dimension, count): (Dimension, u32)| {
            let (one, several) = dimension.names();
            format!("{count} {}", if count == 1 { one } else { several })
        };
        f.write_str(&self.dimensions().map(text).collect::<Vec<_>>().join(", "))
    }
}

/// What a search that saw every state covers, in one line.
pub fn covers<A>(scenario: &Scenario, outcome: &Outcome<A>, grain: Grain) -> String {
    let grain = format!("{grain:?}").to_lowercase();
    let miss = match outcome.miss {
        MissProbability::Zero => "exact".to_owned(),
        below => format!("probability of a miss {below}"),
    };
    let liveness = if outcome.liveness_judged { "safety and liveness" } else { "safety alone" };
    let states = outcome.counts.states;
    format!("{liveness} in every interleaving of {}, at the {grain} grain: {states} states, {miss}", Extent(scenario))
}
