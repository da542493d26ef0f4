//! The properties, one file each. A property looks at what happened, never at how the manager is written.

pub mod accounts_balance;
pub mod done_means_arrived;
pub mod every_page_returns;
pub mod every_request_ends;
pub mod every_transfer_is_reported_once;
pub mod free_list_is_a_set;
pub mod index_follows_kv;
pub mod layouts_match;
pub mod no_idle_loop;
pub mod no_needless_timeout;
pub mod no_read_under_write;
pub mod no_write_under_read;
pub mod owner_only;
pub mod ranks_agree;
pub mod reads_see_own_content;
pub mod reports_name_their_life;
pub mod visible_means_complete;

/// A property found broken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// Which one.
    pub property: &'static str,
    /// What was expected, what came, where. Names no slot and no number that the manager gave out.
    pub detail: String,
}

/// What is known of a property.
#[derive(Debug)]
pub struct PropertyInfo {
    /// Its name.
    pub name: &'static str,
    /// Whether it is about what must never happen, or about what must.
    pub liveness: bool,
    /// What it says.
    pub says: &'static str,
    /// Public reports in which it was broken.
    pub seen_in: &'static str,
}

/// Every property.
pub const PROPERTIES: &[&PropertyInfo] = &[
    &accounts_balance::INFO,
    &done_means_arrived::INFO,
    &every_page_returns::INFO,
    &every_request_ends::INFO,
    &every_transfer_is_reported_once::INFO,
    &free_list_is_a_set::INFO,
    &index_follows_kv::INFO,
    &layouts_match::INFO,
    &no_idle_loop::INFO,
    &no_needless_timeout::INFO,
    &no_read_under_write::INFO,
    &no_write_under_read::INFO,
    &owner_only::INFO,
    &ranks_agree::INFO,
    &reads_see_own_content::INFO,
    &reports_name_their_life::INFO,
    &visible_means_complete::INFO,
];

#[cfg(test)]
pub(crate) mod testing {
    //! Small pieces to feed a property a violation.

    use kvweft_core::{BlockRef, Component, Generation, Group, PageId, Role, Tier};

    use crate::config::{Budget, EngineConfig, Grain, Machine, Script};
    use crate::memory::{Memory, Owner};

    /// One engine of one layer with both components, one request with the prompt A B.
    pub(crate) fn machine() -> Machine {
        let engine = EngineConfig {
            role: Role::Together,
            units: vec![(0, Component::IndexK), (0, Component::Kv)],
            layers: 1,
            pages: [2, 2],
            metadata_rows: 1,
            event_slots: 1,
        };
        let script =
            Script { name: "r1".into(), prompt: vec![0, 1], output: vec![], after: vec![], priority: 0, retries: 0 };
        Machine {
            engines: vec![engine],
            scripts: vec![script],
            blocks: vec!["A".into(), "B".into()],
            budget: Budget::default(),
            grain: Grain::Default,
            driven: false,
        }
    }

    /// Its memory, with page 0 taken.
    pub(crate) fn memory() -> Memory {
        let mut memory = Memory::new([2, 2], 2);
        let page = memory.page_mut(block(0, 1));
        page.owner = Owner::Taken;
        page.generation = Generation(1);
        memory
    }

    pub(crate) fn block(page: u32, generation: u32) -> BlockRef {
        BlockRef { group: Group(0), tier: Tier::DEVICE, page: PageId(page), generation: Generation(generation) }
    }
}
