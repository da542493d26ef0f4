//! One or two managers, their devices and the network between them; every input is followed by every check.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kvweft_core::machine::request::RequestState;
use kvweft_core::{
    BlockHash, Effect, Input, Life, Manager, Message, Rejected, Renamer, RequestId, Room, Submit, Tier, Timer,
};

use crate::device::Device;
use crate::operation::{REQUESTS, Setup};
use crate::shadow::{Checked, Shadow, longest_match};

/// What a client asked for, and what every page of it would be called.
#[derive(Clone, Debug)]
pub struct Script {
    /// Blocks of the prompt, then those of the answer.
    pub names: Vec<BlockHash>,
    /// Full blocks of the prompt.
    pub prompt: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// How it was handed over.
    pub tail: u32,
    /// Tokens of the answer at most.
    pub output: u32,
    /// How urgent.
    pub priority: u8,
    /// The hand-over.
    pub room: Option<Room>,
}

/// One input as it was taken: for comparing two runs.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Which engine.
    pub engine: usize,
    /// The input, as text with raw ids.
    pub input: String,
    /// What it led to.
    pub effects: Result<Vec<Effect>, Rejected>,
    /// The canonical encoding afterwards.
    pub encoding: Vec<u8>,
}

/// One manager with its device and its reference.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The manager.
    pub manager: Manager,
    /// What carries out its effects.
    pub device: Device,
    /// What its pages hold.
    pub shadow: Shadow,
    /// What was asked for, by request and life.
    pub scripts: BTreeMap<(RequestId, Life), Script>,
    /// Requests whose clients wait for an answer.
    pub open: BTreeSet<RequestId>,
    /// Tokens that are known to be there, by request and life.
    pub computed: BTreeMap<(RequestId, Life), u32>,
    /// Blocks that an admission had to find.
    pub expected: BTreeMap<(RequestId, Life), usize>,
    /// Lives that have been launched.
    pub launched: BTreeSet<(RequestId, Life)>,
    /// The room to which a row was promised (decode).
    pub promised: BTreeMap<u32, Room>,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Rig {
    /// The configuration.
    pub setup: Setup,
    /// One engine, or prefill and decode.
    pub engines: Vec<Engine>,
    /// Messages to prefill, to decode.
    pub links: [VecDeque<Message>; 2],
    /// Submissions that the prefill engine has not heard of.
    pub late: Vec<(RequestId, Script)>,
    /// Names of blocks by the symbols that lead to them.
    pub names: BTreeMap<Vec<u8>, u32>,
    /// Items of steps that have ended on the device and whose managers have not been told.
    pub(crate) steps: BTreeMap<(usize, kvweft_core::StepId), Vec<kvweft_core::StepItem>>,
    /// All inputs, if they are wanted.
    pub log: Option<Vec<Taken>>,
    /// The room that was named last.
    pub last_room: u32,
}

/// The canonical encoding of a manager.
pub fn encoding(manager: &Manager) -> Vec<u8> {
    let mut out = Vec::new();
    manager.encode(&mut Renamer::default(), &mut out);
    out
}

impl Rig {
    /// Nothing has happened.
    pub fn new(setup: &Setup) -> Rig {
        let engine = |at: usize| {
            let config = setup.config(at);
            Engine {
                shadow: Shadow::new(config.device_pages, config.host_pages, setup.page_tokens, setup.index_keys),
                manager: Manager::new(config),
                device: Device::new(),
                scripts: BTreeMap::new(),
                open: BTreeSet::new(),
                computed: BTreeMap::new(),
                expected: BTreeMap::new(),
                launched: BTreeSet::new(),
                promised: BTreeMap::new(),
            }
        };
        Rig {
            setup: setup.clone(),
            engines: (0..if setup.split { 2 } else { 1 }).map(engine).collect(),
            links: Default::default(),
            late: Vec::new(),
            names: BTreeMap::new(),
            steps: BTreeMap::new(),
            log: None,
            last_room: 0,
        }
    }

    /// One input, all its effects, all checks. Whether it was taken.
    pub fn input(&mut self, e: usize, input: Input<'_>) -> Result<bool, String> {
        let before = encoding(&self.engines[e].manager);
        let published = self.engines[e].shadow.published();
        let queued: Vec<_> =
            (0..u32::from(REQUESTS)).map(RequestId).filter(|&id| self.is(e, id, RequestState::Queued)).collect();
        let lives: Vec<_> = queued.iter().map(|&id| self.engines[e].manager.live_life(id)).collect();
        let manager = &mut self.engines[e].manager;
        let taken = manager.handle(input);
        let mut effects = Vec::new();
        while let Some(effect) = self.engines[e].manager.poll_effect() {
            effects.push(effect);
        }
        if let Some(log) = &mut self.log {
            let encoding = encoding(&self.engines[e].manager);
            let effects = taken.map(|()| effects.clone());
            log.push(Taken { engine: e, input: format!("{input:?}"), effects, encoding });
        }
        if let Err(rejected) = taken {
            if !effects.is_empty() || encoding(&self.engines[e].manager) != before {
                return Err(format!("{input:?} was rejected ({rejected}) and yet it changed something"));
            }
            return Ok(false);
        }
        self.note_life(e, &input);
        let mut polls = Vec::new();
        for effect in effects {
            if let Effect::Poll(timer) = effect {
                polls.push(timer);
            } else {
                self.effect(e, effect)?;
            }
        }
        self.note_admissions(e, &published, &queued, &lives);
        self.check(e).map_err(|what| format!("after {input:?}: {what}"))?;
        for timer in polls {
            self.poll(e, timer)?;
        }
        Ok(true)
    }

    fn is(&self, e: usize, request: RequestId, state: RequestState) -> bool {
        self.engines[e].manager.state_of(request) == Some(state)
    }

    /// A preemption starts another life of the same submission.
    fn note_life(&mut self, e: usize, input: &Input<'_>) {
        let engine = &mut self.engines[e];
        if let Input::Preempt { request } = input
            && let Some(life) = engine.manager.live_life(*request)
        {
            let script = engine.scripts[&(*request, Life(life.0 - 1))].clone();
            engine.scripts.insert((*request, life), script);
        }
    }

    /// Notes what an admission had to find: blocks that were published before it and still are.
    fn note_admissions(
        &mut self,
        e: usize,
        before: &crate::shadow::Published,
        queued: &[RequestId],
        lives: &[Option<Life>],
    ) {
        if !self.setup.prefix_cache {
            return;
        }
        let engine = &mut self.engines[e];
        let mut still = engine.shadow.published();
        still.retain(|page, _| before.contains_key(page));
        for (&request, &life) in queued.iter().zip(lives) {
            let state = engine.manager.state_of(request);
            let admitted = matches!(state, Some(RequestState::Ready | RequestState::Running));
            if let Some(life) = life.filter(|_| admitted && engine.manager.live_life(request) == life) {
                let script = &engine.scripts[&(request, life)];
                engine.expected.entry((request, life)).or_insert(longest_match(&still, &script.names[..script.prompt]));
            }
        }
    }

    /// A client hands its request over to one engine.
    pub fn submit(&mut self, e: usize, request: RequestId, script: &Script) -> Result<bool, String> {
        let state = self.engines[e].manager.state_of(request);
        let live = state.is_some_and(|state| state != RequestState::Ended);
        let submit = Submit {
            request,
            room: script.room,
            blocks: &script.names[..script.prompt],
            tail_tokens: script.tail,
            output_tokens: script.output,
            priority: script.priority,
        };
        // Written down before, because effects of the submission may speak of it already.
        let next = self.engines[e].scripts.keys().filter(|(id, _)| *id == request).map(|(_, life)| life.0).max();
        let life = Life(next.unwrap_or(0) + 1);
        if !live {
            self.engines[e].scripts.insert((request, life), script.clone());
            self.engines[e].open.insert(request);
        }
        let taken = self.input(e, Input::Submit(submit))?;
        if live && taken {
            return Err(format!("request {} is taken although it has not ended", request.0));
        }
        if !live && !taken {
            self.engines[e].scripts.remove(&(request, life));
            self.engines[e].open.remove(&request);
        }
        Ok(taken)
    }

    fn check(&self, e: usize) -> Checked {
        let engine = &self.engines[e];
        let accounts = engine.manager.accounts();
        for (t, tier) in [Tier::DEVICE, Tier::HOST].into_iter().enumerate() {
            let counts = engine.shadow.counts(tier);
            let [free, reserved, filling, resident, draining] = accounts.pages[t];
            let size = counts.free + counts.taken + counts.draining;
            let balanced = free + reserved + filling + resident + draining == size
                && free == counts.free
                && accounts.free_listed[t] == free
                && draining == counts.draining
                && resident >= counts.published
                && accounts.cached[t] <= counts.published;
            if !balanced {
                return Err(format!("accounts of tier {t} {accounts:?} do not agree with {counts:?}"));
            }
        }
        engine.shadow.check_published()?;
        let owed = engine.device.owed.len() as u32;
        let loads = engine.device.owed.values().filter(|way| **way == kvweft_core::Direction::Reload).count() as u32;
        if accounts.transfers < owed || accounts.event_slots != loads {
            return Err(format!("{owed} copies are owed, {loads} of them reloads: {accounts:?}"));
        }
        let holders = (0..u32::from(REQUESTS)).filter(|&id| {
            use RequestState::{Idle, Ready, Running, Sending, Waiting};
            matches!(engine.manager.state_of(RequestId(id)), Some(Ready | Running | Idle | Sending | Waiting))
        });
        let holders = holders.count() as u32;
        if accounts.leases < holders + owed || accounts.metadata_rows > accounts.requests {
            return Err(format!("{holders} requests and {owed} copies hold pages: {accounts:?}"));
        }
        Ok(())
    }

    fn poll(&mut self, e: usize, timer: Timer) -> Checked {
        loop {
            let next = self.ready_reports(e).next();
            if let Some(source) = next {
                self.report(e, source)?;
            } else if self.setup.split && !self.links[e].is_empty() {
                self.deliver(e)?;
            } else {
                break;
            }
        }
        self.input(e, Input::Polled { timer })?;
        Ok(())
    }

    /// Sources whose next report can be handed in.
    pub fn ready_reports(&self, e: usize) -> impl Iterator<Item = usize> + '_ {
        let device = &self.engines[e].device;
        (0..crate::device::SOURCES).filter(|&source| !device.reports[source].is_empty() && !device.must_wait(source))
    }

    /// A message arrives.
    pub fn deliver(&mut self, link: usize) -> Checked {
        let Some(message) = self.links[link].pop_front() else { return Ok(()) };
        self.input(link, Input::Peer { life: message.life, message: &message })?;
        Ok(())
    }
}
