//! One session: an agent that asks, waits, and looks at the answer.

use std::sync::atomic::Ordering;
use std::time::Instant;

use kvweft_core::{Ending, RequestId, Room};

use super::Shared;
use crate::engine::{Ended, Submission};
use crate::model::Token;
use crate::platform::Platform;
use crate::recall::{Agent, Class, classify, text};

/// Plays a session to its end.
pub(crate) fn play(shared: &Shared<impl Platform>, session: u32) {
    let class = rounds(shared, session);
    let mut measured = shared.measured();
    if let Some(class) = class {
        measured.sessions.count(class);
    }
    measured.sessions_over += 1;
}

/// The first class of an answer that is not right. Nothing if the run was interrupted.
fn rounds(shared: &Shared<impl Platform>, session: u32) -> Option<Class> {
    let mut agent = Agent::new(shared.workload.seed, session, &shared.workload.shape()).aligned(shared.model.align);
    let mut previous: Option<Vec<u8>> = None;
    for _ in 0..shared.workload.rounds {
        let prompt = agent.next_prompt(previous.as_deref());
        let right = shared.model.answer(&prompt);
        let class = ask(shared, prompt, &right);
        if shared.stopping.load(Ordering::Relaxed) {
            return None;
        }
        if class != Class::Ok {
            return Some(class);
        }
        previous = Some(right);
    }
    Some(Class::Ok)
}

fn ask(shared: &Shared<impl Platform>, prompt: Vec<Token>, right: &[u8]) -> Class {
    // The last token is always computed, so that there is something to sample the answer from.
    let mut blocks = shared.model.block_hashes(&prompt);
    blocks.truncate((prompt.len() - 1) / shared.model.page_tokens);
    let request = begin(shared);
    let submission = Submission {
        request,
        room: shared.workload.split.then_some(Room(request.0)),
        prompt,
        blocks,
        forced: None,
        output_tokens: right.len() as u32,
        priority: 0,
    };
    if shared.shell.submit(&submission).is_err() {
        shared.measured().open.retain(|(open, _)| *open != request);
        return Class::Error;
    }
    // Whoever gave it up before the engine knew it could not tell the engine.
    if shared.stopping.load(Ordering::Relaxed) || shared.measured().given_up.contains(&request.0) {
        let _ = shared.shell.abort(request);
    }
    let ended = shared.shell.front().wait_for(request);
    let class = class(shared, request, &ended, right);
    end(shared, request, &ended);
    for engine in shared.shell.engines() {
        engine.forget(request);
    }
    class
}

/// Numbers a request.
fn begin(shared: &Shared<impl Platform>) -> RequestId {
    let mut measured = shared.measured();
    let request = RequestId(measured.next_request);
    measured.next_request += 1;
    measured.requests.submitted += 1;
    measured.open.push((request, Instant::now()));
    request
}

fn class(shared: &Shared<impl Platform>, request: RequestId, ended: &Ended, right: &[u8]) -> Class {
    if shared.measured().given_up.contains(&request.0) {
        return Class::Timeout;
    }
    match ended.ending {
        Ending::Finished => classify(right, text(&ended.answer)),
        Ending::Timeout => Class::Timeout,
        Ending::Aborted | Ending::Failed(_) => Class::Error,
    }
}

fn end(shared: &Shared<impl Platform>, request: RequestId, ended: &Ended) {
    let mut measured = shared.measured();
    measured.open.retain(|(open, _)| *open != request);
    if ended.ending == Ending::Timeout {
        measured.requests.past_deadline += 1;
    }
    if ended.ending != Ending::Finished {
        return;
    }
    measured.requests.finished += 1;
    let bytes = text(&ended.answer).len() as u64;
    measured.generated += bytes;
    if let Some(first_us) = ended.first_us {
        measured.first_us.push(first_us);
        if bytes > 1 {
            measured.per_token_us.push((ended.total_us - first_us) / (bytes - 1));
        }
    }
}
