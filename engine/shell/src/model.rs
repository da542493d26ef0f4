//! What the engine computes: anything whose results depend on what it reads from the cache.

use std::sync::Arc;

use kvweft_core::BlockHash;

use crate::ask::{Addends, Search};
pub use crate::recall::{Changed, Token};
use crate::recall::{RecallModel, Step};

/// A model that is run layer by layer, with all its memory in pages.
pub trait Model: Send + Sync + 'static {
    /// One request's share of a forward step.
    type Item: Send;

    /// Begins a step: tokens from `first` on are computed, those before lie in the cache.
    fn start(&self, tokens: &[Token], first: usize) -> Self::Item;
    /// Scores the index keys of every cached page of a layer, in order of position, and selects.
    fn select(&self, item: &mut Self::Item, layer: u8, pages: &[Vec<u8>]);
    /// What `select` would look for, for memory that scores by itself; nothing if that must be left to `select`.
    fn search(&self, item: &Self::Item, layer: u8) -> Option<Search> {
        let _ = (item, layer);
        None
    }
    /// Takes what the memory has selected, in place of `select`.
    fn selected(&self, item: &mut Self::Item, layer: u8, selected: &[Vec<u32>]) {
        let _ = (item, layer, selected);
    }
    /// The KV entries that the selection wants, as (page, entry), each once.
    fn wanted(&self, item: &Self::Item, layer: u8) -> Vec<(u32, u32)>;
    /// Takes one of them: its bytes and those of its scale.
    fn take(&self, item: &mut Self::Item, layer: u8, at: (u32, u32), row: &[u8], scale: &[u8]);
    /// What is wanted, as rows to add up, for memory that adds by itself; nothing if that must be left to `take`.
    fn addends(&self, item: &Self::Item, layer: u8) -> Option<Addends> {
        let _ = (item, layer);
        None
    }
    /// Takes what the memory has added up, in place of all calls of `take`.
    fn added(&self, item: &mut Self::Item, layer: u8, sums: &[Vec<f32>]) {
        let _ = (item, layer, sums);
    }
    /// Writes the new entries of a page into the bytes of its index keys and KV entries, and touches no other bytes: what
    /// the page holds there is not known.
    fn write(&self, item: &mut Self::Item, layer: u8, page: usize, index: Option<&mut [u8]>, kv: &mut [u8]) -> Changed;
    /// The bytes of the answer that the step sampled, and the position of the first of them.
    fn sampled(&self, item: Self::Item) -> Option<(usize, Vec<u8>)>;
    /// The hash of every full page.
    fn block_hashes(&self, tokens: &[Token]) -> Vec<BlockHash>;
}

/// The recall model runs as it is. A step of no tokens at all is nothing to it.
impl Model for Arc<RecallModel> {
    type Item = Option<Step>;

    fn start(&self, tokens: &[Token], first: usize) -> Option<Step> {
        (!tokens.is_empty()).then(|| Step::new(Arc::clone(self), tokens, first))
    }

    fn select(&self, item: &mut Option<Step>, layer: u8, pages: &[Vec<u8>]) {
        if let Some(step) = item {
            // With a rule dropped a request may have lost pages that it needs: nothing is where they were.
            let nothing = vec![crate::recall::POISON; self.layers[usize::from(layer)].index_page_bytes()];
            let known = pages.iter().map(Vec::as_slice);
            let missing = step.cached_pages().saturating_sub(pages.len());
            let pages: Vec<&[u8]> = known.chain(std::iter::repeat_n(nothing.as_slice(), missing)).collect();
            step.select(usize::from(layer), &pages);
        }
    }

    fn search(&self, item: &Option<Step>, layer: u8) -> Option<Search> {
        item.as_ref()?.search(usize::from(layer))
    }

    fn selected(&self, item: &mut Option<Step>, layer: u8, selected: &[Vec<u32>]) {
        if let Some(step) = item {
            step.selected(usize::from(layer), selected);
        }
    }

    fn wanted(&self, item: &Option<Step>, layer: u8) -> Vec<(u32, u32)> {
        item.as_ref().map(|step| step.wanted(usize::from(layer)).to_vec()).unwrap_or_default()
    }

    fn take(&self, item: &mut Option<Step>, layer: u8, at: (u32, u32), row: &[u8], scale: &[u8]) {
        if let Some(step) = item {
            step.take(usize::from(layer), at.0, at.1, row, scale);
        }
    }

    fn addends(&self, item: &Option<Step>, layer: u8) -> Option<Addends> {
        item.as_ref()?.addends(usize::from(layer))
    }

    fn added(&self, item: &mut Option<Step>, layer: u8, sums: &[Vec<f32>]) {
        if let Some(step) = item {
            step.added(usize::from(layer), sums);
        }
    }

    fn write(
        &self,
        item: &mut Option<Step>,
        layer: u8,
        page: usize,
        index: Option<&mut [u8]>,
        kv: &mut [u8],
    ) -> Changed {
        item.as_mut().map(|step| step.write(usize::from(layer), page, index, kv)).unwrap_or_default()
    }

    fn sampled(&self, item: Option<Step>) -> Option<(usize, Vec<u8>)> {
        item?.sampled()
    }

    fn block_hashes(&self, tokens: &[Token]) -> Vec<BlockHash> {
        RecallModel::block_hashes(self, tokens)
    }
}
