//! What the tests step around, because the manager does not do it yet. Set one to `false` with its fix, or remove it.

/// A reload fails in a prefill engine: its device pages are freed although a send of the same request, posted behind the
/// reload, still reads them.
pub const FAILED_RELOAD_FREES_UNDER_A_SEND: bool = true;

/// The end of a step is reported before the failure of a reload that it waited for: what the step computed from the lost
/// pages is published.
pub const FAILED_RELOAD_IS_NOTICED_LATE: bool = true;

/// A refusal names a transfer and not the part that was refused, and the manager takes every part of it for settled. So
/// the device must refuse a send as a whole: no part of it has begun, and parts posted later do not run either.
pub const REFUSAL_NAMES_NO_PART: bool = true;

/// A reload fails while another one, of blocks below, goes on: those blocks are then on the device and their head is not.
/// The next prompt that matches them gets a page table with pages missing from its head.
pub const FAILED_RELOAD_LEAVES_A_GAP: bool = true;

/// The canonical encoding leaves out how many tokens a request has and how urgent it is. That is enough where every
/// submission of an id is the same, as in a scenario; it is not where a client asks for something else under an old id.
pub const ENCODING_LEAVES_OUT_THE_SUBMISSION: bool = false;
