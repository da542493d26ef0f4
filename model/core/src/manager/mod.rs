//! The manager: inputs in, effects out.

mod admit;
mod copies;
mod decode;
mod forward;
mod leave;
mod pages;
mod prefill;
mod records;
mod reset;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

pub(crate) use records::{EventRecord, Launched, Ledger, MetadataRow, Request, TransferKind};

use crate::effect::{Answer, Effect, Ending, Timer};
use crate::geometry::{ComponentLayout, Geometry, Layout};
use crate::ids::{PeerLife, RequestId, Room, StepId, Tier};
use crate::input::{Input, Submit};
use crate::machine::Next;
use crate::machine::request::{RequestEvent, RequestState, next};
use crate::map::Map;
use crate::page_list::PageList;
use crate::pool::{AllocationOrder, Pool};
use crate::rules::{Rule, RuleSet, RuleSite, Site};
use crate::tree::{NIL, Tree};

/// What an engine does with requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Role {
    /// Computes prompts and answers.
    #[default]
    Together,
    /// Computes prompts and sends their cache to a decode engine.
    Prefill,
    /// Receives the cache of prompts and computes answers.
    Decode,
}

/// When computed pages are copied to the host tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum WritePolicy {
    /// Never.
    Off,
    /// As soon as they are computed.
    #[default]
    Through,
    /// When they are evicted from the device.
    Back,
}

/// What a manager is built from. Does not change over its life.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// What it does with requests.
    pub role: Role,
    /// What a page holds.
    pub geometry: Geometry,
    /// Pages of the device pool.
    pub device_pages: u32,
    /// Pages of the host pool; 0 for none.
    pub host_pages: u32,
    /// Rows of the metadata buffer (decode role).
    pub metadata_slots: u32,
    /// Rotating slots of layer events; at most so many reloads are under way.
    pub event_slots: u8,
    /// When pages go to the host tier.
    pub write_policy: WritePolicy,
    /// Whether finished blocks can be matched by later requests.
    pub prefix_cache: bool,
    /// Pages of a prompt that one step computes at most; 0 for all.
    pub chunk_pages: u32,
    /// Answers that one step continues at most.
    pub max_batch: u32,
    /// Steps in flight at most.
    pub pipeline_depth: u8,
    /// Whether waits for the peer have deadlines.
    pub deadlines: bool,
    /// Status queries before a deadline ends a request.
    pub status_queries: u32,
    /// Rooms whose end a prefill engine remembers.
    pub concluded_kept: u32,
    /// The order in which fresh pages are handed out.
    pub order: AllocationOrder,
    /// The rules that are kept.
    pub rules: RuleSet,
}

impl Config {
    /// One engine that does both, with small numbers; meant to be changed by field.
    pub fn new(role: Role, geometry: Geometry, device_pages: u32, host_pages: u32) -> Config {
        Config {
            role,
            geometry,
            device_pages,
            host_pages,
            metadata_slots: 2,
            event_slots: 3,
            write_policy: WritePolicy::Through,
            prefix_cache: true,
            chunk_pages: 0,
            max_batch: 256,
            pipeline_depth: 1,
            deadlines: true,
            status_queries: 1,
            concluded_kept: 64,
            order: AllocationOrder::Ascending,
            rules: RuleSet::ALL,
        }
    }

    /// The decode engine for this prefill engine: one pool, which holds what prefill sends and no prefix of anybody.
    #[must_use]
    pub fn decode(&self, device_pages: u32, metadata_slots: u32) -> Config {
        Config {
            role: Role::Decode,
            device_pages,
            host_pages: 0,
            metadata_slots,
            write_policy: WritePolicy::Off,
            prefix_cache: false,
            ..self.clone()
        }
    }

    /// How the host mirror lays out a component of the device pool.
    pub fn host_layout(&self, entry: &ComponentLayout) -> Layout {
        let like_device = self.rules.has(Rule::HostLayoutFromDevice.at(Site::HostPool));
        if like_device { entry.layout } else { entry.layout.class_default(entry.component) }
    }
}

/// Why an input was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// No request of this id is known.
    UnknownRequest(RequestId),
    /// The id belongs to a request that has not ended.
    DuplicateRequest(RequestId),
    /// The request can never fit.
    TooLarge {
        /// Pages it needs.
        needed: u32,
        /// Pages of the pool.
        pages: u32,
    },
    /// A split engine needs a room, one that does both must have none.
    RoomMismatch(RequestId),
    /// The request has no pages that could be taken away, or its peer needs them.
    NotPreemptible(RequestId),
    /// The answer's blocks are more than its pages, or the request is still computing.
    NotFinishable(RequestId),
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejected::UnknownRequest(r) => write!(f, "request {} is not known here", r.0),
            Rejected::DuplicateRequest(r) => write!(f, "request {} has not ended yet", r.0),
            Rejected::TooLarge { needed, pages } => write!(f, "needs {needed} pages, the pool has {pages}"),
            Rejected::RoomMismatch(r) => write!(f, "request {} must name a room in split roles, and only there", r.0),
            Rejected::NotPreemptible(r) => write!(f, "request {} holds no pages that could be taken away", r.0),
            Rejected::NotFinishable(r) => write!(f, "request {} is not at a point where its answer can end", r.0),
        }
    }
}

impl core::error::Error for Rejected {}

/// What the last inputs reached: which table cells, and which rules held something back. Not part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Rules that held something back.
    pub held: RuleSet,
    /// Cells of the request table: bit `event` of entry `state`.
    pub request_cells: [u16; 9],
    /// Cells of the slot table: bit `state * 5 + event`.
    pub slot_cells: u32,
}

impl Touched {
    /// Adds all of `other`.
    pub fn unite(&mut self, other: &Touched) {
        self.held = self.held.union(other.held);
        self.slot_cells |= other.slot_cells;
        for (a, b) in self.request_cells.iter_mut().zip(&other.request_cells) {
            *a |= b;
        }
    }
}

/// How the pages and records of a manager add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Pages of each tier by slot state: free, reserved, filling, resident, draining.
    pub pages: [[u32; 5]; 2],
    /// Entries of each tier's free list.
    pub free_listed: [u32; 2],
    /// Pages that are cached, complete and without a lease.
    pub cached: [u32; 2],
    /// Transfers under way.
    pub transfers: u32,
    /// Metadata rows with an owner.
    pub metadata_rows: u32,
    /// Event slots in use.
    pub event_slots: u32,
    /// Leases on all nodes.
    pub leases: u32,
    /// Requests that have not ended.
    pub requests: u32,
}

/// The cache manager of one engine.
///
/// # Contract
/// One input, then every effect, then the next input: [`Manager::handle`] asserts that the queue is empty.
#[derive(Clone, Debug)]
pub struct Manager {
    pub(crate) config: Arc<Config>,
    pub(crate) life: PeerLife,
    pub(crate) pools: [Pool; 2],
    pub(crate) tree: Tree,
    pub(crate) requests: Vec<Request>,
    pub(crate) by_id: Map<u32, u32>,
    pub(crate) by_room: Map<u32, u32>,
    /// Requests that have not ended, in the order in which they are considered.
    pub(crate) order: Vec<u32>,
    pub(crate) ledger: Ledger,
    pub(crate) events: Vec<EventRecord>,
    pub(crate) next_event: u8,
    pub(crate) metadata: Vec<MetadataRow>,
    pub(crate) launched: Vec<Launched>,
    pub(crate) next_step: u32,
    pub(crate) concluded: VecDeque<(Room, crate::effect::Status)>,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) spare: pages::Spare,
    pub(crate) touched: Touched,
    /// Requests in state `Queued`.
    pub(crate) queued: u32,
    /// Set where the queue should be looked at before the input is done.
    pub(crate) woken: bool,
    pub(crate) progress: u32,
}

// Methods, by kind. Getters: `config`, `accounts`, `queued`, `state_of`, `live_life`. Inputs: `handle`. Outputs: `poll_effect`, `recycle`,
// `recycle_pages`, `take_touched`.
impl Manager {
    /// A manager with all pages free.
    pub fn new(config: Config) -> Manager {
        let rules = config.rules;
        let evict = Rule::EvictSkipsLeased;
        let evict_leased = [!rules.has(evict.at(Site::Device)), !rules.has(evict.at(Site::Host))];
        Manager {
            life: PeerLife(0),
            pools: [
                Pool::new(Tier::DEVICE, config.device_pages, config.order),
                Pool::new(Tier::HOST, config.host_pages, config.order),
            ],
            tree: Tree::new(evict_leased),
            requests: Vec::new(),
            by_id: Map::default(),
            by_room: Map::default(),
            order: Vec::new(),
            ledger: Ledger::default(),
            events: alloc::vec![EventRecord::default(); usize::from(config.event_slots.max(1))],
            next_event: 0,
            metadata: alloc::vec![MetadataRow::default(); config.metadata_slots as usize],
            launched: Vec::new(),
            next_step: 0,
            concluded: VecDeque::new(),
            effects: VecDeque::new(),
            spare: pages::Spare::default(),
            touched: Touched::default(),
            queued: 0,
            woken: false,
            progress: 0,
            config: Arc::new(config),
        }
    }

    /// What it was built from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes one input.
    ///
    /// # Errors
    /// A [`Rejected`] input has changed nothing.
    ///
    /// # Panics
    /// If effects of the input before have not been drained, or on a defect of the manager itself.
    pub fn handle(&mut self, input: Input<'_>) -> Result<(), Rejected> {
        assert!(self.effects.is_empty(), "drain the effects of one input before the next");
        self.woken = false;
        match input {
            Input::Submit(submit) => self.submit(&submit)?,
            Input::Abort { request } => self.abort(request)?,
            Input::Finish { request, output } => self.finish(request, output)?,
            Input::Preempt { request } => self.preempt(request)?,
            Input::Submitted { .. } => {}
            Input::SubmitFailed { transfer } => self.submit_failed(transfer),
            Input::LayerReady { transfer, layer } => self.layer_ready(transfer, layer),
            Input::Completed { transfer, part, outcome } => self.completed(transfer, part, outcome),
            Input::StepDone { step } => self.step_done(step),
            Input::Peer { message, .. } => self.peer(message),
            Input::Metadata { slot, room } => self.metadata_landed(slot, room),
            Input::Deadline { timer } => self.deadline(timer, false),
            Input::Polled { timer } => self.deadline(timer, true),
            Input::Flush => self.flush(),
        }
        if self.woken {
            self.schedule();
        }
        Ok(())
    }

    /// The next effect of the last input.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Gives the lists of a drained effect back, so that the next one needs no allocation.
    pub fn recycle(&mut self, effect: Effect) {
        self.spare.keep(effect);
    }

    /// Gives a list of pages back that was kept beyond its effect.
    pub fn recycle_pages(&mut self, pages: PageList) {
        self.spare.keep_table(pages);
    }

    /// What was reached since the last call.
    pub fn take_touched(&mut self) -> Touched {
        let mut touched = core::mem::take(&mut self.touched);
        for pool in &mut self.pools {
            touched.slot_cells |= core::mem::take(&mut pool.cells);
        }
        touched
    }

    /// Where a request stands.
    pub fn state_of(&self, request: RequestId) -> Option<RequestState> {
        let index = *self.by_id.get(&request.0)?;
        Some(self.requests[index as usize].state)
    }

    /// Requests that hold nothing and wait for pages.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// The life of a request whose results are still wanted: it has not ended for its client.
    pub fn live_life(&self, request: RequestId) -> Option<crate::ids::Life> {
        let index = *self.by_id.get(&request.0)?;
        let request = &self.requests[index as usize];
        (!request.answered && request.state != RequestState::Ended).then_some(request.life)
    }

    /// How pages and records add up. Walks everything: for checks, not for a hot path.
    pub fn accounts(&self) -> Accounts {
        let mut accounts = Accounts::default();
        for (t, pool) in self.pools.iter().enumerate() {
            for page in 0..pool.pages() {
                accounts.pages[t][pool.slot(crate::ids::PageId(page)).state as usize] += 1;
            }
            accounts.free_listed[t] = pool.free_pages();
        }
        for (_, node) in self.tree.live() {
            accounts.leases += node.lease_count();
            for t in 0..2 {
                let tier = Tier(t as u8);
                if node.linked && node.is(tier, crate::tree::Residence::Resident) && !node.held_in(tier) {
                    accounts.cached[t] += node.pages[t].len() as u32;
                }
            }
        }
        accounts.transfers = self.ledger.live() as u32;
        accounts.metadata_rows = self.metadata.iter().filter(|row| row.owner != NIL).count() as u32;
        accounts.event_slots = self.events.iter().filter(|event| event.busy != NIL).count() as u32;
        accounts.requests = self.order.len() as u32;
        accounts
    }

    fn submit(&mut self, submit: &Submit<'_>) -> Result<(), Rejected> {
        let config = &self.config;
        if submit.room.is_some() == (config.role == Role::Together) {
            return Err(Rejected::RoomMismatch(submit.request));
        }
        let page_tokens = u32::from(config.geometry.page_tokens);
        let output_tokens = if config.role == Role::Prefill { 0 } else { submit.output_tokens };
        let prompt_tokens = submit.blocks.len() as u32 * page_tokens + submit.tail_tokens;
        let needed = (prompt_tokens + output_tokens).div_ceil(page_tokens).max(1);
        if needed > config.device_pages {
            return Err(Rejected::TooLarge { needed, pages: config.device_pages });
        }
        let index = match self.by_id.get(&submit.request.0) {
            Some(&index) if self.requests[index as usize].state == RequestState::Ended => index,
            Some(_) => return Err(Rejected::DuplicateRequest(submit.request)),
            None => {
                self.requests.push(Request::new(submit.request));
                self.by_id.insert(submit.request.0, self.requests.len() as u32 - 1);
                self.requests.len() as u32 - 1
            }
        };
        let request = &mut self.requests[index as usize];
        self.spare.refs.keep(core::mem::take(&mut request.released));
        self.spare.blocks.reserve(&mut request.blocks, submit.blocks.len());
        request.begin(submit, prompt_tokens, output_tokens, needed);
        if let Some(room) = submit.room {
            self.by_room.insert(room.0, index);
        }
        let event = if config.role == Role::Prefill { RequestEvent::SubmitForPeer } else { RequestEvent::Submit };
        self.apply(index, event);
        let lower = |&other: &u32| self.requests[other as usize].priority < submit.priority;
        let place = if submit.priority == 0 { None } else { self.order.iter().position(lower) };
        self.order.insert(place.unwrap_or(self.order.len()), index);
        if submit.room.is_some_and(|room| self.concluded_as(room).is_some()) {
            // The peer asked before the request came, was told that nothing will be sent, and has let go of its pages.
            self.answer(index, Ending::Failed(crate::effect::Failure::Peer));
            self.end(index);
        }
        self.woken = true;
        Ok(())
    }

    fn find(&self, request: RequestId) -> Result<u32, Rejected> {
        self.by_id.get(&request.0).copied().ok_or(Rejected::UnknownRequest(request))
    }

    fn deadline(&mut self, timer: Timer, polled: bool) {
        if self.config.role == Role::Decode {
            self.decode_deadline(timer, polled);
        }
    }

    /// Moves a request by the table; false where the event means nothing there.
    fn apply(&mut self, index: u32, event: RequestEvent) -> bool {
        let request = &mut self.requests[index as usize];
        let before = request.state;
        self.touched.request_cells[before as usize] |= 1 << event as u16;
        let after = match next(before, event) {
            Next::To(state) => state,
            Next::Stay(_) => return false,
            Next::Refused(rule) => panic!("{} refuses {event:?} in {before:?}", rule.name()),
            Next::Never(why) => {
                assert!(self.config.rules != RuleSet::ALL, "{event:?} in {before:?}: {why}");
                event.target()
            }
        };
        request.state = after;
        self.queued -= u32::from(before == RequestState::Queued);
        self.queued += u32::from(after == RequestState::Queued);
        true
    }

    fn keeps(&self, at: RuleSite) -> bool {
        self.config.rules.has(at)
    }

    /// Notes that a rule held something back.
    fn held(&mut self, at: RuleSite) {
        self.touched.held = self.touched.held.with(at);
    }

    /// Looks at the queue again because something has completed, unless the rule is dropped.
    fn wake(&mut self, site: Site) {
        let at = Rule::WakeOnCompletion.at(site);
        if !self.keeps(at) {
            return;
        }
        let before = self.progress;
        self.schedule();
        if self.progress != before {
            self.held(at);
        }
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    fn answer(&mut self, index: u32, ending: Ending) {
        let request = &mut self.requests[index as usize];
        if !core::mem::replace(&mut request.answered, true) {
            let answer = Answer { request: request.id, life: request.life, ending };
            self.emit(Effect::Answer(answer));
        }
    }

    /// The last step that was launched and has not been processed.
    fn last_launched(&self) -> Option<StepId> {
        self.launched.last().map(|launched| launched.step)
    }
}
