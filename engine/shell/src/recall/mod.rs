//! The recall model: a synthetic model whose next token can only come from the cache.
//!
//! It makes corruption visible as text without model weights. The prompt is a transcript with facts, and the right
//! answer is a tool call that repeats one of them. A device computes a [`Step`] layer by layer: score the index keys,
//! read the selected rows, write the rows of new tokens. An answer byte is two nibbles, each the sum modulo 16 of one
//! value from every full page of the context in every layer, and of one *closing share* per layer, which lies in the
//! row of the marker token behind the prompt and makes the sum come out right. Where tokens share an entry, the layers
//! with the fewest tokens to an entry close for the others, and a prompt must end with an entry of theirs
//! ([`RecallModel::align`]): there is no share for any other marker, and its answer comes out wrong.
//!
//! | what | is | where it lies |
//! |---|---|---|
//! | code | a number below the entries of a page; each entry of a page has its own | the index key: a row of a Hadamard matrix |
//! | query | a code that the answer byte, the prompt and the layer choose: it finds one entry in every page | nowhere |
//! | value | a nibble that the tokens up to the entry, the layer and the dimension determine | the KV row |
//! | closing share | right nibble, less the expected sum, plus twice what was read wrong | the KV row of [`MARK`] |
//!
//! A read that is wrong by `d` when the answer is decoded shifts a nibble by `d`; when the prompt was computed, by
//! `2 d`; both times, by `3 d`. A prompt that read anything wrong never samples the right first byte either. A step of
//! several tokens that reads anything wrong, with a marker or without, also writes wrong values, as any model would, so
//! that a wrong read by an early chunk of a prompt shows in the end.
//!
//! Everything is an integer or a small multiple of a power of two, so that no order of summation matters, and
//! everything is a function of the tokens and the bytes read: no clock, no thread, no input or output.
//!
//! # What it cannot see
//!
//! A single wrong entry that no byte of the answer selects; wrong bytes in a page that is not yet full, except the row
//! of the marker; what an early chunk reads wrong that completes no entry, where tokens share them. Pages with fewer
//! than about 16 entries have few codes, so that the keys of two pages may agree by chance; a row of a marker has no
//! values, so that a page of nothing but such rows could hold anything.

mod answer;
mod chain;
mod class;
mod codes;
mod layer;
mod model;
mod row;
mod sequence;
mod step;
#[cfg(test)]
mod tests;
mod transcript;

pub use answer::{ANSWER_MAX, ANSWER_MIN, END, text};
pub use chain::Chain;
pub use class::{Class, classify};
pub use layer::LayerShape;
pub use model::{RecallModel, ShapeError};
pub use step::{Changed, Step};
pub use transcript::{Agent, Shape};

/// A token: a byte, or [`MARK`].
pub type Token = u16;

/// The token that begins the assistant's turn. The answer of a prompt follows it.
pub const MARK: Token = 256;

/// The byte of page memory that nothing was written to.
pub const POISON: u8 = 0xff;
