//! A cache of one sequence, and a device that runs steps on it.

use std::sync::Arc;

use kvweft_core::{Component, ComponentLayout, Dtype, Geometry, LayerSet, Layout, Scale};

use crate::recall::chain::{below, word};
use crate::recall::{MARK, POISON, RecallModel, Step, Token};

/// The pages of one component of one layer, by position.
pub(super) type Pages = Vec<Vec<u8>>;

/// `pages[layer][0]` are index keys, `pages[layer][1]` KV entries.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) pages: Vec<[Pages; 2]>,
}

impl Cache {
    pub(super) fn new(model: &RecallModel) -> Cache {
        Cache { pages: vec![[Vec::new(), Vec::new()]; model.layers.len()] }
    }

    /// A cache in which everything is right.
    pub(super) fn right(model: &RecallModel, tokens: &[Token]) -> Cache {
        let pages = tokens.len().div_ceil(model.page_tokens);
        let of = |layer: usize, component| -> Pages {
            if component == Component::IndexK && model.layers[layer].index.is_none() {
                return vec![Vec::new(); pages];
            }
            (0..pages).map(|page| model.expected_page(tokens, layer, component, page)).collect()
        };
        let layers = 0..model.layers.len();
        Cache { pages: layers.map(|layer| [of(layer, Component::IndexK), of(layer, Component::Kv)]).collect() }
    }

    /// Runs a step: reads from `read`, or from this cache itself, and writes to this cache.
    pub(super) fn run(
        &mut self,
        model: &Arc<RecallModel>,
        tokens: &[Token],
        first: usize,
        read: Option<&Cache>,
    ) -> Option<(usize, Vec<u8>)> {
        let mut step = Step::new(model.clone(), tokens, first);
        assert_eq!(step.layers(), model.layers.len());
        for (layer, shape) in model.layers.iter().enumerate() {
            let cached = step.cached_pages();
            let from = read.unwrap_or(self);
            let [index, kv] = &from.pages[layer];
            let keys: Vec<&[u8]> = match shape.index {
                Some(_) => index[..cached].iter().map(Vec::as_slice).collect(),
                None => Vec::new(),
            };
            step.select(layer, &keys);
            let wanted = step.wanted(layer).to_vec();
            assert!(wanted.is_sorted_by(|a, b| a < b));
            for (page, entry) in wanted {
                let bytes = &kv[page as usize];
                let (row, scale) = (shape.row(entry as usize), shape.scale(entry as usize));
                step.take(layer, page, entry, &bytes[row], &bytes[scale]);
            }
            self.write(&mut step, layer, shape.index_page_bytes(), shape.kv_page_bytes());
        }
        step.sampled()
    }

    fn write(&mut self, step: &mut Step, layer: usize, index_bytes: usize, kv_bytes: usize) {
        let [index, kv] = &mut self.pages[layer];
        for page in step.pages() {
            for (pages, bytes) in [(&mut *index, index_bytes), (&mut *kv, kv_bytes)] {
                pages.resize(pages.len().max(page + 1), vec![POISON; bytes]);
            }
            let before = [index[page].clone(), kv[page].clone()];
            let keys = if index_bytes > 0 { Some(index[page].as_mut_slice()) } else { None };
            let changed = step.write(layer, page, keys, &mut kv[page]);
            for ((before, after), changed) in
                before.iter().zip([&index[page], &kv[page]]).zip([changed.index, changed.kv])
            {
                let mut patched = before.clone();
                changed.into_iter().for_each(|range| patched[range.clone()].copy_from_slice(&after[range]));
                assert!(patched == *after, "layer {layer}, page {page}: a change was not reported");
            }
        }
    }

    /// Computes `tokens[from..]` in steps that end at `ends` and at the end.
    pub(super) fn prefill(
        &mut self,
        model: &Arc<RecallModel>,
        tokens: &[Token],
        from: usize,
        ends: &[usize],
        read: Option<&Cache>,
    ) -> Option<(usize, Vec<u8>)> {
        let (mut first, mut sampled) = (from, None);
        for end in ends.iter().copied().chain([tokens.len()]).filter(|end| *end > from) {
            if end > first {
                sampled = self.run(model, &tokens[..end], first, read);
                first = end;
            }
        }
        sampled
    }

    /// Decodes the rest of an answer of `count` bytes behind `tokens`, whose first byte is known. `swap` brings damage
    /// before each step, and takes it away afterwards.
    pub(super) fn decode(
        &mut self,
        model: &Arc<RecallModel>,
        tokens: &mut Vec<Token>,
        first: u8,
        count: usize,
        mut swap: impl FnMut(&mut Cache),
    ) -> Vec<u8> {
        let mut answer = vec![first];
        while answer.len() < count {
            let at = tokens.len();
            tokens.push(answer[answer.len() - 1].into());
            swap(self);
            let (place, bytes) = self.run(model, tokens, at, None).expect("a marker");
            swap(self);
            assert_eq!((place, bytes.len()), (answer.len(), 1));
            answer.extend(bytes);
        }
        answer
    }
}

/// A transcript of random bytes that ends with a marker; `marks` lie before it. If an answer is wanted, `len` must suit
/// [`RecallModel::align`].
pub(super) fn transcript(seed: u64, len: usize, marks: &[usize]) -> Vec<Token> {
    let mut tokens: Vec<Token> = (0..len).map(|at| (word(seed, at) & 0x7f) as Token).collect();
    marks.iter().chain([&(len - 1)]).for_each(|at| tokens[*at] = MARK);
    tokens
}

/// Random ends of steps.
pub(super) fn ends(seed: u64, len: usize, count: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (0..count).map(|n| 1 + below(word(seed, n), len - 1)).collect();
    ends.sort_unstable();
    ends
}

/// Fp8 rows with scales behind each, or bf16 rows; index keys of all layers.
pub(super) fn uniform(layers: u8, page_tokens: u16, index: Dtype, kv: Dtype) -> Arc<RecallModel> {
    let mut geometry = Geometry::uniform(layers, page_tokens, Some(index));
    if kv == Dtype::Bf16 {
        let layout = &mut geometry.components[0].layout;
        *layout = Layout { dtype: kv, scale: Scale::None, bytes_per_entry: 1152, scale_bytes_per_entry: 0, ..*layout };
    }
    RecallModel::new(&geometry, 4, 11).unwrap().into()
}

/// Layers of DeepSeek-V4, by their ratios. Those of ratio 4 have an indexer.
pub(super) fn ratios(ratios: &[u16], index: Dtype) -> Arc<RecallModel> {
    let kv = |tokens_per_entry| Layout {
        dtype: Dtype::Fp8,
        scale: Scale::PerPage,
        bytes_per_entry: 576,
        scale_bytes_per_entry: 8,
        tokens_per_entry,
        page_tokens: 256,
    };
    let mut components = Vec::new();
    for (layer, ratio) in ratios.iter().enumerate() {
        let layers = LayerSet(1 << layer);
        components.push(ComponentLayout { component: Component::Kv, layers, layout: kv(*ratio) });
        if *ratio == 4 {
            let layout = Layout::index_k(index, 4, 256);
            components.push(ComponentLayout { component: Component::IndexK, layers, layout });
        }
    }
    let geometry = Geometry { layers: ratios.len() as u8, page_tokens: 1, components };
    RecallModel::new(&geometry, 3, 12).unwrap().into()
}

/// As DeepSeek-V4: a window layer, then layers of ratio 4 with an indexer around one of ratio 128.
pub(super) fn mixed(index: Dtype) -> Arc<RecallModel> {
    ratios(&[1, 4, 128, 4], index)
}

/// No layer with an entry for each token.
pub(super) fn compressed() -> [Arc<RecallModel>; 5] {
    let [fp8, bf16, fp4] = [Dtype::Fp8, Dtype::Bf16, Dtype::Fp4].map(|index| ratios(&[4], index));
    [fp8, bf16, fp4, ratios(&[128, 4, 128, 4, 128], Dtype::Fp4), ratios(&[128, 128], Dtype::Fp8)]
}

/// Two dense layers with few values to an entry.
pub(super) fn narrow(dtype: Dtype, bytes_per_entry: u16) -> Arc<RecallModel> {
    let mut geometry = Geometry::uniform(2, 64, None);
    let layout = &mut geometry.components[0].layout;
    *layout = Layout { dtype, scale: Scale::None, bytes_per_entry, scale_bytes_per_entry: 0, ..*layout };
    RecallModel::new(&geometry, 1, 13).unwrap().into()
}

/// Layers with rows of different sizes: the indexed one behind gives less room than the one in front.
pub(super) fn narrow_behind() -> Arc<RecallModel> {
    let mut model = RecallModel::clone(&uniform(2, 64, Dtype::Fp8, Dtype::Fp8));
    model.layers[1].kv.bytes_per_entry = 251;
    model.answer_max = 125;
    model.into()
}

/// The same with layers of ratio 4 and 128 first, so that a later layer closes their sums.
pub(super) fn mixed_closed_last() -> Arc<RecallModel> {
    let mut model = RecallModel::clone(&mixed(Dtype::Fp4));
    model.layers.rotate_left(1);
    model.into()
}
