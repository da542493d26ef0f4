//! A small engine around a manager at real size: agent sessions that grow turn by turn, one forward stream, and one copy
//! engine in each direction, all in order. Every input of it goes through a [`Probe`], which times it or counts what it
//! allocates.

use std::collections::VecDeque;

use kvweft_core::{BlockHash, Config, Direction, Dtype, Effect, Ending, Geometry, Input, Manager, MoveKind, Outcome};
use kvweft_core::{Part, PartKind, Rank, RequestId, Role, StepId, StepKind, Submit, TransferId};

/// Sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub device_pages: u32,
    pub host_pages: u32,
    pub sessions: u32,
    /// Blocks of a session's context, from its first turn to its last.
    pub blocks: (u32, u32),
    /// Pages that each copy engine moves while one step runs.
    pub pages_per_tick: u32,
}

impl Sizes {
    /// The size that the targets are stated for.
    pub const REAL: Sizes =
        Sizes { device_pages: 100_000, host_pages: 300_000, sessions: 80, blocks: (400, 2_200), pages_per_tick: 400 };
}

/// The kinds of input that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    LayerReady,
    Reloaded,
    Offloaded,
    /// A completion that let a queued request in or launched a step.
    CompletedAndMore,
    SubmitHit,
    SubmitReload,
    /// A prompt of which at most a shared head was known: its own pages have to be found.
    SubmitFresh,
    SubmitQueued,
    DecodeDone,
    PrefillDone,
    Abort,
    Finish,
}

/// What one input did, as far as its effects show it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub effects: u32,
    pub pages_taken: u32,
    pub pages_freed: u32,
    pub pages_reloaded: u32,
    pub launched: u32,
}

/// Looks at every input.
pub trait Probe {
    type Mark;
    fn start(&mut self) -> Self::Mark;
    fn stop(&mut self, mark: Self::Mark) -> u64;
    fn record(&mut self, class: Class, n: u32, cost: u64);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its tool runs; the next turn comes at this tick.
    Away(u64),
    /// Its turn is queued or computed; it is aborted at this tick.
    Busy(u64),
}

#[derive(Debug)]
struct Session {
    /// Never used twice; the blocks of a session are named after it.
    serial: u64,
    context: Vec<BlockHash>,
    blocks_max: u32,
    answer_blocks: u32,
    answer: Vec<BlockHash>,
    turn: u64,
    phase: Phase,
    steps_left: u32,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    transfer: TransferId,
    pages: u32,
    layer: u8,
}

#[derive(Clone, Copy, Debug)]
struct Store {
    transfer: TransferId,
    pages: u32,
}

/// What the effects of one input leave to be done.
#[derive(Debug, Default)]
struct Noted {
    seen: Seen,
    loads: VecDeque<Load>,
    stores: VecDeque<Store>,
    step: Option<StepId>,
    items: Vec<(u32, StepKind)>,
    ended: Vec<(u32, Ending)>,
}

impl Noted {
    fn note(&mut self, effect: &Effect) {
        self.seen.effects += 1;
        match effect {
            Effect::Copy(copy) if copy.direction == Direction::Reload => {
                self.seen.pages_reloaded += copy.pairs.len() as u32;
                self.loads.push_back(Load { transfer: copy.transfer, pages: copy.pairs.len() as u32, layer: 0 });
            }
            Effect::Copy(copy) => {
                self.stores.push_back(Store { transfer: copy.transfer, pages: copy.pairs.len() as u32 });
            }
            Effect::RunStep(run) => {
                self.step = Some(run.step);
                self.items.clear();
                self.items.extend(run.items.iter().map(|item| (item.request.0, item.kind)));
                self.seen.launched += 1;
            }
            Effect::Answer(answer) => self.ended.push((answer.request.0, answer.ending)),
            Effect::Move(moved) => match moved.what {
                MoveKind::Take => self.seen.pages_taken += moved.pages.len() as u32,
                MoveKind::Free => self.seen.pages_freed += moved.pages.len() as u32,
                MoveKind::Publish | MoveKind::Drain => {}
            },
            _ => {}
        }
    }
}

/// The engine.
pub struct Driver {
    pub manager: Manager,
    sizes: Sizes,
    sessions: Vec<Session>,
    noted: Noted,
    tick: u64,
    next_serial: u64,
    random: u64,
    layers: u8,
    done: Vec<(u32, StepKind)>,
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn block(serial: u64, at: u64) -> BlockHash {
    BlockHash(u128::from(mix(serial, at)) << 64 | u128::from(mix(at, serial ^ 0xabcd)))
}

/// Blocks of a system prompt; sessions with one parity share half of it with the others.
const SYSTEM_BLOCKS: u64 = 60;

impl Driver {
    pub fn new(sizes: Sizes) -> Driver {
        let geometry = Geometry::uniform(61, 64, Some(Dtype::Fp8));
        let layers = geometry.layers;
        let mut config = Config::new(Role::Together, geometry, sizes.device_pages, sizes.host_pages);
        config.chunk_pages = 128;
        let mut driver = Driver {
            manager: Manager::new(config),
            sizes,
            sessions: Vec::new(),
            noted: Noted::default(),
            tick: 0,
            next_serial: 1,
            random: 42,
            layers,
            done: Vec::with_capacity(256),
        };
        driver.noted.loads.reserve(1024);
        driver.noted.stores.reserve(4096);
        driver.noted.items.reserve(1024);
        driver.noted.ended.reserve(1024);
        for _ in 0..sizes.sessions {
            let (least, most) = sizes.blocks;
            let blocks = driver.between(least, most);
            let session = driver.fresh_session(blocks);
            driver.sessions.push(session);
        }
        driver
    }

    fn between(&mut self, least: u32, most: u32) -> u32 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        least + ((self.random >> 33) as u32) % (most - least + 1)
    }

    fn fresh_session(&mut self, blocks: u32) -> Session {
        let serial = self.next_serial;
        self.next_serial += 1;
        let blocks_max = self.sizes.blocks.1;
        let mut context = Vec::with_capacity(blocks_max as usize + 64);
        let shared = if serial.is_multiple_of(2) { SYSTEM_BLOCKS } else { SYSTEM_BLOCKS / 2 };
        context.extend((0..u64::from(blocks)).map(|at| block(if at < shared { 0 } else { serial }, at)));
        let answer = Vec::with_capacity(8);
        let away = u64::from(self.between(1, 200));
        let phase = Phase::Away(self.tick + away);
        Session { serial, context, blocks_max, answer_blocks: 1, answer, turn: 0, phase, steps_left: 0 }
    }

    /// One input, all of its effects, and what they leave to do.
    fn input(&mut self, input: Input<'_>, probe: &mut impl Probe) -> (Seen, u64) {
        self.noted.seen = Seen::default();
        let mark = probe.start();
        self.manager.handle(input).expect("the driver asks only for what is possible");
        while let Some(effect) = self.manager.poll_effect() {
            self.noted.note(&effect);
            self.manager.recycle(effect);
        }
        (self.noted.seen, probe.stop(mark))
    }

    /// One forward step, the copies beside it, and what clients do in the meantime.
    pub fn tick(&mut self, probe: &mut impl Probe) {
        self.tick += 1;
        self.clients(probe);
        self.loads(probe);
        self.stores(probe);
        self.step(probe);
        for i in 0..self.noted.ended.len() {
            let (request, _) = self.noted.ended[i];
            self.turn_over(request);
        }
        self.noted.ended.clear();
    }

    fn clients(&mut self, probe: &mut impl Probe) {
        for i in 0..self.sessions.len() {
            match self.sessions[i].phase {
                Phase::Away(until) if until <= self.tick => self.submit(i, probe),
                Phase::Busy(abort) if abort <= self.tick => self.abort(i, probe),
                Phase::Away(_) | Phase::Busy(_) => {}
            }
        }
    }

    fn submit(&mut self, i: usize, probe: &mut impl Probe) {
        let answer_blocks = self.between(1, 2);
        let aborts = self.between(0, 49) == 0;
        let wait = u64::from(self.between(1, 120));
        let abort = if aborts { self.tick + wait } else { u64::MAX };
        let session = &mut self.sessions[i];
        session.phase = Phase::Busy(abort);
        session.answer_blocks = answer_blocks;
        session.steps_left = answer_blocks * 64;
        let blocks = core::mem::take(&mut session.context);
        let submit = Submit {
            request: RequestId(i as u32),
            room: None,
            blocks: &blocks,
            tail_tokens: 17,
            output_tokens: answer_blocks * 64 + 63,
            priority: 0,
        };
        let needed = blocks.len() as u32 + (17 + submit.output_tokens).div_ceil(64);
        let (seen, cost) = self.input(Input::Submit(submit), probe);
        let hit = (needed + seen.pages_reloaded).saturating_sub(seen.pages_taken);
        if seen.pages_reloaded > 0 && seen.launched == 0 {
            probe.record(Class::SubmitReload, hit, cost);
        } else if seen.pages_taken == 0 {
            probe.record(Class::SubmitQueued, blocks.len() as u32, cost);
        } else if seen.launched == 0 && seen.pages_taken > 64 {
            probe.record(Class::SubmitFresh, seen.pages_taken, cost);
        } else if seen.launched == 0 {
            probe.record(Class::SubmitHit, hit, cost);
        }
        self.sessions[i].context = blocks;
    }

    fn abort(&mut self, i: usize, probe: &mut impl Probe) {
        let (seen, cost) = self.input(Input::Abort { request: RequestId(i as u32) }, probe);
        if seen.launched == 0 {
            probe.record(Class::Abort, self.sessions[i].context.len() as u32, cost);
        }
    }

    fn loads(&mut self, probe: &mut impl Probe) {
        let mut budget = i64::from(self.sizes.pages_per_tick) * i64::from(self.layers);
        while budget > 0 {
            let Some(mut load) = self.noted.loads.front().copied() else { return };
            let (transfer, layer) = (load.transfer, load.layer);
            let (_, cost) = self.input(Input::LayerReady { transfer, layer }, probe);
            probe.record(Class::LayerReady, 1, cost);
            budget -= i64::from(load.pages);
            load.layer += 1;
            self.noted.loads[0] = load;
            if load.layer == self.layers {
                self.noted.loads.pop_front();
                self.completed(transfer, load.pages, Class::Reloaded, probe);
            }
        }
    }

    fn stores(&mut self, probe: &mut impl Probe) {
        let mut budget = i64::from(self.sizes.pages_per_tick);
        while budget > 0 {
            let Some(store) = self.noted.stores.pop_front() else { return };
            budget -= i64::from(store.pages);
            self.completed(store.transfer, store.pages, Class::Offloaded, probe);
        }
    }

    fn completed(&mut self, transfer: TransferId, pages: u32, class: Class, probe: &mut impl Probe) {
        let part = Part { rank: Rank(0), kind: PartKind::Whole, handle: 0 };
        let (seen, cost) = self.input(Input::Completed { transfer, part, outcome: Outcome::Done }, probe);
        let more = seen.pages_taken > 0 || seen.launched > 0;
        probe.record(if more { Class::CompletedAndMore } else { class }, pages, cost);
    }

    fn step(&mut self, probe: &mut impl Probe) {
        let Some(step) = self.noted.step.take() else { return };
        core::mem::swap(&mut self.done, &mut self.noted.items);
        let (_, cost) = self.input(Input::StepDone { step }, probe);
        let decodes = self.done.iter().filter(|(_, kind)| *kind == StepKind::Decode).count() as u32;
        let class = if decodes > 0 { Class::DecodeDone } else { Class::PrefillDone };
        probe.record(class, self.done.len() as u32, cost);
        for at in 0..self.done.len() {
            let (request, kind) = self.done[at];
            let session = &mut self.sessions[request as usize];
            if kind == StepKind::Decode && matches!(session.phase, Phase::Busy(_)) {
                session.steps_left = session.steps_left.saturating_sub(1);
                if session.steps_left == 0 {
                    self.finish(request, probe);
                }
            }
        }
    }

    /// The end of an answer was sampled. It may be in the step in flight again; then it ends at the next one.
    fn finish(&mut self, request: u32, probe: &mut impl Probe) {
        use kvweft_core::machine::request::RequestState;
        let state = self.manager.state_of(RequestId(request));
        let session = &mut self.sessions[request as usize];
        if !matches!(state, Some(RequestState::Idle | RequestState::Ready)) {
            session.steps_left = 1;
            return;
        }
        let from = session.context.len() as u64;
        session.answer.clear();
        let (serial, turn) = (session.serial, session.turn);
        let blocks = u64::from(session.answer_blocks);
        session.answer.extend((from..from + blocks).map(|at| block(mix(serial, turn), at)));
        let output = core::mem::take(&mut session.answer);
        let (seen, cost) = self.input(Input::Finish { request: RequestId(request), output: &output }, probe);
        let session = &mut self.sessions[request as usize];
        if seen.launched == 0 {
            probe.record(Class::Finish, session.context.len() as u32, cost);
        }
        session.context.extend_from_slice(&output);
        session.answer = output;
    }

    /// The client reads the answer; its next turn brings the output of a tool.
    fn turn_over(&mut self, request: u32) {
        let i = request as usize;
        let tool_blocks = u64::from(self.between(3, 14));
        let long = self.between(0, 4) == 0;
        let away = u64::from(if long { self.between(200, 1_000) } else { self.between(5, 60) });
        let session = &mut self.sessions[i];
        session.turn += 1;
        session.phase = Phase::Away(self.tick + away);
        let from = session.context.len() as u64;
        let (serial, turn) = (session.serial, session.turn);
        session.context.extend((from..from + tool_blocks).map(|at| block(mix(serial, turn), at)));
        if session.context.len() as u32 > session.blocks_max {
            let (least, most) = self.sizes.blocks;
            let blocks = self.between(least, least + (most - least) / 4);
            self.sessions[i] = self.fresh_session(blocks);
        }
    }
}
