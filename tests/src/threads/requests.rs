//! Requests, given by the contents of their pages.

use kvweft_core::{BlockHash, Ending, RequestId, Room};
use kvweft_shell::{Ended, Forced, Submission};

use super::stamp::OF_ANSWER;

/// A request whose pages have these contents. A content stands for the whole history of its page, as in a world.
pub fn submission(request: u32, room: Option<u32>, prompt: &[u16], output: &[u16]) -> Submission {
    let blocks = |contents: &[u16]| contents.iter().map(|&content| BlockHash(u128::from(content))).collect();
    Submission {
        request: RequestId(request),
        room: room.map(Room),
        prompt: prompt.to_vec(),
        blocks: blocks(prompt),
        forced: Some(Forced {
            tokens: output.iter().map(|content| content | OF_ANSWER).collect(),
            blocks: blocks(output),
        }),
        output_tokens: output.len() as u32,
        priority: 0,
    }
}

/// What is wrong with how a request ended, if it had to finish with an answer computed from its own pages.
pub fn complaint(ended: &Ended) -> Option<String> {
    if ended.ending != Ending::Finished {
        return Some(format!("ended with {:?}, expected its answer", ended.ending));
    }
    let wrong = ended.answer.iter().chain(&ended.draft).any(|&byte| byte != 0);
    wrong.then(|| "its answer was computed from a page that held something else".to_owned())
}
