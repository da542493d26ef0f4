//! Sessions, their requests, and when each of them may ask.

use std::collections::VecDeque;

use kvweft_core::{BlockHash, Ending, Input, RequestId, Room, Submit};

use crate::memory::{Tag, tag};
use crate::prompts::{Chain, Cut};
use crate::reads::Watch;
use crate::settings::Arrival;
use crate::simulation::{Event, Simulation};
use crate::timeline::{self, Seen};
use crate::workload::{Workload, mix};

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Corrupt,
    Stuck,
    Timeout,
    Error,
    Left,
}

impl From<Option<Class>> for timeline::Class {
    fn from(class: Option<Class>) -> timeline::Class {
        match class {
            None => timeline::Class::Ok,
            Some(Class::Corrupt) => timeline::Class::Corrupt,
            Some(Class::Stuck) => timeline::Class::Stuck,
            Some(Class::Timeout) => timeline::Class::Timeout,
            Some(Class::Error) => timeline::Class::Error,
            Some(Class::Left) => timeline::Class::Left,
        }
    }
}

/// A session that has begun.
#[derive(Clone, Debug)]
struct Running {
    session: u32,
    chains: Vec<Chain>,
    /// By request: what it still waits for, and the earliest time.
    needs: Vec<u32>,
    ready: Vec<u64>,
    /// Requests that were asked and have not ended, and those that are planned.
    open: u32,
    asked: u32,
    class: Option<Class>,
    over: bool,
}

/// A request that was asked and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The session that runs, and the request in the workload.
    running: u32,
    request: u32,
    serial: u64,
    since: u64,
    first: Option<u64>,
    /// Blocks of the prompt that are handed over, and those that lie wholly in it.
    blocks: usize,
    full: usize,
    chain: u32,
    /// Its prompt, where it has ended for its client and an engine goes on.
    own: Option<Vec<BlockHash>>,
    /// Blocks that the answer completes.
    answer: Vec<BlockHash>,
    pub(crate) prompt_tokens: u32,
    /// Tokens of the answer that are put into the cache.
    pub(crate) decoded: u32,
    pub(crate) watch: [Watch; 2],
    pub(crate) corrupt: bool,
    pub(crate) cached_known: bool,
    /// Tokens that a reload of its own brings.
    pub(crate) reloaded: u32,
    submitted: bool,
    given_up: Option<Class>,
    in_use: bool,
    /// Engines that have not said how it ended there.
    answers_owed: u8,
}

impl Open {
    /// Whether an engine may still do something for it.
    fn is_known(&self) -> bool {
        self.in_use || self.answers_owed != 0
    }

    fn seen(&self, now: u64, class: timeline::Class) -> Seen {
        Seen { asked_ns: self.since, waited_ns: self.first.unwrap_or(now) - self.since, class }
    }
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    running: Vec<Running>,
    unused_running: Vec<u32>,
    open: Vec<Open>,
    /// Names that can be used again.
    unused: VecDeque<u32>,
    /// Requests before the engines.
    waiting: VecDeque<u32>,
    next_session: usize,
    serial: u64,
    pub(crate) in_flight: u64,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients {
            running: Vec::new(),
            unused_running: Vec::new(),
            open: Vec::new(),
            unused: VecDeque::new(),
            waiting: VecDeque::new(),
            next_session: 0,
            serial: 0,
            in_flight: 0,
        }
    }

    pub(crate) fn open(&self, request: RequestId) -> &Open {
        &self.open[request.0 as usize]
    }

    pub(crate) fn open_mut(&mut self, request: u32) -> &mut Open {
        &mut self.open[request as usize]
    }

    /// The names of requests that an engine may know.
    pub(crate) fn in_flight(&self) -> Vec<u32> {
        (0..self.open.len() as u32).filter(|at| self.open[*at as usize].is_known()).collect()
    }

    /// Requests that nobody has answered.
    pub(crate) fn seen_open(&self, now: u64) -> impl Iterator<Item = Seen> + '_ {
        self.open.iter().filter(|open| open.in_use).map(move |open| open.seen(now, timeline::Class::Open))
    }

    /// Whether an engine was told of a request.
    pub(crate) fn is_submitted(&self, request: u32) -> bool {
        self.open[request as usize].submitted
    }

    /// What the page at a position of a request must hold.
    pub(crate) fn expected(&self, request: RequestId, position: usize) -> Tag {
        let open = self.open(request);
        let known = if position >= open.full {
            open.answer.get(position - open.full)
        } else if let Some(own) = &open.own {
            own.get(position)
        } else {
            let chains = &self.running[open.running as usize].chains;
            chains.get(open.chain as usize).and_then(|chain| chain.pages.get(position))
        };
        match known {
            Some(hash) => tag(hash.0 as u64),
            None => tag(mix(open.serial << 24 ^ position as u64)),
        }
    }

    fn add_open(&mut self, open: Open, ended: impl Fn(u32) -> bool) -> u32 {
        match self.unused.iter().take(4).position(|at| ended(*at)) {
            Some(place) => {
                let at = self.unused.remove(place).expect("just found");
                self.open[at as usize] = open;
                at
            }
            None => {
                self.open.push(open);
                self.open.len() as u32 - 1
            }
        }
    }

    /// Sessions that have not begun.
    fn left(&self, workload: &Workload) -> usize {
        workload.sessions.len() - self.next_session
    }
}

impl Simulation<'_> {
    /// The first sessions.
    pub(crate) fn start_clients(&mut self) {
        match self.settings.arrival {
            Arrival::Closed(count) => {
                for _ in 0..count {
                    self.next_session();
                }
            }
            Arrival::Open => self.plan_arrival(),
        }
    }

    fn plan_arrival(&mut self) {
        if let Some(session) = self.workload.sessions.get(self.clients.next_session) {
            self.at(self.now.max(self.began + session.arrival_ns), Event::Arrive);
        }
    }

    pub(crate) fn arrived(&mut self) {
        self.next_session();
        self.plan_arrival();
    }

    fn next_session(&mut self) {
        if self.clients.left(self.workload) == 0 {
            return;
        }
        let number = self.clients.next_session;
        self.clients.next_session += 1;
        let session = &self.workload.sessions[number];
        let requests = &self.workload.requests[session.requests.start as usize..session.requests.end as usize];
        let running = Running {
            session: number as u32,
            chains: vec![Chain::default(); session.chains as usize],
            needs: requests.iter().map(|request| request.needs).collect(),
            ready: requests.iter().map(|request| self.now + request.not_before_ns).collect(),
            open: 0,
            asked: 0,
            class: None,
            over: false,
        };
        let at = match self.clients.unused_running.pop() {
            Some(at) => {
                self.clients.running[at as usize] = running;
                at
            }
            None => {
                self.clients.running.push(running);
                self.clients.running.len() as u32 - 1
            }
        };
        for request in 0..requests.len() as u32 {
            self.plan_if_ready(at, request);
        }
    }

    /// Plans a request that waits for nothing any more.
    fn plan_if_ready(&mut self, running: u32, request: u32) {
        let session = &mut self.clients.running[running as usize];
        if session.needs[request as usize] == 0 && !session.over {
            session.open += 1;
            let time = session.ready[request as usize].max(self.now);
            self.at(time, Event::Ask { running, request });
        }
    }

    /// Lets the requests go on that wait for this one to be sent, or to end.
    fn follow(&mut self, running: u32, request: u32, on_dispatch: bool) {
        let session = &self.workload.sessions[self.clients.running[running as usize].session as usize];
        let entry = &self.workload.requests[(session.requests.start + request) as usize];
        for edge in &self.workload.edges[entry.edges.start as usize..entry.edges.end as usize] {
            if edge.on_dispatch == on_dispatch {
                let delay = if self.settings.think { edge.delay_ns } else { 0 };
                let state = &mut self.clients.running[running as usize];
                state.needs[edge.to as usize] -= 1;
                let ready = &mut state.ready[edge.to as usize];
                *ready = (*ready).max(self.now + delay);
                self.plan_if_ready(running, edge.to);
            }
        }
    }

    /// A request is asked.
    pub(crate) fn ask(&mut self, running: u32, request: u32) {
        let state = &mut self.clients.running[running as usize];
        if state.over {
            state.open -= 1;
            self.end_session_if_over(running);
            return;
        }
        state.asked += 1;
        let session = &self.workload.sessions[state.session as usize];
        let entry = &self.workload.requests[(session.requests.start + request) as usize];
        let page_tokens = self.page_tokens;
        let cut = Cut::new(self.workload.block_tokens, page_tokens);
        let full = (entry.input_tokens / page_tokens) as usize;
        let chain = &mut state.chains[entry.chain as usize];
        chain.advance(self.workload, session.scope, entry, cut);
        let answer = chain.answer(session.scope, entry, cut, full);
        self.clients.serial += 1;
        let open = Open {
            running,
            request,
            serial: self.clients.serial,
            since: self.now,
            first: None,
            // The last token is always computed, so that there is something to sample the answer from.
            blocks: ((entry.input_tokens - 1) / page_tokens) as usize,
            full,
            chain: entry.chain,
            own: None,
            answer,
            prompt_tokens: entry.input_tokens,
            // The first token comes out of the prompt, and the last one is never read.
            decoded: entry.output_tokens.saturating_sub(1),
            watch: Default::default(),
            corrupt: false,
            cached_known: false,
            reloaded: 0,
            submitted: false,
            given_up: None,
            in_use: true,
            answers_owed: 0,
        };
        let engines = &self.engines;
        let ended = |at: u32| {
            let state = |e: &crate::engine::Engine| e.manager.state_of(RequestId(at));
            engines.iter().all(|e| state(e).is_none_or(|s| s == kvweft_core::machine::request::RequestState::Ended))
        };
        let serial = open.serial;
        let at = self.clients.add_open(open, ended);
        self.clients.in_flight += 1;
        self.report.requests.open_peak = self.report.requests.open_peak.max(self.clients.in_flight);
        self.report.requests.submitted += 1;
        if self.settings.timeout_ns > 0 {
            self.at(self.now + self.settings.timeout_ns, Event::GiveUp { request: at, serial });
        }
        if let Some(time) = self.leaves_at() {
            self.at(time, Event::Leave { request: at, serial });
        }
        self.clients.waiting.push_back(at);
        self.feed();
        self.follow(running, request, true);
    }

    /// Hands requests to the engines while the manager's own queue is short.
    pub(crate) fn feed(&mut self) {
        let front = self.engines.len() - 1;
        while self.engines[front].manager.queued() < self.settings.queue_max {
            let Some(at) = self.clients.waiting.pop_front() else { return };
            self.submit(at);
        }
    }

    fn submit(&mut self, at: u32) {
        let open = &mut self.clients.open[at as usize];
        open.submitted = true;
        let (running, chain, blocks, serial) = (open.running, open.chain, open.blocks, open.serial);
        let tail_tokens = open.prompt_tokens - blocks as u32 * self.page_tokens;
        let output_tokens = open.decoded;
        let room = self.settings.split.then_some(Room(serial as u32));
        let hashes = std::mem::take(&mut self.clients.running[running as usize].chains[chain as usize].pages);
        let mut refused = false;
        // Prefill first: decode asks prefill for it at once.
        for e in 0..self.engines.len() {
            let request = RequestId(at);
            let submit = Submit { request, room, blocks: &hashes[..blocks], tail_tokens, output_tokens, priority: 0 };
            if !self.input(e, Input::Submit(submit)) {
                for taken in 0..e {
                    self.input(taken, Input::Abort { request });
                }
                refused = true;
                break;
            }
            self.clients.open[at as usize].answers_owed |= 1 << e;
        }
        self.clients.running[running as usize].chains[chain as usize].pages = hashes;
        if refused {
            self.report.requests.rejected += 1;
            self.clients.open[at as usize].answers_owed = 0;
            self.request_ended(at, Some(Class::Error));
        }
    }

    /// The client of a request goes away.
    pub(crate) fn give_up(&mut self, at: u32, serial: u64, why: Class) {
        let open = &self.clients.open[at as usize];
        if open.serial != serial || !open.in_use {
            return;
        }
        self.report.requests.aborted += 1;
        self.report.faults.clients_left += u64::from(why == Class::Left);
        if !open.submitted {
            self.clients.waiting.retain(|other| *other != at);
            self.request_ended(at, Some(why));
            return;
        }
        let hopeless = self.waits_in_vain(at);
        self.clients.open[at as usize].given_up = Some(if hopeless { Class::Stuck } else { why });
        let front = self.engines.len() - 1;
        self.unwatch(front, at);
        self.input(front, Input::Abort { request: RequestId(at) });
    }

    /// The first token of a request is there.
    pub(crate) fn first_token(&mut self, at: u32) {
        let open = &mut self.clients.open[at as usize];
        if open.first.is_none() {
            open.first = Some(self.now);
            self.first_token.push(self.now - open.since);
        }
    }

    /// Every token of the answer is there.
    pub(crate) fn finish(&mut self, at: u32) {
        let front = self.engines.len() - 1;
        let open = &self.clients.open[at as usize];
        let in_cache = ((open.prompt_tokens + open.decoded) / self.page_tokens) as usize;
        let session = &self.clients.running[open.running as usize];
        let prompt = session.chains[open.chain as usize].pages.get(open.blocks..open.full).unwrap_or_default();
        let known = prompt.iter().chain(&open.answer).copied();
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        output.extend(known.take(in_cache.saturating_sub(open.blocks)));
        self.unwatch(front, at);
        self.input(front, Input::Finish { request: RequestId(at), output: &output });
        self.output = output;
    }

    /// An engine has ended a request for its client.
    pub(crate) fn answered(&mut self, e: usize, at: u32, ending: Ending) {
        let front = self.engines.len() - 1;
        self.unwatch(e, at);
        let open = &mut self.clients.open[at as usize];
        open.answers_owed &= !(1 << e);
        if e != front || !open.in_use {
            return;
        }
        let class = match ending {
            Ending::Finished if open.corrupt => Some(Class::Corrupt),
            Ending::Finished => None,
            Ending::Aborted => Some(open.given_up.unwrap_or(Class::Timeout)),
            Ending::Timeout => Some(Class::Timeout),
            Ending::Failed(_) => Some(Class::Error),
        };
        match ending {
            Ending::Finished => self.measure(at),
            Ending::Aborted => {}
            Ending::Timeout => self.report.requests.past_deadline += 1,
            Ending::Failed(_) => self.report.requests.failed += 1,
        }
        self.request_ended(at, class);
    }

    fn measure(&mut self, at: u32) {
        let open = &self.clients.open[at as usize];
        let first = open.first.unwrap_or(self.now);
        self.end_to_end.push(self.now - open.since);
        if open.decoded > 0 {
            self.per_token.push((self.now - first) / u64::from(open.decoded));
        }
        let session = &self.workload.sessions[self.clients.running[open.running as usize].session as usize];
        let entry = &self.workload.requests[(session.requests.start + open.request) as usize];
        self.report.tokens.output += u64::from(entry.output_tokens);
        self.report.requests.finished += 1;
        self.report.answered_ns = self.now;
    }

    /// Every client goes away for good, whatever it waits for.
    pub(crate) fn all_leave(&mut self) {
        self.clients.next_session = self.workload.sessions.len();
        for session in &mut self.clients.running {
            session.over = true;
        }
        self.clients.waiting.clear();
        for at in self.clients.in_flight() {
            if self.clients.open[at as usize].in_use {
                self.request_ended(at, Some(Class::Error));
            }
        }
    }

    /// Whether no session runs.
    pub(crate) fn nobody_is_there(&self) -> bool {
        self.clients.running.len() == self.clients.unused_running.len()
    }

    /// Nobody has asked for anything yet.
    pub(crate) fn rewind(&mut self) {
        self.clients.next_session = 0;
    }

    /// A request has ended for its client; what follows it is planned.
    fn request_ended(&mut self, at: u32, class: Option<Class>) {
        let open = &mut self.clients.open[at as usize];
        if let Some(timeline) = &mut self.timeline {
            timeline.requests.push(open.seen(self.now, class.into()));
        }
        open.in_use = false;
        if open.answers_owed != 0 {
            open.own = self.clients.running[open.running as usize]
                .chains
                .get(open.chain as usize)
                .map(|chain| chain.pages.clone());
        }
        let (running, request) = (open.running, open.request);
        self.clients.unused.push_back(at);
        self.clients.in_flight -= 1;
        self.ended += 1;
        let state = &mut self.clients.running[running as usize];
        state.open -= 1;
        if class.is_some() && state.class.is_none() {
            state.class = class;
            state.over = true;
        }
        if class.is_none() {
            self.follow(running, request, false);
        }
        self.end_session_if_over(running);
    }

    fn end_session_if_over(&mut self, running: u32) {
        let state = &mut self.clients.running[running as usize];
        if state.open > 0 {
            return;
        }
        let sessions = &mut self.report.sessions;
        *match state.class {
            None => &mut sessions.ok,
            Some(Class::Corrupt) => &mut sessions.corrupt,
            Some(Class::Stuck) => &mut sessions.stuck,
            Some(Class::Timeout) => &mut sessions.timeout,
            Some(Class::Error) => &mut sessions.error,
            Some(Class::Left) => &mut sessions.left,
        } += 1;
        self.report.requests.not_asked += state.needs.len() as u64 - u64::from(state.asked);
        state.chains = Vec::new();
        self.clients.unused_running.push(running);
        if let Arrival::Closed(_) = self.settings.arrival {
            self.next_session();
        }
    }
}
