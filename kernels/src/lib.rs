//! The sparse-attention path on the CPU: the reference that a GPU kernel is compared with, and the compute of an
//! engine of host threads.
//!
//! | step | function | from | to |
//! |---|---|---|---|
//! | write an index key | [`write_key`] | 128 values | a token of a page of index keys |
//! | score | [`page_logits`], or [`decode_keys`] and [`fn@logits`] | pages, a [`Query`] | one logit per token |
//! | select | [`fn@top_k`] | logits | positions, ascending |
//! | write and read KV | [`write_row`], [`read_row`], [`read_nope`] | 576 values | a row of 656 or 1152 bytes |
//! | attend | [`sparse_attention`] | the selected rows | one output per head |
//! | sum | [`select_sum`] | the selected rows, integers | the exact sum |
//! | identify | [`fn@checksum`], [`checksum_bytes`] | a page | 64 bits that survive relocation |
//!
//! # What holds for all of them
//!
//! * **Same input, same bits.** Every sum has one order, written in the function's documentation, which depends on
//!   shapes only; no fused multiply-add is used and no function of the platform's mathematical library.
//! * **Numbers in pages are little endian**, whatever the machine.
//! * **Poison shows.** A page full of `0xff` decodes to NaN in every format, a NaN in a key reaches the logit (the
//!   relu passes it on), [`fn@top_k`] counts it and selects it last, [`sparse_attention`] passes it on, and
//!   [`select_sum`] refuses it. A GPU kernel whose relu is a plain `fmaxf` turns it into 0 instead.
//! * **Shapes are the caller's duty**: a wrong length panics, with both lengths in the message. Data never panics.
//!
//! # The exact mode
//!
//! If queries and keys are integers of at most 8 in size, weights integers of at most 32, heads at most 64, and scales
//! powers of two, then a dot product is at most 128 x 64 = 2^13 and a logit at most 2^24 in size, times a power of two.
//! Every partial sum is then exact in `f32`, so that *any* order of summation gives the same bits, on any device, and
//! selections can be compared for equality. [`ScaleRule::PowerOfTwo`] keeps this from the values to the logit, because
//! it multiplies integers by a power of two that the scale takes away again. [`ScaleRule::Amax`] does not.
//!
//! # What this crate does not know
//!
//! Pools, block tables, generations, threads and time. A page is a slice of bytes that somebody else has found.
//!
//! With the feature `cuda`, the module `gpu` has the same functions as kernels for GPUs.
#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]

mod attention;
mod checksum;
mod float4;
mod float8;
#[cfg(feature = "cuda")]
pub mod gpu;
mod index_k;
mod kv;
mod logits;
mod math;
mod scale;
mod sum;
mod top_k;

pub use attention::{AttentionQuery, sparse_attention};
pub use checksum::{checksum, checksum_bytes, mix64};
pub use float4::{E2M1_MAX, e2m1_from_f32, e2m1_to_f32};
pub use float8::{E4M3_MAX, e4m3_from_f32, e4m3_to_f32};
pub use index_k::{IndexFormat, KEY_DIM, decode_key, key_sections, read_key, write_key};
pub use kv::{KvFormat, NOPE_DIM, ROPE_DIM, ROW_DIM, read_nope, read_row, write_row};
pub use logits::{Query, decode_keys, logits, page_logits};
pub use scale::{ScaleRule, ue8m0_from_f32, ue8m0_to_f32};
pub use sum::{SUM_ROWS_MAX, SUM_VALUE_MAX, SumError, select_sum};
pub use top_k::{TopK, top_k};
