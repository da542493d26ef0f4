//! The model: shapes and a salt.

use kvweft_core::{BlockHash, Component, Geometry, Layout};

use super::answer::{ANSWER_MAX, ANSWER_MIN, answer};
use super::chain::{Chain, prefixes};
use super::codes::CODES_MAX;
use super::layer::LayerShape;
use super::sequence::Sequence;
use super::{POISON, Token};

/// A model without weights: what it answers is a function of the tokens, what it samples one of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallModel {
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Heads of the indexer.
    pub heads: usize,
    /// What each layer stores.
    pub layers: Vec<LayerShape>,
    /// The fewest tokens that share an entry in any layer. The layers with so few close: they keep the closing share of
    /// a marker in the entry that it completes. A prompt whose length is no multiple of this has no such entry, and
    /// comes out wrong: see [`Agent::aligned`](super::Agent::aligned).
    pub align: usize,
    /// Bytes of an answer, at most: as many as the rows of all layers have room for.
    pub answer_max: usize,
    /// The tenant. Other salt, other bytes.
    pub salt: u64,
}

/// Why a geometry cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// There is nothing to score with.
    #[error("expected at least one head of the indexer, got 0")]
    Heads,
    /// A layer has no KV entries.
    #[error("layer {layer}: expected KV entries, got none")]
    NoKv {
        /// The layer.
        layer: usize,
    },
    /// Layouts disagree on the size of a page.
    #[error("layer {layer}: expected pages of {expected} tokens, got {got}")]
    PageTokens {
        /// The layer.
        layer: usize,
        /// Tokens of the pages of layer 0.
        expected: usize,
        /// Tokens of the pages of this one.
        got: usize,
    },
    /// KV rows store too few integers for an answer.
    #[error("layer {layer}: expected rows of at least {} fp8 or bf16 values, got {got}", 2 * ANSWER_MIN)]
    Values {
        /// The layer.
        layer: usize,
        /// Values that fit.
        got: usize,
    },
    /// The indexer's kernels know the layouts of [`Layout::index_k`] only, with the entries of the KV pages.
    #[error("layer {layer}: expected index keys as {expected:?}, got {got:?}")]
    IndexLayout {
        /// The layer.
        layer: usize,
        /// The layout for its dtype.
        expected: Layout,
        /// The layout that it has.
        got: Layout,
    },
    /// A page has more entries than there are codes.
    #[error("layer {layer}: expected at most {CODES_MAX} index keys in a page, got {got}")]
    Codes {
        /// The layer.
        layer: usize,
        /// Entries of a page.
        got: usize,
    },
    /// There is no layer.
    #[error("expected at least one layer, got none")]
    NoLayers,
    /// Where a prompt must end would depend on the page.
    #[error("expected pages of whole entries, got {page_tokens} tokens and {tokens_per_entry} tokens an entry")]
    PartEntry {
        /// Tokens of a page.
        page_tokens: usize,
        /// Tokens that share an entry in the layers with the fewest.
        tokens_per_entry: usize,
    },
}

impl RecallModel {
    /// The model that a geometry can serve. Pages are those of its layouts, whatever the geometry's own tokens stand
    /// for.
    ///
    /// # Errors
    ///
    /// Names the first layer that does not fit.
    pub fn new(geometry: &Geometry, heads: usize, salt: u64) -> Result<RecallModel, ShapeError> {
        let mut layers: Vec<LayerShape> = Vec::new();
        for layer in 0..geometry.layers {
            let kv = geometry.layout(layer, Component::Kv).ok_or(ShapeError::NoKv { layer: layer.into() })?;
            let shape = LayerShape { index: geometry.layout(layer, Component::IndexK), kv };
            check(layer.into(), &shape, layers.first().unwrap_or(&shape))?;
            layers.push(shape);
        }
        if heads == 0 {
            return Err(ShapeError::Heads);
        }
        let align = layers.iter().map(LayerShape::tokens_per_entry).min().ok_or(ShapeError::NoLayers)?;
        let page_tokens = layers[0].kv.page_tokens as usize;
        if !page_tokens.is_multiple_of(align) {
            return Err(ShapeError::PartEntry { page_tokens, tokens_per_entry: align });
        }
        let answer_max = layers.iter().map(|shape| shape.values() / 2).fold(ANSWER_MAX, usize::min);
        Ok(RecallModel { page_tokens, heads, layers, align, answer_max, salt })
    }

    /// The names of all full pages.
    pub fn block_hashes(&self, tokens: &[Token]) -> Vec<BlockHash> {
        let mut chain = Chain::new(self.salt);
        let blocks = tokens.chunks_exact(self.page_tokens);
        let hash = |block: &[Token]| {
            block.iter().for_each(|token| chain.push(*token));
            chain.hash()
        };
        blocks.map(hash).collect()
    }

    /// The right answer to a transcript that ends with its marker: at most [`RecallModel::answer_max`] bytes.
    pub fn answer(&self, tokens: &[Token]) -> Vec<u8> {
        let mut chain = Chain::new(self.salt);
        tokens.iter().for_each(|token| chain.push(*token));
        answer(tokens, chain.id(), self.answer_max)
    }

    /// The bytes that a page must hold once all tokens are written and every read was right. Entries that no token has
    /// completed are [`POISON`].
    ///
    /// # Panics
    ///
    /// If the layer does not have the component.
    pub fn expected_page(&self, tokens: &[Token], layer: usize, component: Component, page: usize) -> Vec<u8> {
        let shape = &self.layers[layer];
        let sequence = Sequence::new(self.clone().into(), tokens.into());
        let mut kv = vec![POISON; shape.kv_page_bytes()];
        let mut index = vec![POISON; shape.index_page_bytes()];
        let entries = 0..shape.complete(tokens.len().saturating_sub(page * self.page_tokens));
        match component {
            Component::Kv => {
                let closing = |marker| sequence.closing(&sequence.ask(marker), layer, &[]);
                sequence.write_rows(layer, page, entries, (0, closing), &mut kv);
                kv
            }
            Component::IndexK => {
                assert!(shape.index.is_some(), "layer {layer} has no index keys");
                sequence.write_keys(layer, page, entries, &mut index);
                index
            }
        }
    }

    /// Nibbles of the longest answer.
    pub(super) fn nibbles(&self) -> usize {
        2 * self.answer_max
    }

    /// Whether the row of a marker carries a closing share in a layer.
    pub(super) fn closes(&self, layer: usize) -> bool {
        self.layers[layer].tokens_per_entry() == self.align
    }

    /// The layers whose row of a marker carries a closing share.
    pub(super) fn closing_layers(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.layers.len()).filter(|layer| self.closes(*layer))
    }

    /// The layer whose closing share makes up for the sums of `layer`: itself, or the last one that has a share.
    pub(super) fn closed_by(&self, layer: usize) -> usize {
        let last = self.closing_layers().next_back().expect("checked when the model was built");
        if self.closes(layer) { layer } else { last }
    }

    /// Identities of all prefixes, the empty one first.
    pub(super) fn prefixes(&self, tokens: &[Token]) -> Vec<u64> {
        prefixes(self.salt, tokens)
    }
}

fn check(layer: usize, shape: &LayerShape, first: &LayerShape) -> Result<(), ShapeError> {
    let (expected, got) = (first.kv.page_tokens as usize, shape.kv.page_tokens as usize);
    if expected != got || got == 0 {
        return Err(ShapeError::PageTokens { layer, expected: expected.max(1), got });
    }
    if shape.values() < 2 * ANSWER_MIN {
        return Err(ShapeError::Values { layer, got: shape.values() });
    }
    let Some(got) = shape.index else { return Ok(()) };
    let expected = Layout::index_k(got.dtype, shape.kv.tokens_per_entry, shape.kv.page_tokens);
    if got != expected {
        return Err(ShapeError::IndexLayout { layer, expected, got });
    }
    match shape.entries() {
        entries if entries > CODES_MAX => Err(ShapeError::Codes { layer, got: entries }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use kvweft_core::{ComponentLayout, Dtype, LayerSet, Scale};

    use super::*;

    fn with(change: impl Fn(&mut Geometry)) -> Result<RecallModel, ShapeError> {
        let mut geometry = Geometry::uniform(2, 64, Some(Dtype::Fp8));
        change(&mut geometry);
        RecallModel::new(&geometry, 4, 0)
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let model = with(|geometry| geometry.page_tokens = 1).unwrap();
        assert_eq!((model.page_tokens, model.layers.len()), (64, 2));
        assert_eq!(with(|g| g.components[0].layers = LayerSet(1)), Err(ShapeError::NoKv { layer: 1 }));
        assert_eq!(
            with(|g| g.components[0].layout.bytes_per_entry = 191),
            Err(ShapeError::Values { layer: 0, got: 191 })
        );
        assert_eq!(with(|g| g.components[0].layout.dtype = Dtype::Fp4), Err(ShapeError::Values { layer: 0, got: 0 }));
        assert_eq!(with(|g| g.components.remove(0).layout.page_tokens = 1), Err(ShapeError::NoKv { layer: 0 }));
        assert_eq!(
            with(|g| {
                let mut kv = g.components[0].layout;
                kv.page_tokens = 128;
                g.components[0].layers = LayerSet(1);
                g.components.push(ComponentLayout { component: Component::Kv, layers: LayerSet(2), layout: kv });
            }),
            Err(ShapeError::PageTokens { layer: 1, expected: 64, got: 128 })
        );
        let wide = Geometry::uniform(1, 128, Some(Dtype::Fp8));
        assert_eq!(RecallModel::new(&wide, 1, 0), Err(ShapeError::Codes { layer: 0, got: 128 }));
        assert_eq!(RecallModel::new(&Geometry::uniform(1, 64, None), 0, 0), Err(ShapeError::Heads));
        assert_eq!(
            with(|g| {
                g.components.truncate(1);
                g.components[0].layout.tokens_per_entry = 5;
            }),
            Err(ShapeError::PartEntry { page_tokens: 64, tokens_per_entry: 5 })
        );
        assert_eq!(with(|g| g.layers = 0), Err(ShapeError::NoLayers));
        assert!(matches!(
            with(|g| g.components[1].layout.tokens_per_entry = 4),
            Err(ShapeError::IndexLayout { layer: 0, .. })
        ));
    }

    #[test]
    fn published_models_are_served() {
        let kv = |dtype, bytes_per_entry, scale, scale_bytes_per_entry, tokens_per_entry, page_tokens| Layout {
            dtype,
            scale,
            bytes_per_entry,
            scale_bytes_per_entry,
            tokens_per_entry,
            page_tokens,
        };
        let latent = [kv(Dtype::Fp8, 640, Scale::PerRow, 16, 1, 64), kv(Dtype::Bf16, 1152, Scale::None, 0, 1, 64)];
        let ratio = |ratio| kv(Dtype::Fp8, 576, Scale::PerPage, 8, ratio, 256);
        let [window, c4, c128] = [1, 4, 128].map(ratio);
        let flash = |layer| {
            if layer < 2 {
                window
            } else if layer % 2 == 0 {
                c4
            } else {
                c128
            }
        };
        for index in [Dtype::Fp8, Dtype::Bf16, Dtype::Fp4] {
            let serves = |layers: u8, layout: &dyn Fn(u8) -> Layout, indexed: &dyn Fn(u8) -> bool| {
                let part =
                    |layer: u8, component, layout| ComponentLayout { component, layers: LayerSet(1 << layer), layout };
                let keys = |layer| Layout::index_k(index, layout(layer).tokens_per_entry, layout(layer).page_tokens);
                let kv = (0..layers).map(|layer| part(layer, Component::Kv, layout(layer)));
                let indexed = (0..layers).filter(|layer| indexed(*layer));
                let index = indexed.map(|layer| part(layer, Component::IndexK, keys(layer)));
                let geometry = Geometry { layers, page_tokens: 1, components: kv.chain(index).collect() };
                let model = RecallModel::new(&geometry, 1, 0).unwrap();
                (model.layers.len(), model.align, model.answer_max)
            };
            for latent in latent {
                assert_eq!(serves(61, &|_| latent, &|_| true), (61, 1, 200), "DeepSeek-V3.2");
                let produces = |layer| layer < 3 || layer % 4 == 2;
                assert_eq!(serves(64, &|_| latent, &produces), (64, 1, 200), "GLM-5, as far as layers go");
            }
            assert_eq!(serves(43, &flash, &|layer| flash(layer) == c4), (43, 1, 200), "DeepSeek-V4-Flash");
            assert_eq!(serves(41, &|layer| flash(layer + 2), &|layer| flash(layer + 2) == c4), (41, 4, 200));
            assert_eq!(serves(2, &|_| c4, &|_| true), (2, 4, 200));
            assert_eq!(serves(2, &|_| c128, &|_| false), (2, 128, 200));
            assert_eq!(serves(2, &|_| kv(Dtype::Bf16, 512, Scale::None, 0, 1, 64), &|_| false), (2, 1, 128));
        }
    }

    #[test]
    fn blocks_are_named_by_everything_before_them() {
        let model = with(|_| ()).unwrap();
        let tokens: Vec<Token> = (0..200).collect();
        let hashes = model.block_hashes(&tokens);
        assert_eq!(hashes.len(), 3);
        assert_eq!(model.block_hashes(&tokens[..150]), hashes[..2]);
        let mut other = tokens.clone();
        other[70] = 0;
        let others = model.block_hashes(&other);
        assert!(others[0] == hashes[0] && others[1] != hashes[1] && others[2] != hashes[2]);
        let salted = RecallModel { salt: 1, ..model };
        assert_ne!(salted.block_hashes(&tokens)[0], hashes[0]);
    }
}
