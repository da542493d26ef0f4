//! The driver: carries out operations, lets everything go on, and winds down.

use kvweft_core::machine::request::RequestState;
use kvweft_core::{BlockHash, Input, RequestId, Room};

use crate::operation::{Case, Operation, REQUESTS};
use crate::rig::{Rig, Script};
use crate::shadow::Checked;

/// Something that can go on by itself.
#[derive(Clone, Copy, Debug)]
enum Action {
    Stream(usize, usize),
    Send(usize),
    Report(usize, usize),
    Deliver(usize),
}

/// Kinds of things that go on by themselves: three streams, four queues of reports, sends, two links.
pub const KINDS: u8 = 10;

impl Action {
    fn kind(self) -> usize {
        match self {
            Action::Stream(_, stream) => stream,
            Action::Report(_, source) => 3 + source,
            Action::Send(_) => 7,
            Action::Deliver(link) => 8 + link,
        }
    }
}

/// How far things are let go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// Nothing goes on by itself.
    Quiet,
    /// And complete answers have been ended.
    Answered,
    /// And armed timers have run out.
    Over,
}

/// Runs a case and winds it down; what did not hold, with the operation at which it showed.
pub fn run(case: &Case) -> Checked {
    let mut rig = Rig::new(&case.setup);
    for (at, operation) in case.operations.iter().enumerate() {
        rig.operate(operation).map_err(|what| format!("operation {at}, {operation:?}: {what}"))?;
    }
    rig.wind_down().map_err(|what| format!("winding down: {what}"))
}

fn pick(at: u8, count: usize) -> Option<usize> {
    (count > 0).then(|| usize::from(at) % count)
}

impl Rig {
    /// One operation.
    pub fn operate(&mut self, operation: &Operation) -> Checked {
        let engine = |engine: &u8| usize::from(*engine) % self.engines.len();
        match operation {
            Operation::Submit { request, prompt, tail, output, priority, late } => {
                let script = self.script(prompt, *tail, *output, *priority);
                self.hand_over(RequestId(u32::from(*request)), script, *late)?;
            }
            Operation::SubmitLate(at) => {
                if let Some(at) = pick(*at, self.late.len()) {
                    let (request, script) = self.late.remove(at);
                    self.submit(0, request, &script)?;
                }
            }
            Operation::Abort { engine: e, request } => {
                let (e, request) = (engine(e), RequestId(u32::from(*request)));
                self.input(e, Input::Abort { request })?;
            }
            Operation::Preempt { request } => {
                self.input(0, Input::Preempt { request: RequestId(u32::from(*request)) })?;
            }
            Operation::Finish { request, drop } => self.finish(RequestId(u32::from(*request)), usize::from(*drop))?,
            Operation::Flush { engine: e } => {
                self.input(engine(e), Input::Flush)?;
            }
            Operation::Go(picks) => {
                for &at in picks {
                    let actions = self.actions();
                    if let Some(at) = pick(at, actions.len()) {
                        self.act(actions[at])?;
                    }
                }
            }
            Operation::Settle => self.settle(Until::Quiet, None)?,
            Operation::Round => self.settle(Until::Answered, None)?,
            Operation::RoundWithout(kind) => self.settle(Until::Answered, Some(*kind))?,
            Operation::Fail { engine: e, at } => self.fail(engine(e), *at)?,
            Operation::Refuse { engine: e, at } => {
                let e = engine(e);
                let device = &mut self.engines[e].device;
                let refusable = device.refusable();
                if let Some(at) = pick(*at, refusable.len()) {
                    device.refuse(refusable[at]);
                }
            }
            Operation::Repeat { engine: e, at } => {
                let e = engine(e);
                if let Some(at) = pick(*at, self.engines[e].device.told.len()) {
                    let report = self.engines[e].device.told[at];
                    self.hand_in(e, report)?;
                }
            }
            Operation::Lose { .. } | Operation::Duplicate { .. } | Operation::Swap { .. } => self.disturb(operation),
            Operation::Fire { engine: e, at } => {
                let e = engine(e);
                if let Some(at) = pick(*at, self.engines[e].device.timers.len()) {
                    self.fire(e, at)?;
                }
            }
        }
        Ok(())
    }

    fn disturb(&mut self, operation: &Operation) {
        match operation {
            // Without deadlines nobody would ever miss it.
            Operation::Lose { link } if self.setup.deadlines => {
                self.links[usize::from(*link)].pop_front();
            }
            Operation::Duplicate { link } => {
                let link = &mut self.links[usize::from(*link)];
                if let Some(message) = link.front().cloned() {
                    link.push_back(message);
                }
            }
            Operation::Swap { link } if self.links[usize::from(*link)].len() > 1 => {
                self.links[usize::from(*link)].swap(0, 1);
            }
            _ => {}
        }
    }

    fn script(&mut self, prompt: &[u8], tail: u8, output: u8, priority: u8) -> Script {
        let page_tokens = u32::from(self.setup.page_tokens);
        let (tail, output) = (u32::from(tail) % page_tokens, u32::from(output));
        let prompt_tokens = prompt.len() as u32 * page_tokens + tail;
        let pages = (prompt_tokens + output).div_ceil(page_tokens).max(1) as usize;
        let mut history = Vec::new();
        let mut names = Vec::new();
        for at in 0..pages {
            // Answers use the same alphabet: a later prompt may go on where an answer ended.
            history.push(prompt.get(at).copied().unwrap_or((at as u8 + tail as u8) % 2));
            let fresh = self.names.len() as u32;
            names.push(BlockHash(u128::from(*self.names.entry(history.clone()).or_insert(fresh))));
        }
        Script { names, prompt: prompt.len(), prompt_tokens, tail, output, priority, room: None }
    }

    fn hand_over(&mut self, request: RequestId, mut script: Script, late: bool) -> Checked {
        if !self.setup.split {
            self.submit(0, request, &script)?;
            return Ok(());
        }
        self.last_room += 1;
        script.room = Some(Room(self.last_room));
        if !self.submit(1, request, &script)? {
            return Ok(());
        }
        if late {
            self.late.push((request, script));
        } else {
            self.submit(0, request, &script)?;
        }
        Ok(())
    }

    /// Ends an answer where it stands, with the full blocks that are there.
    fn finish(&mut self, request: RequestId, drop: usize) -> Checked {
        let e = self.engines.len() - 1;
        let engine = &self.engines[e];
        let life = engine.manager.live_life(request);
        let named = life.and_then(|life| Some((life, engine.scripts.get(&(request, life))?)));
        let Some((life, script)) = named else {
            self.input(e, Input::Finish { request, output: &[] })?;
            return Ok(());
        };
        let computed = engine.computed.get(&(request, life)).copied().unwrap_or(0);
        let full = (computed / u32::from(self.setup.page_tokens)) as usize;
        let full = full.saturating_sub(drop).max(script.prompt).min(script.names.len());
        let output = script.names[script.prompt..full].to_vec();
        self.input(e, Input::Finish { request, output: &output })?;
        Ok(())
    }

    fn fail(&mut self, e: usize, at: u8) -> Checked {
        let device = &self.engines[e].device;
        let copies: Vec<usize> = (1..3).filter(|&stream| device.can_go(stream)).collect();
        let sends: Vec<usize> = (0..device.nic.len()).filter(|&at| device.can_send(at)).collect();
        match pick(at, copies.len() + sends.len()) {
            None => Ok(()),
            Some(at) if at < copies.len() => self.fail_copy(e, copies[at]),
            Some(at) => self.fail_send(sends[at - copies.len()]),
        }
    }

    fn fire(&mut self, e: usize, at: usize) -> Checked {
        let timer = self.engines[e].device.timers.remove(at);
        self.input(e, Input::Deadline { timer })?;
        Ok(())
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (e, engine) in self.engines.iter().enumerate() {
            actions
                .extend((0..3).filter(|&stream| engine.device.can_go(stream)).map(|stream| Action::Stream(e, stream)));
            actions.extend(self.ready_reports(e).map(|source| Action::Report(e, source)));
        }
        let device = &self.engines[0].device;
        actions.extend((0..device.nic.len()).filter(|&at| device.can_send(at)).map(Action::Send));
        actions.extend((0..2).filter(|&link| !self.links[link].is_empty()).map(Action::Deliver));
        actions
    }

    fn act(&mut self, action: Action) -> Checked {
        match action {
            Action::Stream(e, stream) => self.go(e, stream),
            Action::Send(at) => self.send(at),
            Action::Report(e, source) => self.report(e, source),
            Action::Deliver(link) => self.deliver(link),
        }
    }

    /// Lets everything go on until nothing can, all but one kind of thing.
    pub fn settle(&mut self, until: Until, without: Option<u8>) -> Checked {
        for turn in 0..20_000usize {
            let mut actions = self.actions();
            actions.retain(|action| without.is_none_or(|kind| action.kind() != usize::from(kind)));
            if !actions.is_empty() {
                self.act(actions[turn * 7 % actions.len()])?;
            } else if !self.nudge(until)? {
                return Ok(());
            }
        }
        Err("there is no end".to_owned())
    }

    /// Ends an answer that is complete, or lets a timer run out. False where there is neither.
    fn nudge(&mut self, until: Until) -> Result<bool, String> {
        let last = self.engines.len() - 1;
        for request in (0..u32::from(REQUESTS)).map(RequestId).filter(|_| until >= Until::Answered) {
            if self.engines[last].manager.state_of(request) == Some(RequestState::Idle) {
                self.finish(request, 0)?;
                return Ok(true);
            }
        }
        for e in (0..self.engines.len()).filter(|_| until == Until::Over) {
            if !self.engines[e].device.timers.is_empty() {
                self.fire(e, 0)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets everything end by itself, then aborts the rest, then resets; after each, what must have come back has.
    pub fn wind_down(&mut self) -> Checked {
        self.settle(Until::Over, None)?;
        for (e, engine) in self.engines.iter().enumerate() {
            for request in (0..u32::from(REQUESTS)).map(RequestId) {
                let state = engine.manager.state_of(request).unwrap_or(RequestState::Ended);
                let unheard = self.setup.split && e == 0 && state == RequestState::Bootstrapping;
                if state != RequestState::Ended && !unheard {
                    return Err(format!("request {} never ends, it is {state:?}", request.0));
                }
            }
            if !engine.device.quiet() {
                return Err(format!("the device of engine {e} is stuck: {:?}", engine.device));
            }
        }
        for e in 0..self.engines.len() {
            for request in (0..u32::from(REQUESTS)).map(RequestId) {
                self.input(e, Input::Abort { request })?;
            }
        }
        self.settle(Until::Over, None)?;
        for e in 0..self.engines.len() {
            self.check_all_returned(e)?;
            self.input(e, Input::Flush)?;
            let accounts = self.engines[e].manager.accounts();
            if (0..2).any(|t| accounts.pages[t][1..].iter().any(|&pages| pages != 0)) {
                return Err(format!("a reset engine still has pages: {accounts:?}"));
            }
        }
        Ok(())
    }

    fn check_all_returned(&self, e: usize) -> Checked {
        let engine = &self.engines[e];
        let accounts = engine.manager.accounts();
        let records =
            [accounts.requests, accounts.transfers, accounts.leases, accounts.event_slots, accounts.metadata_rows];
        let cached = (0..2).all(|t| accounts.pages[t][0] + accounts.cached[t] == accounts.pages[t].iter().sum::<u32>());
        if records != [0; 5] || !cached {
            return Err(format!("engine {e} keeps something: {accounts:?}"));
        }
        if !engine.open.is_empty() {
            return Err(format!("engine {e} never answers {:?}", engine.open));
        }
        Ok(())
    }
}
