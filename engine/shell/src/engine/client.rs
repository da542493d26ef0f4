//! What clients do: submit, wait, abort; and what is known of each request.

use kvweft_core::machine::request::RequestState;
use kvweft_core::{BlockHash, Ending, Input, Rejected, RequestId, Role, Room, Submit, Timer};

use super::{Core, Engine};
use crate::model::{Model, Token};
use crate::platform::Platform;

/// A request as a client hands it over.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The client's name for it.
    pub request: RequestId,
    /// The hand-over, where prefill and decode are apart.
    pub room: Option<Room>,
    /// The prompt.
    pub prompt: Vec<Token>,
    /// The hash of every full page of the prompt; where the answer is sampled, of those that end before its last token, since
    /// a prompt that is all in the cache leaves nothing to sample from.
    pub blocks: Vec<BlockHash>,
    /// The answer that is fed in, in place of what the model samples.
    pub forced: Option<Forced>,
    /// At most so many tokens are generated, in the manager's unit.
    pub output_tokens: u32,
    /// Requests of a higher priority are considered first.
    pub priority: u8,
}

/// An answer that is known before it is computed, as in a scenario.
#[derive(Clone, Debug)]
pub struct Forced {
    /// Its tokens: whole pages.
    pub tokens: Vec<Token>,
    /// The hash of every page.
    pub blocks: Vec<BlockHash>,
}

/// What is known of a request.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// The prompt, and behind it the answer as far as it is known.
    pub(crate) tokens: Vec<Token>,
    pub(crate) prompt: usize,
    /// The hashes of the full pages of the prompt.
    pub(crate) prompt_blocks: Vec<BlockHash>,
    /// The hashes of the answer's pages, where the answer is fed in.
    pub(crate) forced: Option<Vec<BlockHash>>,
    /// Bytes of the answer that a prefill step has sampled.
    pub(crate) draft: Vec<u8>,
    /// The first of them, where it came from the peer.
    first: Option<u8>,
    pub(crate) answer: Vec<u8>,
    /// Tokens in the manager's unit when everything is computed.
    pub(crate) tokens_max: u32,
    /// Whether a step of it was launched before.
    pub(crate) computed: bool,
    pub(crate) ending: Option<Ending>,
    pub(crate) submitted_us: u64,
    pub(crate) first_us: Option<u64>,
    pub(crate) ended_us: u64,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why.
    pub ending: Ending,
    /// The bytes of its answer.
    pub answer: Vec<u8>,
    /// The answer as the prefill step foresaw it.
    pub draft: Vec<u8>,
    /// From submission to the first byte of the answer, in microseconds.
    pub first_us: Option<u64>,
    /// From submission to the end, in microseconds.
    pub total_us: u64,
}

impl Sequence {
    fn new(submission: &Submission, role: Role, unit: usize, now_us: u64) -> Sequence {
        let output_tokens = if role == Role::Prefill { 0 } else { submission.output_tokens };
        let mut tokens = submission.prompt.clone();
        tokens.extend(submission.forced.iter().flat_map(|forced| &forced.tokens));
        Sequence {
            tokens,
            prompt: submission.prompt.len(),
            prompt_blocks: submission.blocks.clone(),
            forced: submission.forced.as_ref().map(|forced| forced.blocks.clone()),
            draft: Vec::new(),
            first: None,
            answer: Vec::new(),
            tokens_max: (submission.prompt.len() / unit) as u32 + output_tokens,
            computed: false,
            ending: None,
            submitted_us: now_us,
            first_us: None,
            ended_us: 0,
        }
    }

    /// A step has sampled bytes of the answer, with so many tokens computed by now.
    pub(crate) fn sampled(&mut self, first: usize, bytes: &[u8], computed: usize, now_us: u64) {
        if self.forced.is_some() || computed == self.prompt {
            // What the peer has sampled of the answer to the prompt stays its first byte.
            let first = self.first.filter(|_| computed == self.prompt);
            self.drafted(first, bytes, now_us);
        } else if computed > self.prompt {
            self.extend(first, bytes);
        }
    }

    /// The prompt is computed, and with it the whole answer is foreseen. Its first byte counts.
    fn drafted(&mut self, first: Option<u8>, bytes: &[u8], now_us: u64) {
        let Some(&sampled) = bytes.first() else { return };
        self.first_us.get_or_insert(now_us);
        self.draft = bytes.to_vec();
        self.draft[0] = first.unwrap_or(sampled);
        if self.forced.is_none() {
            self.extend(0, &[sampled]);
        }
    }

    /// The cache has arrived from the peer, with what it has sampled.
    pub(crate) fn arrived(&mut self, draft: &[u8], now_us: u64) {
        self.drafted(None, draft, now_us);
        self.first = draft.first().copied();
    }

    /// Takes bytes that follow on what is there. A byte that is sampled again changes nothing.
    fn extend(&mut self, first: usize, bytes: &[u8]) {
        for (at, &byte) in (first..).zip(bytes) {
            if at == self.answer.len() {
                self.answer.push(byte);
                self.tokens.push(Token::from(byte));
            }
        }
    }

    pub(crate) fn end(&mut self, ending: Ending, now_us: u64) {
        if self.ending.is_none() {
            self.ending = Some(ending);
            self.ended_us = now_us;
        }
    }

    fn ended(&self, ending: Ending) -> Ended {
        Ended {
            ending,
            answer: self.answer.clone(),
            draft: self.draft.clone(),
            first_us: self.first_us.map(|first| first.saturating_sub(self.submitted_us)),
            total_us: self.ended_us.saturating_sub(self.submitted_us),
        }
    }
}

impl<P: Platform, M: Model> Engine<P, M> {
    /// Hands a request over.
    ///
    /// # Errors
    /// Why the manager refused it; nothing has changed then.
    pub fn submit(&self, submission: &Submission) -> Result<(), Rejected> {
        let in_blocks = submission.blocks.len() * self.page_tokens;
        let tail_tokens = (submission.prompt.len().saturating_sub(in_blocks) / self.unit) as u32;
        let input = Input::Submit(Submit {
            request: submission.request,
            room: submission.room,
            blocks: &submission.blocks,
            tail_tokens,
            output_tokens: submission.output_tokens,
            priority: submission.priority,
        });
        let mut core = self.lock();
        let fresh = Sequence::new(submission, self.role, self.unit, P::now_us());
        // Known before the manager asks for anything that is computed from it; put back if it refuses.
        let before = core.sequences.insert(submission.request.0, fresh);
        let result = self.input(&mut core, input);
        if result.is_err() {
            match before {
                Some(before) => core.sequences.insert(submission.request.0, before),
                None => core.sequences.remove(&submission.request.0),
            };
        }
        result
    }

    /// The client has gone away.
    ///
    /// # Errors
    /// If the request is not known.
    pub fn abort(&self, request: RequestId) -> Result<(), Rejected> {
        let mut core = self.lock();
        self.input(&mut core, Input::Abort { request })
    }

    /// Takes the pages of a running request away.
    ///
    /// # Errors
    /// If it has none that could be taken.
    pub fn preempt(&self, request: RequestId) -> Result<(), Rejected> {
        let mut core = self.lock();
        self.input(&mut core, Input::Preempt { request })
    }

    /// Resets the engine.
    pub fn flush(&self) {
        let mut core = self.lock();
        self.taken(self.input(&mut core, Input::Flush));
    }

    /// A timer has run out. Does nothing if it is not armed.
    pub fn fire(&self, timer: Timer) -> bool {
        let mut core = self.lock();
        self.fire_armed(&mut core, timer)
    }

    fn fire_armed(&self, core: &mut Core, timer: Timer) -> bool {
        let Some(at) = core.timers.iter().position(|(known, _)| *known == timer) else { return false };
        core.timers.remove(at);
        self.taken(self.input(core, Input::Deadline { timer }));
        true
    }

    /// Lets every timer run out that was armed before a moment; how many did.
    pub fn fire_armed_before(&self, moment_us: u64) -> usize {
        let mut core = self.lock();
        let late: Vec<Timer> =
            core.timers.iter().filter(|(_, armed)| *armed < moment_us).map(|(timer, _)| *timer).collect();
        late.into_iter().filter(|&timer| self.fire_armed(&mut core, timer)).count()
    }

    /// Waits until a request has ended.
    ///
    /// # Panics
    /// If it was never submitted.
    pub fn wait_for(&self, request: RequestId) -> Ended {
        let mut core = self.lock();
        loop {
            let sequence = core.sequences.get(&request.0).expect("the request was submitted");
            if let Some(ending) = sequence.ending {
                return sequence.ended(ending);
            }
            core = P::wait(&self.answered, core);
        }
    }

    /// How a request has ended, if it has.
    pub fn ended(&self, request: RequestId) -> Option<Ended> {
        let core = self.lock();
        let sequence = core.sequences.get(&request.0)?;
        sequence.ending.map(|ending| sequence.ended(ending))
    }

    /// Requests whose cache has not arrived from the peer.
    pub fn waiting(&self) -> Vec<RequestId> {
        let core = self.lock();
        let open = core.sequences.iter().filter(|(_, sequence)| sequence.ending.is_none());
        let waiting = |request: &RequestId| core.manager.state_of(*request) == Some(RequestState::Waiting);
        open.map(|(&request, _)| RequestId(request)).filter(waiting).collect()
    }

    /// The answer to a request as the prefill step foresaw it; empty if it has not.
    pub fn draft(&self, request: RequestId) -> Option<Vec<u8>> {
        let core = self.lock();
        core.sequences.get(&request.0).map(|sequence| sequence.draft.clone())
    }

    /// Forgets what is known of a request that has ended.
    pub fn forget(&self, request: RequestId) {
        let mut core = self.lock();
        if core.sequences.get(&request.0).is_some_and(|sequence| sequence.ending.is_some()) {
            core.sequences.remove(&request.0);
        }
    }
}
