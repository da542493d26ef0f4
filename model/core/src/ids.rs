//! Names of things: newtypes, so that a page is never mistaken for a request.

use core::fmt;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $inner);
    };
}

id! {
    /// A request as its client names it. A client that tries again uses the same id; the [`Life`] tells the tries apart.
    RequestId(u32)
}
id! {
    /// Counts the lives of one request id: a new submission or a re-admission after preemption starts the next one.
    Life(u32)
}
id! {
    /// One hand-over of a request from a prefill to a decode engine. Never used twice.
    Room(u32)
}
id! {
    /// The incarnation of an engine; a reset starts the next one.
    PeerLife(u32)
}
id! {
    /// One launch of the model's forward pass.
    StepId(u32)
}
id! {
    /// A page slot in a pool: `page_tokens` tokens of every layer and component.
    PageId(u32)
}
id! {
    /// Grows when a slot is given to a new owner, so that a late report cannot be taken for the new owner's.
    Generation(u32)
}
id! {
    /// A memory tier: [`Tier::DEVICE`] or [`Tier::HOST`].
    Tier(u8)
}
id! {
    /// Pages of one group are allocated together; there is one group now.
    Group(u8)
}
id! {
    /// One of the rotating sets of per-layer events that a reload records and a forward step waits on.
    EventSlot(u8)
}
id! {
    /// A row of the metadata buffer of a decode engine (first token, log-probabilities, owner).
    MetadataSlot(u32)
}
/// The content of one full block: a hash over its tokens and everything before them, salted per tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u128);
id! {
    /// One rank of a tensor-parallel group.
    Rank(u8)
}

impl Tier {
    /// GPU memory.
    pub const DEVICE: Tier = Tier(0);
    /// Host memory.
    pub const HOST: Tier = Tier(1);
}

/// A page slot in one life: which tier, which page, which generation of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockRef {
    /// The allocation group.
    pub group: Group,
    /// The memory tier.
    pub tier: Tier,
    /// The slot.
    pub page: PageId,
    /// The life of the slot that is meant.
    pub generation: Generation,
}

/// One copy or send. Carries the life of the request that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId {
    /// Grows by one with every transfer of a manager.
    pub serial: u32,
    /// Where the manager keeps the record; reused.
    pub index: u32,
    /// The request that asked for it.
    pub request: RequestId,
    /// The life of that request.
    pub life: Life,
}

/// A part of a transfer that is reported by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Part {
    /// The rank that moves it.
    pub rank: Rank,
    /// What is moved.
    pub kind: PartKind,
    /// Tells several handles of one kind apart: where a part of a chunked send begins.
    pub handle: u32,
}

/// What a part of a transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PartKind {
    /// All components at once, as copies between tiers do.
    Whole,
    /// KV entries.
    Kv,
    /// Index keys.
    IndexK,
    /// The metadata row.
    Metadata,
}

/// `d12.3`: the tier, the slot, the generation; with a group other than the first, `.g1` behind it.
impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tier = if self.tier == Tier::DEVICE { 'd' } else { 'h' };
        write!(f, "{tier}{}.{}", self.page.0, self.generation.0)?;
        if self.group == Group(0) { Ok(()) } else { write!(f, ".g{}", self.group.0) }
    }
}

/// `t7.2.r4.1`: the serial number, the record, the request and its life.
impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}.r{}.{}", self.serial, self.index, self.request.0, self.life.0)
    }
}
