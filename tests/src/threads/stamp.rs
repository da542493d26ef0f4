//! A model that computes nothing: it writes into each page what the page is for, and looks for it when it reads.

use kvweft_core::{BlockHash, Component, Dtype, Geometry, Layout, Scale};
use kvweft_shell::Model;
use kvweft_shell::model::{Changed, Token};

/// Bytes of a page of one component: two words, so that a copy and a write have two halves.
const PAGE_BYTES: u16 = 16;

/// Marks a token of an answer. It does not change what the token is.
pub const OF_ANSWER: Token = 1 << 15;

/// Stamps pages. Answers a byte for every step: 0 if it found in every page what belongs there, else 1.
#[derive(Debug)]
pub struct StampModel;

/// A request's share of a step.
#[derive(Debug, Default)]
pub struct Item {
    tokens: Vec<Token>,
    cached: usize,
    wrong: bool,
}

/// The geometry with pages of one token and two words, whatever its layouts were: nothing that the manager decides
/// depends on the size of a row.
pub fn tiny(mut geometry: Geometry) -> Geometry {
    geometry.page_tokens = 1;
    for entry in &mut geometry.components {
        entry.layout = Layout {
            dtype: Dtype::Bf16,
            scale: Scale::None,
            bytes_per_entry: PAGE_BYTES,
            scale_bytes_per_entry: 0,
            tokens_per_entry: 1,
            page_tokens: 1,
        };
    }
    geometry
}

/// What a page of these tokens, the page's own the last, must hold.
fn stamp(tokens: &[Token], layer: u8, component: Component) -> [u8; PAGE_BYTES as usize] {
    let seed = 0xcbf2_9ce4_8422_2325 ^ u64::from(layer) << 1 ^ u64::from(component == Component::Kv);
    let hash = tokens.iter().fold(seed, |hash, token| {
        (hash ^ u64::from(token & !OF_ANSWER)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
    });
    let mut bytes = [0; PAGE_BYTES as usize];
    bytes[..8].copy_from_slice(&hash.to_le_bytes());
    bytes[8..].copy_from_slice(&(!hash).to_le_bytes());
    bytes
}

impl Item {
    fn check(&mut self, page: usize, layer: u8, component: Component, bytes: &[u8]) {
        let expected = self.tokens.get(..=page).map(|tokens| stamp(tokens, layer, component));
        self.wrong |= expected.is_none_or(|expected| expected != bytes);
    }
}

impl Model for StampModel {
    type Item = Item;

    fn start(&self, tokens: &[Token], first: usize) -> Item {
        Item { tokens: tokens.to_vec(), cached: first, wrong: false }
    }

    fn select(&self, item: &mut Item, layer: u8, pages: &[Vec<u8>]) {
        for (page, bytes) in pages.iter().enumerate() {
            item.check(page, layer, Component::IndexK, bytes);
        }
    }

    fn wanted(&self, item: &Item, _: u8) -> Vec<(u32, u32)> {
        (0..item.cached as u32).map(|page| (page, 0)).collect()
    }

    fn take(&self, item: &mut Item, layer: u8, at: (u32, u32), row: &[u8], _: &[u8]) {
        item.check(at.0 as usize, layer, Component::Kv, row);
    }

    fn write(&self, item: &mut Item, layer: u8, page: usize, index: Option<&mut [u8]>, kv: &mut [u8]) -> Changed {
        let whole = 0..usize::from(PAGE_BYTES);
        let mut changed = Changed { index: Vec::new(), kv: vec![whole.clone()] };
        if let Some(index) = index {
            index.copy_from_slice(&stamp(&item.tokens[..=page], layer, Component::IndexK));
            changed.index.push(whole);
        }
        kv.copy_from_slice(&stamp(&item.tokens[..=page], layer, Component::Kv));
        changed
    }

    fn sampled(&self, item: Item) -> Option<(usize, Vec<u8>)> {
        let position = item.tokens.iter().filter(|&token| token & OF_ANSWER != 0).count();
        Some((position, vec![u8::from(item.wrong)]))
    }

    fn block_hashes(&self, tokens: &[Token]) -> Vec<BlockHash> {
        let hash = |page: usize| stamp(&tokens[..=page], u8::MAX, Component::Kv);
        (0..tokens.len()).map(|page| BlockHash(u128::from_le_bytes(hash(page)))).collect()
    }
}
