//! What a page holds: layers, components, and the bytes of each.

use alloc::vec::Vec;

/// What a component stores for a token (or a compressed entry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Component {
    /// Latent keys and values that attention reads.
    Kv,
    /// Keys that the sparse indexer scores.
    IndexK,
}

impl Component {
    /// The name in traces and files.
    pub const fn name(self) -> &'static str {
        match self {
            Component::Kv => "kv",
            Component::IndexK => "index-k",
        }
    }
}

/// How the numbers of a component are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Dtype {
    /// 8-bit floats with scales.
    Fp8,
    /// 16-bit brain floats without scales.
    Bf16,
    /// 4-bit floats with scales.
    Fp4,
}

/// Where the scales of a component lie in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Scale {
    /// There are none.
    None,
    /// In one section after all entries of the page, so that no entry is contiguous with its scale.
    PerPage,
    /// Behind each entry.
    PerRow,
}

/// The bytes of one component in one page of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Layout {
    /// How numbers are stored.
    pub dtype: Dtype,
    /// Where scales lie.
    pub scale: Scale,
    /// Bytes of one entry without its scale.
    pub bytes_per_entry: u16,
    /// Bytes of the scale of one entry; 0 with [`Scale::None`].
    pub scale_bytes_per_entry: u16,
    /// Tokens that share one entry (4 for a ratio-4 compressed layer).
    pub tokens_per_entry: u16,
    /// Tokens of a page.
    pub page_tokens: u16,
}

impl Layout {
    /// Index keys of 128 values, as the DeepSeek indexer stores them.
    pub const fn index_k(dtype: Dtype, tokens_per_entry: u16, page_tokens: u16) -> Layout {
        let (bytes_per_entry, scale_bytes_per_entry, scale) = match dtype {
            Dtype::Fp8 => (128, 4, Scale::PerPage),
            Dtype::Bf16 => (256, 0, Scale::None),
            Dtype::Fp4 => (64, 4, Scale::PerPage),
        };
        Layout { dtype, scale, bytes_per_entry, scale_bytes_per_entry, tokens_per_entry, page_tokens }
    }

    /// Bytes of a page, before padding.
    pub const fn page_bytes(&self) -> u32 {
        let entries = (self.page_tokens / self.tokens_per_entry) as u32;
        entries * (self.bytes_per_entry as u32 + self.scale_bytes_per_entry as u32)
    }

    /// The layout that code assumes which was written for fp8 index keys: a scale section whatever the pool says.
    pub const fn class_default(&self, component: Component) -> Layout {
        match component {
            Component::IndexK => Layout::index_k(Dtype::Fp8, self.tokens_per_entry, self.page_tokens),
            Component::Kv => *self,
        }
    }
}

/// A set of layers, at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerSet(pub u64);

impl LayerSet {
    /// Layers `0..count`.
    pub const fn first(count: u8) -> LayerSet {
        LayerSet(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// Whether the set has `layer`.
    pub const fn has(self, layer: u8) -> bool {
        self.0 >> layer & 1 == 1
    }

    /// The number of layers.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One component of a model: which layers have it, and how it is stored there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ComponentLayout {
    /// What it stores.
    pub component: Component,
    /// The layers that have it.
    pub layers: LayerSet,
    /// How its pages are laid out.
    pub layout: Layout,
}

/// The shape of a model's cache: data, not code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Geometry {
    /// The number of layers, at most 64.
    pub layers: u8,
    /// Tokens of a page.
    pub page_tokens: u16,
    /// Components; layers whose layouts differ have entries of their own.
    pub components: Vec<ComponentLayout>,
}

impl Geometry {
    /// Whether any layer has index keys.
    pub fn has_index(&self) -> bool {
        self.components.iter().any(|c| c.component == Component::IndexK)
    }

    /// The layout of `component` in `layer`, if the layer has it.
    pub fn layout(&self, layer: u8, component: Component) -> Option<Layout> {
        let found = self.components.iter().find(|c| c.component == component && c.layers.has(layer));
        found.map(|c| c.layout)
    }

    /// A uniform model of `layers` layers with fp8 KV and, if given, index keys of that dtype.
    pub fn uniform(layers: u8, page_tokens: u16, index_k: Option<Dtype>) -> Geometry {
        let all = LayerSet::first(layers);
        let kv = Layout {
            dtype: Dtype::Fp8,
            scale: Scale::PerRow,
            bytes_per_entry: 640,
            scale_bytes_per_entry: 16,
            tokens_per_entry: 1,
            page_tokens,
        };
        let mut components = alloc::vec![ComponentLayout { component: Component::Kv, layers: all, layout: kv }];
        if let Some(dtype) = index_k {
            let layout = Layout::index_k(dtype, 1, page_tokens);
            components.push(ComponentLayout { component: Component::IndexK, layers: all, layout });
        }
        Geometry { layers, page_tokens, components }
    }
}
