//! The bytes that stand for the contents of a world.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use kvweft_core::{BlockHash, Component, RequestId, Room};
use kvweft_world::Machine;

use crate::engine::{Forced, Submission};
use crate::model::Token;
use crate::recall::{MARK, RecallModel};

/// Gives every content of a world tokens, and every cell the bytes that it must hold then.
pub struct Oracle {
    models: Vec<Arc<RecallModel>>,
    /// For each content, the tokens of the sequence that ends with it.
    paths: BTreeMap<u16, Vec<Token>>,
    bytes: RefCell<BTreeMap<Cell, Rc<Vec<u8>>>>,
}

/// An engine, a content, a layer and a component.
type Cell = (usize, u16, u8, Component);

impl Oracle {
    /// The oracle of a world whose engines serve these models.
    pub fn new(machine: &Machine, models: Vec<Arc<RecallModel>>) -> Oracle {
        let page_tokens = models[0].page_tokens;
        let mut paths: BTreeMap<u16, Vec<Token>> = BTreeMap::new();
        for script in &machine.scripts {
            let mut path = Vec::new();
            for position in 0..script.pages() {
                let content = script.content(position);
                path.extend(page(content, page_tokens));
                paths.entry(content).or_insert_with(|| path.clone());
            }
        }
        Oracle { models, paths, bytes: RefCell::default() }
    }

    /// The request of a script, as its client submits it.
    pub fn submission(&self, machine: &Machine, request: usize, room: Option<Room>) -> Submission {
        let script = &machine.scripts[request];
        let page_tokens = self.models[0].page_tokens;
        let tokens = |contents: &[u16]| contents.iter().flat_map(|&content| page(content, page_tokens)).collect();
        let blocks = |contents: &[u16]| contents.iter().map(|&content| BlockHash(u128::from(content))).collect();
        Submission {
            request: RequestId(request as u32),
            room,
            prompt: tokens(&script.prompt),
            blocks: blocks(&script.prompt),
            forced: Some(Forced { tokens: tokens(&script.output), blocks: blocks(&script.output) }),
            output_tokens: script.output.len() as u32,
            priority: script.priority,
        }
    }

    /// The right answer to a script: the one that its last page asks for.
    pub fn answer(&self, machine: &Machine, request: usize) -> Vec<u8> {
        let script = &machine.scripts[request];
        match script.pages().checked_sub(1) {
            Some(last) => self.models[0].answer(&self.paths[&script.content(last)]),
            None => Vec::new(),
        }
    }

    /// The bytes of one component of one layer of the page of a content.
    pub fn cell(&self, engine: usize, content: u16, layer: u8, component: Component) -> Rc<Vec<u8>> {
        let mut bytes = self.bytes.borrow_mut();
        let cell = bytes.entry((engine, content, layer, component)).or_insert_with(|| {
            let (model, path) = (&self.models[engine], &self.paths[&content]);
            let page = path.len() / model.page_tokens - 1;
            Rc::new(model.expected_page(path, usize::from(layer), component, page))
        });
        Rc::clone(cell)
    }
}

/// The tokens of the page of a content: letters, and a marker at its end, so that every page asks for an answer.
fn page(content: u16, page_tokens: usize) -> Vec<Token> {
    let mut word = u64::from(content) + 1;
    let mut tokens: Vec<Token> = (1..page_tokens)
        .map(|_| {
            word = kvweft_kernels::mix64(word);
            Token::from(b'a' + (word % 26) as u8)
        })
        .collect();
    tokens.push(MARK);
    tokens
}
