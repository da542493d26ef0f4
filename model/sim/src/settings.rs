//! What is fixed about a run.

use serde::Serialize;

use kvweft_core::{AllocationOrder, Config, Geometry, Role, RuleSet, WritePolicy};

use crate::profile::Profile;
use crate::workload::Workload;

/// When sessions start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At the times of the workload.
    Open,
    /// So many run at once; the next one starts when one ends.
    Closed(u32),
}

/// What is made to go wrong by chance, each of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Messages between the engines that are lost.
    pub lose_permille: u32,
    /// Parts of transfers that fail at their end: whatever they wrote is torn.
    pub fail_permille: u32,
    /// Requests whose client goes away of its own accord.
    pub leave_permille: u32,
    /// It does so at any time up to this, from when it asked, in nanoseconds.
    pub leave_ns: u64,
}

/// What is fixed about a run, beside its workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The machine.
    pub profile: Profile,
    /// What a page holds.
    pub geometry: Geometry,
    /// The rules that are kept.
    pub rules: RuleSet,
    /// Whether a prefill and a decode engine share the work.
    pub split: bool,
    /// Pages of the device pool of the engine that computes prompts.
    pub device_pages: u32,
    /// Pages of its host pool; 0 for none.
    pub host_pages: u32,
    /// Pages of the decode engine.
    pub decode_pages: u32,
    /// When pages go to the host tier.
    pub write_policy: WritePolicy,
    /// Whether finished blocks can be matched by later requests.
    pub prefix_cache: bool,
    /// Pages of a prompt that one step computes at most; 0 for all.
    pub chunk_pages: u32,
    /// Answers that one step continues at most.
    pub batch_max: u32,
    /// Requests that wait for pages inside the manager at most; the others wait in a queue before it.
    pub queue_max: u32,
    /// Rotating slots of layer events.
    pub event_slots: u8,
    /// When sessions start.
    pub arrival: Arrival,
    /// Whether agents think between requests.
    pub think: bool,
    /// A client goes away after so long, in nanoseconds; 0 for never.
    pub timeout_ns: u64,
    /// An engine gives a wait for its peer up after so long, in nanoseconds.
    pub deadline_ns: u64,
    /// What is made to go wrong.
    pub faults: Faults,
    /// Decides what is left to chance: the jitter of the profile, and faults.
    pub seed: u64,
}

/// Why a run cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The blocks of the workload cannot be cut into pages.
    #[error(
        "pages of {page} tokens do not fit blocks of {block} tokens\nhelp: take a model whose pages divide the blocks, or are made of whole ones"
    )]
    Blocks {
        /// Tokens of a page.
        page: u32,
        /// Tokens of a block.
        block: u32,
    },
    /// A figure of the profile is impossible.
    #[error("the profile `{name}`: {}", faults.join("; "))]
    Profile {
        /// Its name.
        name: String,
        /// What is wrong.
        faults: Vec<String>,
    },
    /// The workload asks for nothing.
    #[error("the workload has no request")]
    Empty,
    /// Nothing can run.
    #[error("{0}: expected at least 1, got 0")]
    Zero(&'static str),
}

impl Settings {
    /// One engine with the cache on, a queue of a few requests before it, and clients that wait for ever.
    pub fn new(profile: Profile, geometry: Geometry, device_pages: u32, host_pages: u32) -> Settings {
        Settings {
            profile,
            geometry,
            rules: RuleSet::ALL,
            split: false,
            device_pages,
            host_pages,
            decode_pages: device_pages,
            write_policy: WritePolicy::Through,
            prefix_cache: true,
            chunk_pages: 0,
            batch_max: 256,
            queue_max: 4,
            event_slots: 3,
            arrival: Arrival::Closed(1),
            think: true,
            timeout_ns: 0,
            deadline_ns: 300_000_000_000,
            faults: Faults::default(),
            seed: 1,
        }
    }

    /// Whether a run can begin.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, workload: &Workload) -> Result<(), SettingsError> {
        let (page, block) = (u32::from(self.geometry.page_tokens), workload.block_tokens);
        if page == 0 || !block.is_multiple_of(page) && !page.is_multiple_of(block) {
            return Err(SettingsError::Blocks { page, block });
        }
        let faults = self.profile.faults();
        if !faults.is_empty() {
            let faults = faults.into_iter().map(|(key, why)| format!("{key}: {why}")).collect();
            return Err(SettingsError::Profile { name: self.profile.name.clone(), faults });
        }
        if workload.requests() == 0 {
            return Err(SettingsError::Empty);
        }
        let decode_pages = if self.split { self.decode_pages } else { 1 };
        for (what, count) in [
            ("device pages", self.device_pages),
            ("decode pages", decode_pages),
            ("answers a step", self.batch_max),
            ("requests that wait inside the manager", self.queue_max),
            ("event slots", u32::from(self.event_slots)),
            ("sessions at once", if let Arrival::Closed(count) = self.arrival { count } else { 1 }),
        ] {
            if count == 0 {
                return Err(SettingsError::Zero(what));
            }
        }
        Ok(())
    }

    /// The configuration of every engine.
    pub(crate) fn configs(&self) -> Vec<Config> {
        let role = if self.split { Role::Prefill } else { Role::Together };
        let writes = if self.prefix_cache && self.host_pages > 0 { self.write_policy } else { WritePolicy::Off };
        let host_pages = if writes == WritePolicy::Off { 0 } else { self.host_pages };
        let first = Config {
            prefix_cache: self.prefix_cache,
            write_policy: writes,
            chunk_pages: self.chunk_pages,
            max_batch: self.batch_max,
            metadata_slots: 0,
            event_slots: self.event_slots,
            order: AllocationOrder::Ascending,
            concluded_kept: 4096,
            rules: self.rules,
            ..Config::new(role, self.geometry.clone(), self.device_pages, host_pages)
        };
        if !self.split {
            return vec![first];
        }
        let second = first.decode(self.decode_pages, self.batch_max.max(2));
        vec![first, second]
    }
}
