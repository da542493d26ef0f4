//! What one layer stores, and where its entries lie in a page.

use core::ops::Range;

use kvweft_core::{Dtype, Layout, Scale};
use kvweft_kernels::{IndexFormat, KvFormat};

/// Values of a KV row, at most: those that DeepSeek's rows store as 8-bit floats.
const VALUES_MAX: usize = 448;

/// The layouts of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Its index keys. A layer without them is dense: it reads every entry of every full page.
    pub index: Option<Layout>,
    /// Its KV entries.
    pub kv: Layout,
}

impl LayerShape {
    /// Tokens that share an entry; never more than a page has.
    pub fn tokens_per_entry(&self) -> usize {
        self.kv.tokens_per_entry.min(self.kv.page_tokens).max(1) as usize
    }

    /// Entries of a page, at least 1.
    pub fn entries(&self) -> usize {
        (self.kv.page_tokens as usize / self.tokens_per_entry()).max(1)
    }

    /// Complete entries of a page of which `tokens` tokens exist.
    pub fn complete(&self, tokens: usize) -> usize {
        (tokens / self.tokens_per_entry()).min(self.entries())
    }

    /// Where a KV row lies in its page.
    pub fn row(&self, entry: usize) -> Range<usize> {
        let (bytes, scale) = (self.kv.bytes_per_entry as usize, self.kv.scale_bytes_per_entry as usize);
        let stride = if self.kv.scale == Scale::PerRow { bytes + scale } else { bytes };
        entry * stride..entry * stride + bytes
    }

    /// Where the scale of a KV row lies in its page; empty if there is none.
    pub fn scale(&self, entry: usize) -> Range<usize> {
        let scale = self.kv.scale_bytes_per_entry as usize;
        let begin = match self.kv.scale {
            Scale::None => return 0..0,
            Scale::PerRow => self.row(entry).end,
            Scale::PerPage => self.row(self.entries()).start + entry * scale,
        };
        begin..begin + scale
    }

    /// Bytes of a page of KV entries.
    pub fn kv_page_bytes(&self) -> usize {
        let scale = if self.kv.scale == Scale::None { 0 } else { self.kv.scale_bytes_per_entry as usize };
        self.entries() * (self.kv.bytes_per_entry as usize + scale)
    }

    /// Bytes of a page of index keys; 0 if there are none.
    pub fn index_page_bytes(&self) -> usize {
        self.format().map_or(0, |format| format.page_bytes(self.entries()))
    }

    /// How the kernels name the layout of the index keys.
    pub(super) fn format(&self) -> Option<IndexFormat> {
        let dtype = self.index?.dtype;
        Some(match dtype {
            Dtype::Fp8 => IndexFormat::Fp8,
            Dtype::Bf16 => IndexFormat::Bf16,
            Dtype::Fp4 => IndexFormat::Fp4,
        })
    }

    /// How the kernels name the layout of the KV rows, where they know it.
    pub(super) fn kv_format(&self) -> Option<KvFormat> {
        let Layout { dtype, scale, bytes_per_entry, scale_bytes_per_entry, .. } = self.kv;
        let format = match (dtype, scale) {
            (Dtype::Fp8, Scale::PerRow) => KvFormat::Fp8,
            (Dtype::Bf16, Scale::None) => KvFormat::Bf16,
            _ => return None,
        };
        (format.row_bytes() == usize::from(bytes_per_entry + scale_bytes_per_entry)).then_some(format)
    }

    /// Values of a KV row.
    pub(super) fn values(&self) -> usize {
        let bytes = self.kv.bytes_per_entry as usize;
        match self.kv.dtype {
            Dtype::Fp8 => bytes.min(VALUES_MAX),
            Dtype::Bf16 => (bytes / 2).min(VALUES_MAX),
            Dtype::Fp4 => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(scale: Scale, scale_bytes_per_entry: u16, tokens_per_entry: u16) -> LayerShape {
        let kv = Layout {
            dtype: Dtype::Fp8,
            scale,
            bytes_per_entry: 576,
            scale_bytes_per_entry,
            tokens_per_entry,
            page_tokens: 256,
        };
        LayerShape { index: None, kv }
    }

    #[test]
    fn rows_and_scales_tile_the_page() {
        let shapes = [(Scale::None, 0, 1), (Scale::PerRow, 16, 4), (Scale::PerPage, 8, 128), (Scale::PerPage, 8, 1)];
        for (scale, bytes, tokens) in shapes {
            let shape = shape(scale, bytes, tokens);
            assert_eq!(shape.kv_page_bytes(), shape.kv.page_bytes() as usize);
            let mut hits = vec![0; shape.kv_page_bytes()];
            for entry in 0..shape.entries() {
                shape.row(entry).chain(shape.scale(entry)).for_each(|byte| hits[byte] += 1);
            }
            assert!(hits.iter().all(|hit| *hit == 1), "{shape:?}");
        }
    }

    #[test]
    fn an_entry_of_more_tokens_than_a_page_is_one_entry() {
        let shape = shape(Scale::None, 0, 512);
        assert_eq!((shape.entries(), shape.complete(255), shape.complete(256)), (1, 0, 1));
    }
}
