//! Transcripts of agents that ask for facts from earlier in the conversation.

use super::chain::{Use, below, keyed, word};
use super::{MARK, Token};

/// Sizes of a transcript, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The system prompt that all sessions share.
    pub system_tokens: usize,
    /// The first user text of a session, with its marker. From about 200 on, it states four facts.
    pub first_tokens: usize,
    /// Each later user text, with its marker. Below about 50 there is no room for a fact and a question.
    pub round_tokens: usize,
}

/// One session: a growing transcript.
#[derive(Clone, Debug)]
pub struct Agent {
    key: u64,
    shape: Shape,
    align: usize,
    round: usize,
    transcript: Vec<Token>,
    /// Keys of all facts so far.
    facts: Vec<String>,
}

const FACTS_FIRST: usize = 4;
const WORDS: [&str; 16] = [
    "and", "then", "the", "shelf", "river", "counts", "under", "seven", "amber", "lamps", "while", "north", "wind",
    "keeps", "quiet", "pages",
];

impl Agent {
    /// A session. Sessions with one seed share the system prompt and nothing else.
    pub fn new(seed: u64, session: u32, shape: &Shape) -> Agent {
        let mut system = b"You answer with tool calls only. ".to_vec();
        pad(&mut system, keyed(seed, Use::Transcript, 0), shape.system_tokens);
        let transcript = system.into_iter().map(Token::from).collect();
        let key = keyed(seed ^ (u64::from(session) + 1) << 32, Use::Transcript, 1);
        Agent { key, shape: *shape, align: 1, round: 0, transcript, facts: Vec::new() }
    }

    /// The same session with longer user texts, so that the length of each prompt is a multiple of
    /// [`RecallModel::align`](super::RecallModel::align).
    #[must_use]
    pub fn aligned(self, align: usize) -> Agent {
        Agent { align: align.max(1), ..self }
    }

    /// The whole prompt of the next round: the transcript so far, the answer to the previous round if there was one,
    /// and a user text of exactly the round's size, unless the prompt is [aligned](Agent::aligned). It ends with
    /// [`MARK`].
    pub fn next_prompt(&mut self, previous_answer: Option<&[u8]>) -> Vec<Token> {
        self.transcript.extend(previous_answer.unwrap_or(&[]).iter().map(|byte| Token::from(*byte)));
        let (tokens, facts) = match self.round {
            0 => (self.shape.first_tokens, FACTS_FIRST),
            _ => (self.shape.round_tokens, 1),
        };
        let end = (self.transcript.len() + tokens.max(1)).next_multiple_of(self.align);
        let text = self.user_text(end - 1 - self.transcript.len(), facts);
        self.transcript.extend(text.into_iter().map(Token::from));
        self.transcript.push(MARK);
        self.round += 1;
        self.transcript.clone()
    }

    /// The round that comes next, from 0.
    pub fn round(&self) -> usize {
        self.round
    }

    /// New facts as far as there is room, filler, and a question about one of all facts.
    fn user_text(&mut self, bytes: usize, facts: usize) -> Vec<u8> {
        let key = word(self.key, self.round);
        let question = |name: &str| format!(" recall {name}?");
        let mut text = Vec::new();
        for n in 0..facts {
            let random = word(key, n);
            let name = format!("k{}-{n}-{:04x}", self.round, random & 0xffff);
            let fact = format!("fact {name}=v-{:08x}; ", random >> 32);
            // A question about any name so far is no longer than this.
            if text.len() + fact.len() + question(&name).len() + 8 <= bytes {
                text.extend_from_slice(fact.as_bytes());
                self.facts.push(name);
            }
        }
        let asked = self.facts.get(below(word(key, facts), self.facts.len()));
        let question = asked.map(|name| question(name)).filter(|question| text.len() + question.len() <= bytes);
        let question = question.unwrap_or_default();
        pad(&mut text, key, bytes - question.len());
        text.extend_from_slice(question.as_bytes());
        text
    }
}

/// Appends words until the text has that many bytes; cuts it if it has more.
fn pad(text: &mut Vec<u8>, key: u64, bytes: usize) {
    let mut n = 1 << 20;
    while text.len() < bytes {
        let random = word(key, n);
        let filler = format!("{} {} {:03x} ", WORDS[below(random, 16)], WORDS[below(random << 8, 16)], random & 0xfff);
        text.extend_from_slice(filler.as_bytes());
        n += 1;
    }
    text.truncate(bytes);
}

#[cfg(test)]
mod tests {
    use kvweft_core::Geometry;

    use super::*;
    use crate::recall::RecallModel;

    #[test]
    fn prompts_have_their_sizes_and_ask_for_facts_that_were_stated() {
        let model = RecallModel::new(&Geometry::uniform(1, 64, None), 1, 0).unwrap();
        let shape = Shape { system_tokens: 500, first_tokens: 300, round_tokens: 120 };
        let mut sessions: Vec<Agent> = (0..4).map(|session| Agent::new(3, session, &shape)).collect();
        for agent in &mut sessions {
            let (mut expected, mut answer) = (800, None);
            for round in 0..12 {
                let prompt = agent.next_prompt(answer.as_deref());
                assert_eq!((prompt.len(), prompt.last()), (expected, Some(&MARK)));
                let text = prompt[..expected - 1].iter().filter(|token| **token != MARK);
                assert!(text.clone().all(|token| (0x20..0x7f).contains(token)));
                let right = model.answer(&prompt);
                let stated: String = text.map(|token| char::from(*token as u8)).collect();
                let call = String::from_utf8(right.clone()).unwrap();
                let pick =
                    |name: &str| call.split(&format!("\"{name}\":\"")).nth(1).unwrap().split('"').next().unwrap();
                let statement = format!("fact {}={};", pick("key"), pick("value"));
                assert!(stated.contains(&statement), "round {round}: {statement}");
                expected += right.len() + 120;
                answer = Some(right);
            }
            assert_eq!(agent.round(), 12);
        }
    }

    #[test]
    fn aligned_prompts_are_longer_by_less_than_an_entry() {
        let shape = Shape { system_tokens: 50, first_tokens: 250, round_tokens: 61 };
        for align in [1, 4, 64, 128] {
            let [mut plain, mut aligned] = [1, align].map(|align| Agent::new(3, 0, &shape).aligned(align));
            let mut lengths = (0, 0);
            for round in 0..6 {
                let answer = vec![b'a'; 90 + round];
                let answer = (round > 0).then_some(answer.as_slice());
                let before = lengths;
                lengths = (plain.next_prompt(answer).len(), aligned.next_prompt(answer).len());
                let more = (lengths.1 - before.1) - (lengths.0 - before.0);
                assert!(lengths.1 % align == 0 && more < align, "{lengths:?}");
            }
        }
    }

    #[test]
    fn sessions_share_the_system_prompt_only_and_small_shapes_are_filled() {
        let shape = Shape { system_tokens: 100, first_tokens: 20, round_tokens: 1 };
        let [a, b] = [0, 1].map(|session| Agent::new(3, session, &shape).next_prompt(None));
        assert!(a.len() == 120 && a[..100] == b[..100] && a[100..] != b[100..]);
        assert_eq!(Agent::new(3, 0, &shape).next_prompt(None), a);
        let mut agent = Agent::new(3, 0, &shape);
        agent.next_prompt(None);
        assert_eq!(agent.next_prompt(Some(b"yes")).len(), 124);
    }
}
