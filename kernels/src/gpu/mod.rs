//! The kernels on CUDA: the same functions as the references of this crate, launched on a stream.
//!
//! | kernel | type | reference |
//! |---|---|---|
//! | write index keys | [`IndexKWrite`] | [`write_key`](crate::write_key) |
//! | score | [`IndexLogits`] | [`page_logits`](crate::page_logits) |
//! | select | [`TopKRows`] | [`top_k`](fn@crate::top_k) |
//! | attend | [`SparseAttention`] | [`sparse_attention`](crate::sparse_attention) |
//! | sum | [`SelectSum`] | [`select_sum`](crate::select_sum) |
//! | copy | [`PageCopy`] | a copy, and [`checksum`](fn@crate::checksum) |
//! | poison, verify | [`PageCare`] | a fill with `0xff`, and [`checksum`](fn@crate::checksum) |
//!
//! Sources are in `kernels/cu`, one file each; [`Image`] has what they were compiled to, for `sm_90` (H100, H200; `sm_90a`
//! where `wgmma` is used) and `sm_120` (RTX PRO 6000, GeForce 50), and the source itself. `kernels/cu/build.py` makes and
//! checks them.
//!
//! # What holds for all of them
//!
//! * **Launching is safe, making a [`Span`] is not.** Lengths and alignments are checked against spans before a launch;
//!   page numbers are checked on the device, where one that is out of range is absent, and counted.
//! * **Nothing waits.** A launch returns when it is in the stream. No block of a kernel waits for another one, except the
//!   blocks of a row in [`TopKRows`]: these are one cluster, which the device runs as a whole or not yet. So any number of
//!   kernels may share a device. There are no cooperative launches.
//! * **Launches overlap.** Logits, top-k and attention may be launched while the kernel in front of them in the stream ends;
//!   they wait for it on the device, before they touch memory. What comes behind waits for both.
//! * **Same input, same bits**, however many blocks there are, except that [`SparseAttention`] rounds differently for
//!   different [`SparseAttentionArgs::splits`].
//! * The context of the stream must be current in the calling thread; otherwise a launch returns
//!   `CUDA_ERROR_INVALID_CONTEXT`.
//!
//! # What this module does not know
//!
//! Contexts, devices, allocation, events: see `kvweft-cuda`.

mod image;
mod index_k_write;
mod index_logits;
mod launch;
mod page_care;
mod page_copy;
mod select_sum;
mod span;
mod sparse_attention;
mod top_k;

pub use image::{ATTENTION_PORTABLE_SM_90, Arch, IMAGES, Image, LOGITS_PORTABLE_SM_90, image};
pub use index_k_write::{IndexKWrite, IndexKWriteArgs, KeyType};
pub use index_logits::{IndexLogits, IndexLogitsArgs, LOGITS_HEADS_MAX};
pub use launch::{LaunchError, Module};
pub use page_care::{PageCare, PoisonArgs, VerifyArgs};
pub use page_copy::{CopyMethod, JOB_BYTES, Job, PageCopy};
pub use select_sum::{SelectSum, SelectSumArgs};
pub use span::{PagePool, RawStream, Span};
pub use sparse_attention::{SparseAttention, SparseAttentionArgs};
pub use top_k::{TopKArgs, TopKRows};

/// Tokens of a page, in every kernel here.
pub const PAGE_TOKENS: usize = 64;

/// Every kernel, loaded into the context that was current.
#[derive(Debug)]
pub struct Kernels {
    /// Writes index keys.
    pub index_k_write: IndexKWrite,
    /// Scores index keys.
    pub index_logits: IndexLogits,
    /// Selects.
    pub top_k: TopKRows,
    /// Attends to the selected rows.
    pub sparse_attention: SparseAttention,
    /// Sums the selected rows exactly.
    pub select_sum: SelectSum,
    /// Copies pages.
    pub page_copy: PageCopy,
    /// Poisons and verifies pages.
    pub page_care: PageCare,
}

impl Kernels {
    /// Loads every kernel at once, so that no later launch has to wait for a load: a load may wait for the device, and
    /// while a stream is held by a gate it then waits for ever.
    ///
    /// `code` turns an image into code for the device, for instance by [`Image::cubin`].
    ///
    /// # Errors
    ///
    /// What `code` returns, or that the driver refuses a cubin.
    pub fn load<E: From<LaunchError>>(
        code: &mut dyn FnMut(&'static Image) -> Result<Vec<u8>, E>,
    ) -> Result<Kernels, E> {
        let mut module = |name| Module::load(name, &code(image(name))?).map_err(E::from);
        Ok(Kernels {
            index_k_write: IndexKWrite::new(module("index_k_write")?)?,
            index_logits: IndexLogits::new(module("index_logits")?)?,
            top_k: TopKRows::new(module("top_k")?)?,
            sparse_attention: SparseAttention::new(
                module("sparse_attention")?,
                module("sparse_attention_few")?,
                module("attention_merge")?,
            )?,
            select_sum: SelectSum::new(module("select_sum")?)?,
            page_copy: PageCopy::new(module("page_copy")?)?,
            page_care: PageCare::new(module("page_care")?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `build.py` adds what a source says to its static shared memory.
    #[test]
    fn sources_say_how_much_dynamic_shared_memory_launches_ask_for() {
        let asked = [
            ("index_logits", index_logits::shared_bytes(LOGITS_HEADS_MAX)),
            ("sparse_attention", sparse_attention::SHARED_BYTES),
            ("sparse_attention_few", sparse_attention::SHARED_BYTES),
            ("page_copy", page_copy::RING_BYTES),
        ];
        for image in &IMAGES {
            let said = image.source.split("dynamic shared memory: at most ").nth(1);
            let said = said.and_then(|rest| rest.split(' ').next()).map(|number| number.parse::<u32>());
            let asked = asked.iter().find(|(name, _)| *name == image.name).map(|(_, bytes)| Ok(*bytes));
            assert_eq!(said, asked, "{}", image.name);
        }
    }
}
