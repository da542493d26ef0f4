//! The run: events in the order of their times, and what each leads to.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use kvweft_core::{BlockHash, CopyOp, Direction, Effect, Input, Message, Move, MoveKind, StepItem, StepKind, Timer};

use crate::clients::{Class, Clients};
use crate::engine::Engine;
use crate::memory::{Owner, POISON};
use crate::moves::{Move as Moved, What};
use crate::network::Network;
use crate::profile::Costs;
use crate::random::Random;
use crate::report::{Percentiles, Report};
use crate::settings::{Settings, SettingsError};
use crate::timeline::Timeline;
use crate::workload::Workload;

/// Everything is added up once in so many events.
const CHECK_EVERY: u64 = 1 << 16;

/// A run that only deadlines keep going is given up after so many of them, one after the other.
const DEADLINES_IN_VAIN: u64 = 16;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The forward step of an engine ends.
    StepEnd { engine: u8 },
    /// A layer of the copy under way has landed.
    Layer { engine: u8, which: u8 },
    /// A write reaches the network.
    Posted { moved: u32 },
    /// The write that is done first is done.
    Sent { epoch: u32 },
    /// A message arrives.
    Deliver { engine: u8 },
    /// The next session arrives.
    Arrive,
    /// A request is asked.
    Ask { running: u32, request: u32 },
    /// A client has waited long enough.
    GiveUp { request: u32, serial: u64 },
    /// A client goes away of its own accord.
    Leave { request: u32, serial: u64 },
    /// An engine has waited long enough.
    Deadline { engine: u8, timer: Timer },
}

/// A run.
pub(crate) struct Simulation<'w> {
    pub(crate) workload: &'w Workload,
    pub(crate) settings: Settings,
    pub(crate) costs: Costs,
    pub(crate) page_tokens: u32,
    pub(crate) now: u64,
    /// When the workload at hand began.
    pub(crate) began: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    /// When anything but a deadline or a message happened last.
    moved_at: u64,
    random: Random,
    /// Apart, so that faults change nothing but what they do.
    misfortune: Random,
    pub(crate) engines: Vec<Engine>,
    pub(crate) moves: Vec<Moved>,
    pub(crate) unused_moves: Vec<u32>,
    pub(crate) extents_scratch: u64,
    pub(crate) network: Network,
    /// Messages towards each engine.
    pub(crate) links: [VecDeque<Message>; 2],
    /// Timers that run, each with an engine.
    armed: Vec<(u8, Timer)>,
    pub(crate) clients: Clients,
    effects: Vec<Effect>,
    pub(crate) output: Vec<BlockHash>,
    pub(crate) report: Report,
    pub(crate) first_token: Vec<u64>,
    pub(crate) per_token: Vec<u64>,
    pub(crate) end_to_end: Vec<u64>,
    pub(crate) behind: Vec<u64>,
    pub(crate) ended: u64,
    pub(crate) bytes_begun: u64,
    pub(crate) bytes_ended: u64,
    pub(crate) timeline: Option<Timeline>,
}

/// Plays a workload to its end: until nothing can happen any more.
///
/// # Errors
/// If it cannot begin.
pub fn simulate(workload: &Workload, settings: &Settings) -> Result<Report, SettingsError> {
    settings.check(workload)?;
    let mut run = Simulation::new(workload, settings);
    run.start_clients();
    while run.step() {}
    Ok(run.close())
}

/// The same, and what happened when.
///
/// # Errors
/// If it cannot begin.
pub fn simulate_with_timeline(workload: &Workload, settings: &Settings) -> Result<(Report, Timeline), SettingsError> {
    settings.check(workload)?;
    let mut run = Simulation::new(workload, settings);
    run.timeline = Some(Timeline::new(&run.engines));
    run.start_clients();
    while run.step() {}
    let mut timeline = run.timeline.take().expect("it was put there");
    timeline.advance(run.now + 1, &run.engines);
    timeline.requests.extend(run.clients.seen_open(run.now));
    Ok((run.close(), timeline))
}

impl<'w> Simulation<'w> {
    pub(crate) fn new(workload: &'w Workload, settings: &Settings) -> Simulation<'w> {
        let page_tokens = u32::from(settings.geometry.page_tokens);
        let mut report = Report::default();
        report.sessions.total = workload.sessions() as u64;
        Simulation {
            workload,
            settings: settings.clone(),
            costs: Costs::from(&settings.profile),
            page_tokens,
            now: 0,
            began: 0,
            queue: BinaryHeap::new(),
            planned: 0,
            moved_at: 0,
            random: Random::new(settings.seed),
            misfortune: Random::new(!settings.seed),
            engines: settings.configs().into_iter().map(Engine::new).collect(),
            moves: Vec::new(),
            unused_moves: Vec::new(),
            extents_scratch: 0,
            network: Network::default(),
            links: Default::default(),
            armed: Vec::new(),
            clients: Clients::new(),
            effects: Vec::new(),
            output: Vec::new(),
            report,
            first_token: Vec::new(),
            per_token: Vec::new(),
            end_to_end: Vec::new(),
            behind: Vec::new(),
            ended: 0,
            bytes_begun: 0,
            bytes_ended: 0,
            timeline: None,
        }
    }

    /// Plans an event.
    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.planned += 1;
        self.queue.push(Reverse((time, self.planned, event)));
    }

    /// A duration, a little longer or shorter.
    pub(crate) fn jitter(&mut self, took: u64) -> u64 {
        let by = took / 1000 * self.costs.jitter_permille;
        if by == 0 { took } else { took - by + self.random.below(2 * by + 1) }
    }

    /// Whether a fault that befalls so many of a thousand befalls this one.
    pub(crate) fn strikes(&mut self, permille: u32) -> bool {
        permille > 0 && self.misfortune.below(1000) < u64::from(permille)
    }

    /// When a client goes away of its own accord, if it does.
    pub(crate) fn leaves_at(&mut self) -> Option<u64> {
        let faults = self.settings.faults;
        self.strikes(faults.leave_permille).then(|| self.now + self.misfortune.below(faults.leave_ns + 1))
    }

    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((time, _, event))) = self.queue.pop() else { return false };
        if let Some(timeline) = &mut self.timeline {
            timeline.advance(time, &self.engines);
        }
        self.report.conservation.clock += u64::from(time < self.now);
        self.now = self.now.max(time);
        self.report.events += 1;
        if matches!(event, Event::Deadline { .. }) {
            if self.only_deadlines_help() {
                return false;
            }
        } else if !matches!(event, Event::Deliver { .. }) {
            self.moved_at = self.now;
        }
        self.happen(event);
        self.feed();
        if self.report.events.is_multiple_of(CHECK_EVERY) {
            self.add_up();
        }
        true
    }

    /// Whether nothing but deadlines and what they say has happened for long, and nothing else is planned: an engine asks
    /// its peer again and again, and will for ever.
    fn only_deadlines_help(&self) -> bool {
        let quiet = self.now - self.moved_at > DEADLINES_IN_VAIN * self.settings.deadline_ns;
        quiet && self.queue.iter().all(|Reverse((_, _, event))| matches!(event, Event::Deadline { .. }))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::StepEnd { engine } => self.step_ended(usize::from(engine)),
            Event::Layer { engine, which } => self.layer_landed(usize::from(engine), usize::from(which)),
            Event::Posted { moved } => self.posted(moved),
            Event::Sent { epoch } => self.sent(epoch),
            Event::Deliver { engine } => self.deliver(usize::from(engine)),
            Event::Arrive => self.arrived(),
            Event::Ask { running, request } => self.ask(running, request),
            Event::GiveUp { request, serial } => self.give_up(request, serial, Class::Timeout),
            Event::Leave { request, serial } => self.give_up(request, serial, Class::Left),
            Event::Deadline { engine, timer } => {
                if let Some(at) = self.armed.iter().position(|armed| *armed == (engine, timer)) {
                    self.armed.swap_remove(at);
                    self.input(usize::from(engine), Input::Deadline { timer });
                }
            }
        }
    }

    /// One input, then all its effects; false where it was refused.
    pub(crate) fn input(&mut self, e: usize, input: Input<'_>) -> bool {
        if self.engines[e].manager.handle(input).is_err() {
            return false;
        }
        let mut effects = std::mem::take(&mut self.effects);
        while let Some(effect) = self.engines[e].manager.poll_effect() {
            effects.push(effect);
        }
        // Pages that go back at the end of a request are not read for it any more.
        for effect in &effects {
            if let Effect::Answer(answer) = effect {
                self.unwatch(e, answer.request.0);
            }
        }
        let mut polls = Vec::new();
        for effect in effects.drain(..) {
            if let Effect::Poll(timer) = effect {
                polls.push(timer);
            } else {
                self.effect(e, effect);
            }
        }
        self.effects = effects;
        for timer in polls {
            // Reports are handed in as they come: nothing is queued.
            self.input(e, Input::Polled { timer });
        }
        self.start_streams(e);
        true
    }

    /// Starts whatever is first in its queue and has its fences met.
    pub(crate) fn start_streams(&mut self, e: usize) {
        self.start_forward(e);
        self.start_copy(e, crate::engine::LOAD);
        self.start_copy(e, crate::engine::STORE);
        if !self.network.waiting.is_empty() {
            self.start_sends();
        }
        if !self.unused_moves.is_empty() {
            self.recycle_moves();
        }
    }

    fn effect(&mut self, e: usize, effect: Effect) {
        match effect {
            Effect::Copy(op) => {
                self.note_reload(&op);
                self.queue_copy(e, op);
            }
            Effect::Send(op) => self.queue_send(e, op),
            Effect::RunStep(op) => {
                for item in &op.items {
                    self.note_cached(e, item);
                }
                self.queue_step(e, op);
            }
            Effect::Answer(answer) => self.answered(e, answer.request.0, answer.ending),
            Effect::Message(message) => self.queue_message(e, message),
            Effect::Move(moved) => {
                self.page_moved(e, &moved);
                self.engines[e].manager.recycle(Effect::Move(moved));
            }
            Effect::Wake(wake) => {
                self.first_token(wake.request.0);
                self.engines[e].manager.recycle(Effect::Wake(wake));
            }
            Effect::Arm(timer) => {
                self.armed.push((e as u8, timer));
                self.at(self.now + self.settings.deadline_ns, Event::Deadline { engine: e as u8, timer });
            }
            Effect::Disarm(timer) => self.armed.retain(|armed| *armed != (e as u8, timer)),
            Effect::Poll(_) | Effect::Collective(_) => {}
        }
    }

    fn note_reload(&mut self, op: &CopyOp) {
        if op.direction == Direction::Reload && op.transfer.request.0 != u32::MAX {
            let tokens = op.pairs.len() as u32 * self.page_tokens;
            self.clients.open_mut(op.transfer.request.0).reloaded += tokens;
        }
    }

    /// What a request found in the cache shows where its first step begins.
    fn note_cached(&mut self, e: usize, item: &StepItem) {
        let open = self.clients.open_mut(item.request.0);
        if e > 0 || open.cached_known {
            return;
        }
        open.cached_known = true;
        let host = u64::from(open.reloaded.min(item.first_token));
        self.report.tokens.input += u64::from(open.prompt_tokens);
        self.report.tokens.host_hits += host;
        self.report.lost_races.reloading += u64::from(host > 0);
        self.report.tokens.device_hits += u64::from(item.first_token) - host;
    }

    fn page_moved(&mut self, e: usize, moved: &Move) {
        let mut disturbed = false;
        for block in &moved.pages {
            let tier = &mut self.engines[e].tiers[usize::from(block.tier.0)];
            match moved.what {
                MoveKind::Take => {
                    let before = tier.give(block.page, Owner::Taken);
                    self.report.conservation.pages += u64::from(before != Owner::Free);
                    let page = tier.page_mut(block.page);
                    page.generation = block.generation.0;
                    tier.taken += 1;
                }
                MoveKind::Free => {
                    let before = tier.give(block.page, Owner::Free);
                    self.report.conservation.pages += u64::from(before == Owner::Free);
                    let page = tier.page_mut(block.page);
                    // Whoever still reads it reads what any new owner may have written.
                    page.content = [POISON; 2];
                    page.disturbed |= page.readers > 0;
                    disturbed |= page.watchers > 0;
                    tier.taken = tier.taken.saturating_sub(1);
                }
                MoveKind::Drain => {
                    tier.give(block.page, Owner::Draining);
                }
                MoveKind::Publish => return,
            }
        }
        if disturbed {
            self.disturb(e);
        }
    }

    /// A request's part of a step has ended.
    pub(crate) fn item_ended(&mut self, e: usize, item: &StepItem) {
        let front = self.engines.len() - 1;
        let open = self.clients.open(item.request);
        let end = item.first_token + item.tokens;
        let first = item.kind == StepKind::Prefill && end >= open.prompt_tokens;
        let last = end >= open.prompt_tokens + open.decoded;
        // Most tokens are neither, so that is asked first.
        if !(first || last) || e != front || self.engines[e].manager.live_life(item.request) != Some(item.life) {
            return;
        }
        if first {
            self.first_token(item.request.0);
        }
        if last {
            self.finish(item.request.0);
        }
    }

    pub(crate) fn close(mut self) -> Report {
        self.add_up();
        self.note_stuck();
        self.report.elapsed_ns = self.now - self.began;
        self.report.answered_ns = self.report.answered_ns.saturating_sub(self.began);
        self.report.first_token_ns = Percentiles::of(&mut self.first_token);
        self.report.per_token_ns = Percentiles::of(&mut self.per_token);
        self.report.end_to_end_ns = Percentiles::of(&mut self.end_to_end);
        self.report.lost_races.behind_ns = Percentiles::of(&mut self.behind);
        let sessions = &mut self.report.sessions;
        let over = sessions.ok + sessions.corrupt + sessions.stuck + sessions.timeout + sessions.error + sessions.left;
        sessions.open = sessions.total - over;
        // With nothing left to happen, what is open waits in vain.
        self.report
    }

    /// Whether an operation of this transfer's request is posted or under way on the network.
    pub(crate) fn sends_of(&self, request: u32) -> bool {
        let of = |id: u32| matches!(&self.moves[id as usize].what, What::Send(op) if op.transfer.request.0 == request);
        self.network.writes().any(of)
    }
}

#[cfg(test)]
mod tests {
    use kvweft_core::{BlockRef, Dtype, Generation, Geometry, Group, PageId, Tier};

    use super::*;
    use crate::report::Conservation;
    use crate::workload::Form;

    #[test]
    fn what_does_not_add_up_is_counted() {
        let profile = toml::from_str(include_str!("../../../scenarios/profiles/h200x8.toml")).expect("it is a profile");
        let settings = Settings::new(profile, Geometry::uniform(2, 64, Some(Dtype::Fp8)), 8, 8);
        let asked = r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}"#;
        let workload = Workload::parse(Form::Mooncake, asked).expect("it is a log");
        let seen = |wrong: fn(&mut Simulation<'_>)| {
            let mut run = Simulation::new(&workload, &settings);
            wrong(&mut run);
            run.add_up();
            run.report.conservation
        };
        assert!(seen(|_| ()).holds());
        type Wrong = fn(&mut Simulation<'_>);
        type Count = fn(&Conservation) -> u64;
        let wrongs: [(Wrong, Count); 4] = [
            (|run| run.bytes_begun += 1, |found| found.bytes),
            (|run| run.ended += 1, |found| found.requests),
            (|run| run.engines[0].tiers[1].taken += 1, |found| found.pages),
            (free_again, |found| found.pages),
        ];
        for (at, (wrong, count)) in wrongs.into_iter().enumerate() {
            assert_eq!((count(&seen(wrong)), seen(wrong).holds()), (1, false), "{at}");
        }
    }

    /// A page that nobody has goes back once more.
    fn free_again(run: &mut Simulation<'_>) {
        let page = BlockRef { group: Group(0), tier: Tier::DEVICE, page: PageId(0), generation: Generation(0) };
        run.page_moved(0, &Move { what: MoveKind::Free, pages: vec![page], blocks: Vec::new() });
    }
}
