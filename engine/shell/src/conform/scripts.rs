//! What each request of a log expects at each position: contents by number.

use std::collections::BTreeMap;

use kvweft_core::{BlockHash, Effect};
use kvweft_trace::event::{Event, Header, InputRecord, Line};
use kvweft_world::Script;

/// More contents than this cannot be told apart by the cells of a world.
const CONTENTS_MAX: usize = (u16::MAX as usize - 3) / 2;

/// More requests than this are not those of one run.
const REQUESTS_MAX: usize = 10_000_000;

/// The scripts of all requests, found by looking ahead.
pub(crate) struct Scripts {
    numbers: BTreeMap<BlockHash, u16>,
    scripts: Vec<Script>,
    contents: usize,
    /// Why the log cannot be followed, if it cannot.
    problem: Option<String>,
}

struct Known {
    blocks: Vec<BlockHash>,
    output: Vec<BlockHash>,
    pages: usize,
}

impl Scripts {
    /// Looks for every submission and every end of an answer. Lines that cannot be read are left to whoever checks them.
    pub(crate) fn of(header: &Header, log: &str) -> Scripts {
        let page_tokens = header.engines[0].geometry.page_tokens.max(1) as usize;
        let mut known: BTreeMap<u32, Known> = BTreeMap::new();
        let interesting = |text: &&str| text.contains("\"kind\":\"submit\"") || text.contains("\"kind\":\"finish\"");
        for text in log.lines().filter(interesting) {
            let Ok(Line { event: Event::Input { input, .. }, .. }) = Line::parse(text) else { continue };
            match input {
                InputRecord::Submit { request, blocks, tail_tokens, output_tokens, .. } => {
                    let tokens = blocks.len() * page_tokens + tail_tokens as usize + output_tokens as usize;
                    let pages = tokens.div_ceil(page_tokens).max(1);
                    let output = known.remove(&request.0).map(|known| known.output).unwrap_or_default();
                    known.insert(request.0, Known { blocks, output, pages });
                }
                InputRecord::Finish { request, output } => {
                    if let Some(known) = known.get_mut(&request.0) {
                        known.output = output;
                    }
                }
                _ => {}
            }
        }
        let mut scripts = Scripts { numbers: BTreeMap::new(), scripts: Vec::new(), contents: 0, problem: None };
        let count = known.last_key_value().map_or(0, |(&last, _)| last as usize + 1);
        if count > REQUESTS_MAX {
            scripts.problem = Some(format!("expected requests to be numbered from 0, got request {}", count - 1));
            return scripts;
        }
        // A log that was cut off may lack the submission of a request that has a lower number than others.
        let nothing = Known { blocks: Vec::new(), output: Vec::new(), pages: 0 };
        for request in 0..count as u32 {
            scripts.add(request, known.get(&request).unwrap_or(&nothing));
        }
        scripts
    }

    fn add(&mut self, request: u32, known: &Known) {
        let mut contents = Vec::new();
        for &hash in known.blocks.iter().chain(&known.output) {
            contents.push(self.number(hash));
        }
        // A page that is never full belongs to this request alone.
        while contents.len() < known.pages {
            contents.push(self.fresh());
        }
        let output = contents.split_off(known.blocks.len());
        self.scripts.push(Script {
            name: format!("r{request}"),
            prompt: contents,
            output,
            after: Vec::new(),
            priority: 0,
            retries: 0,
        });
    }

    fn fresh(&mut self) -> u16 {
        let content = self.contents;
        self.contents += 1;
        if content >= CONTENTS_MAX {
            let problem =
                format!("the log has more than {CONTENTS_MAX} different pages, which is more than can be followed");
            self.problem.get_or_insert(problem);
            return 0;
        }
        content as u16
    }

    fn number(&mut self, hash: BlockHash) -> u16 {
        if let Some(&number) = self.numbers.get(&hash) {
            return number;
        }
        let number = self.fresh();
        self.numbers.insert(hash, number);
        number
    }

    /// Whether the log can be followed.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    /// The script of each request, by its number.
    pub(crate) fn all(&self) -> &[Script] {
        &self.scripts
    }

    fn renumber(&self, hash: BlockHash) -> BlockHash {
        self.numbers.get(&hash).map_or(hash, |&number| BlockHash(number.into()))
    }

    /// The input with the numbers of contents in place of their hashes.
    pub(crate) fn numbered(&self, input: &InputRecord) -> Result<InputRecord, String> {
        let mut input = input.clone();
        match &mut input {
            InputRecord::Submit { blocks, .. } => blocks.iter_mut().for_each(|hash| *hash = self.renumber(*hash)),
            InputRecord::Finish { output, .. } => output.iter_mut().for_each(|hash| *hash = self.renumber(*hash)),
            _ => {}
        }
        Ok(input)
    }

    /// The effect likewise.
    pub(crate) fn numbered_effect(&self, effect: &Effect) -> Effect {
        let mut effect = effect.clone();
        if let Effect::Move(moved) = &mut effect {
            moved.blocks.iter_mut().for_each(|hash| *hash = self.renumber(*hash));
        }
        effect
    }
}
