//! The obligations of the protocol. All kept = correct; each can be dropped at each of its sites.
//!
//! Dropping a rule makes the manager itself leave out that fence, pin, wake, poll or check, so the same defect shows
//! under the explorer, on threads and on a GPU.

use core::fmt;

/// The place where a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it; docs/rules.md explains each")]
pub enum Site {
    Abort,
    Admit,
    Bootstrap,
    Deadline,
    DecodeAbort,
    Device,
    Drain,
    Events,
    Failure,
    Finish,
    Flush,
    Forward,
    Handshake,
    Host,
    HostPool,
    IndexK,
    Kv,
    Match,
    Metadata,
    Offload,
    PagedDecode,
    Part,
    Pending,
    Pins,
    Preempt,
    PrefillAbort,
    RaggedPrefill,
    Receive,
    Reload,
    Rooms,
    Schedule,
    Send,
    SendFailure,
    Status,
    Step,
    Transfers,
}

impl Site {
    /// The kebab-case name, as in `rule@site`.
    pub const fn name(self) -> &'static str {
        match self {
            Site::Abort => "abort",
            Site::Admit => "admit",
            Site::Bootstrap => "bootstrap",
            Site::Deadline => "deadline",
            Site::DecodeAbort => "decode-abort",
            Site::Device => "device",
            Site::Drain => "drain",
            Site::Events => "events",
            Site::Failure => "failure",
            Site::Finish => "finish",
            Site::Flush => "flush",
            Site::Forward => "forward",
            Site::Handshake => "handshake",
            Site::Host => "host",
            Site::HostPool => "host-pool",
            Site::IndexK => "index-k",
            Site::Kv => "kv",
            Site::Match => "match",
            Site::Metadata => "metadata",
            Site::Offload => "offload",
            Site::PagedDecode => "paged-decode",
            Site::Part => "part",
            Site::Pending => "pending",
            Site::Pins => "pins",
            Site::Preempt => "preempt",
            Site::PrefillAbort => "prefill-abort",
            Site::RaggedPrefill => "ragged-prefill",
            Site::Receive => "receive",
            Site::Reload => "reload",
            Site::Rooms => "rooms",
            Site::Schedule => "schedule",
            Site::Send => "send",
            Site::SendFailure => "send-failure",
            Site::Status => "status",
            Site::Step => "step",
            Site::Transfers => "transfers",
        }
    }
}

macro_rules! rules {
    ($($variant:ident, $name:literal, [$($site:ident),*], $obligation:literal, $seen_in:literal;)*) => {
        /// One obligation of the manager.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $obligation] $variant,)*
        }

        /// Every rule, in the order of `docs/rules.md`.
        pub const RULES: &[RuleInfo] = &[
            $(RuleInfo {
                rule: Rule::$variant,
                name: $name,
                sites: &[$(Site::$site),*],
                obligation: $obligation,
                seen_in: $seen_in,
            },)*
        ];
    };
}

/// What is known of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// The rule.
    pub rule: Rule,
    /// Its kebab-case name.
    pub name: &'static str,
    /// Where it applies. Empty for a rule that no world can show yet.
    pub sites: &'static [Site],
    /// What the manager owes.
    pub obligation: &'static str,
    /// Public reports of systems where it was missing.
    pub seen_in: &'static str,
}

rules! {
    HostLayoutFromDevice, "host-layout-from-device", [HostPool],
        "the host mirror takes dtype and bytes per token from the device pool, not from a class default", "the case; sglang #37534, #40304";
    CopyMovesPoolLayout, "copy-moves-pool-layout", [Offload, Reload],
        "offload and reload move what the layout says: no scale section where there is none", "the case";
    SendMovesPoolLayout, "send-moves-pool-layout", [Send],
        "a transfer takes item length and sections from the layout", "the case; sglang #37770";
    IndexMovesByPage, "index-moves-by-page", [],
        "index-K is addressed by page id; its scales follow all keys of the page", "sglang #31215";
    PeersAgreeOnLayout, "peers-agree-on-layout", [Handshake],
        "prefill and decode compare layouts in the handshake and refuse on a difference", "vllm #48633, sglang #37534";
    SplitsKeepGroups, "splits-keep-groups", [],
        "a prefix split never cuts a compression group that shares one index row", "sglang #38161";

    IndexReadWaitsLayer, "index-read-waits-layer", [RaggedPrefill, PagedDecode],
        "the indexer waits for the layer's reload event before its first index-K read", "sglang #22811";
    KvReadWaitsLayer, "kv-read-waits-layer", [RaggedPrefill, PagedDecode],
        "attention waits for the layer's reload event before its first KV read", "vllm #47282";
    LoadWaitsForward, "load-waits-forward", [Reload],
        "a reload into reused pages waits for the forward that may still write them", "sglang #36738";
    StoreWaitsForward, "store-waits-forward", [Offload],
        "an offload waits for the forward that writes the page", "sglang #20611, vllm #45704";
    SendWaitsWrites, "send-waits-writes", [Forward, Reload],
        "an early send waits for the forward and for any reload still filling the page", "sglang #31368, #39417";
    EventOnCopyStream, "event-on-copy-stream", [Offload, Reload],
        "the event is recorded on the stream that runs the copy", "sglang #36572 (disputed)";
    EventSlotHasGeneration, "event-slot-has-generation", [Reload],
        "a reused event slot cannot satisfy a new wait; a reload waits for a free slot", "sglang layer counter";
    RecordedBeforeWaited, "recorded-before-waited", [Reload],
        "no wait is queued on an event before the record it means has been queued", "sglang #38472";
    RestoredBeforeStep, "restored-before-step", [],
        "a step replayed as a graph waits for the last layer as a whole", "sglang 0.5.23";

    PinUntilStored, "pin-until-stored", [Finish, Abort, Preempt],
        "the device page stays pinned until its offload completes", "vllm #52360, #29870";
    PinUntilLoaded, "pin-until-loaded", [Reload, Abort, Preempt],
        "the host page stays pinned until its reload completes", "sglang #27562, #28468";
    PinUntilSent, "pin-until-sent", [Finish, Abort, Failure],
        "prefill pages stay pinned until the send completes, also on failure", "sglang #38961, TensorRT-LLM #12648";
    HoldUntilDrained, "hold-until-drained", [Abort, Deadline, Flush],
        "an aborted receive keeps its pages until the writer has stopped", "vllm #32255, sglang #35360, TensorRT-LLM #13713";
    FreeAfterLaunchedSteps, "free-after-launched-steps", [],
        "pages return only when every launched step that names them has been processed", "vllm #45357";
    AllPartsSettle, "all-parts-settle", [],
        "one failed part of a transfer ends nothing until its siblings stop", "vllm #56104";
    EvictSkipsLeased, "evict-skips-leased", [Device, Host],
        "eviction never takes a leased page, in any tier", "several";
    SplitInheritsLeases, "split-inherits-leases", [Pins, Pending],
        "both halves of a split node keep its pins and pending ids", "sglang #38480, #16946";
    MatchBeforeLoad, "match-before-load", [Reload],
        "ownership in the tree is settled before a copy into the pages is queued", "sglang #35769";
    FreeOnce, "free-once", [Abort, Drain],
        "each page is released once per life", "sglang #13483, #29310";

    VisibleAfterComplete, "visible-after-complete", [Forward, Offload],
        "a block is matchable in a tier only after its last byte is known to be there", "vllm #35092, LMCache #4991";
    IndexWithKv, "index-with-kv", [Offload, Reload, Send],
        "KV and index-K are stored, restored, sent and published as one", "Mooncake #2236, sglang #17085, #39156";
    RequestStateWithKv, "request-state-with-kv", [],
        "request-scoped state goes with transfer, preemption and resume", "DeepSeek-V4 pools";
    ClampToShortest, "clamp-to-shortest", [],
        "a partial prefetch publishes only what every component has", "sglang #30057";
    NoEarlyHitOnLoading, "no-early-hit-on-loading", [Match],
        "a second request that matches a loading block also waits for its events", "sglang 0.5.23";

    CompletionNamesLife, "completion-names-life", [Step, Status],
        "a completion changes only the life that submitted it", "vllm #51637, sglang #31589";
    SuccessNeedsAllParts, "success-needs-all-parts", [Kv, IndexK, Metadata],
        "arrived means KV, index-K and metadata from every rank", "vllm #23917, sglang #25698";
    MetadataNotBehindState, "metadata-not-behind-state", [Send],
        "metadata goes out even when there is no state to send", "sglang #25699";
    MetadataNamesRoom, "metadata-names-room", [Receive],
        "a reused metadata slot is checked for its owner before it is read", "sglang #17430";
    FailureReachesPeer, "failure-reaches-peer", [DecodeAbort, PrefillAbort, SendFailure],
        "every failure and abort is told to the other side", "sglang #36033, #30233";
    CompletionBeforeDeadline, "completion-before-deadline", [Receive],
        "a completion that is already queued beats a deadline that is only now noticed", "sglang #32267";
    CompletionIdempotent, "completion-idempotent", [Part],
        "a duplicate report changes nothing", "vllm #46240";
    WakeOnCompletion, "wake-on-completion", [Offload, Reload, Receive, Drain],
        "whoever waits for the last part is woken by it", "lost wake-ups";
    LostStatusRecovers, "lost-status-recovers", [Receive],
        "a lost terminal message is found by a status query, not by the request's death", "sglang 0.5.23";

    ReadValidatesLease, "read-validates-lease", [],
        "a one-sided read is checked against lease and generation after it ends", "Mooncake #850, vllm #41383";
    ExpiryIsNotQuiescence, "expiry-is-not-quiescence", [],
        "an expired lease revokes names; pages return only when the holder is known to have stopped", "LMCache #4967";
    WaitsAreBounded, "waits-are-bounded", [Receive, Drain],
        "every wait has a deadline, and the deadline leads to draining, never straight to free", "sglang timeouts";

    RanksAgreeOnAcks, "ranks-agree-on-acks", [],
        "acknowledgements are applied in the number and order all ranks have reached", "sglang #28429";
    RanksAgreeOnAdmission, "ranks-agree-on-admission", [],
        "admit, load and evict decisions are agreed before they are applied", "sglang #33442, LMCache #1101";
    EveryRankEnters, "every-rank-enters", [],
        "no rank skips a collective because it has nothing to do", "sglang #28429, #29483";

    ReserveBeforeHold, "reserve-before-hold", [Admit],
        "all pages a request will need are reserved before it holds any", "vllm #57104, #45388";
    PreemptSkipsFenced, "preempt-skips-fenced", [],
        "preemption does not count on pages that are still fenced", "vllm #49674";
    ScanPastHead, "scan-past-head", [Schedule],
        "a head that does not fit does not block those that do", "vllm #57841";
    ResetClearsEverything, "reset-clears-everything", [Transfers, Rooms, Events],
        "a reset leaves no transfer, lease, event or room of the former life", "the case; sglang reset";
}

impl Rule {
    /// What is known of the rule.
    pub fn info(self) -> &'static RuleInfo {
        &RULES[self as usize]
    }

    /// The kebab-case name.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The rule at one of its sites.
    ///
    /// # Panics
    /// If the rule does not apply at `site`: a mistake in the manager.
    pub const fn at(self, site: Site) -> RuleSite {
        let sites = RULES[self as usize].sites;
        let mut i = 0;
        while i < sites.len() {
            if sites[i] as u8 == site as u8 {
                return RuleSite { rule: self, site, bit: FIRST_BIT[self as usize] + i as u8 };
            }
            i += 1;
        }
        panic!("the rule has no such site");
    }
}

/// The first bit of each rule in a [`RuleSet`].
const FIRST_BIT: [u8; RULES.len()] = {
    let mut first = [0u8; RULES.len()];
    let mut next = 0;
    let mut i = 0;
    while i < RULES.len() {
        first[i] = next;
        next += RULES[i].sites.len() as u8;
        i += 1;
    }
    assert!(next as usize <= 128);
    first
};

/// A rule at one site: what can be dropped, and what a fence is owed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleSite {
    /// The rule.
    pub rule: Rule,
    /// The site.
    pub site: Site,
    bit: u8,
}

impl RuleSite {
    /// Every rule at every site that a world can show, in the order of [`RULES`].
    pub fn all() -> impl Iterator<Item = RuleSite> {
        RULES.iter().flat_map(|info| info.sites.iter().map(|&site| info.rule.at(site)))
    }

    /// A small number, the same for every run of one version.
    pub const fn index(self) -> usize {
        self.bit as usize
    }
}

impl fmt::Display for RuleSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.rule.name(), self.site.name())
    }
}

/// A set of rules at sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RuleSet(u128);

impl RuleSet {
    /// No rule.
    pub const EMPTY: RuleSet = RuleSet(0);
    /// Every rule at every site: the correct protocol.
    pub const ALL: RuleSet = RuleSet(u128::MAX);

    /// Whether the set has the rule at that site.
    pub const fn has(self, at: RuleSite) -> bool {
        self.0 >> at.bit & 1 == 1
    }

    /// The set without the rule at that site.
    #[must_use]
    pub const fn without(self, at: RuleSite) -> RuleSet {
        RuleSet(self.0 & !(1 << at.bit))
    }

    /// The set with the rule at that site.
    #[must_use]
    pub const fn with(self, at: RuleSite) -> RuleSet {
        RuleSet(self.0 | 1 << at.bit)
    }

    /// Everything in either set.
    #[must_use]
    pub const fn union(self, other: RuleSet) -> RuleSet {
        RuleSet(self.0 | other.0)
    }

    /// The members, in the order of [`RULES`].
    pub fn iter(self) -> impl Iterator<Item = RuleSite> {
        RuleSite::all().filter(move |&at| self.has(at))
    }

    /// One bit a rule at a site: the bit of [`RuleSite::index`].
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Whether no rule is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Why a text names no rule that can be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownRule {
    /// No rule has this name.
    Rule,
    /// The rule exists and has no such site; these it has.
    Site(&'static RuleInfo),
    /// The rule is known, but no world can show it yet.
    NotModelled(&'static RuleInfo),
}

/// The sites meant by `rule` or `rule@site`.
///
/// # Errors
/// When the text names no rule, no site of it, or a rule that is not modelled yet.
pub fn parse_rule(text: &str) -> Result<RuleSet, UnknownRule> {
    let (name, site) = match text.split_once('@') {
        Some((name, site)) => (name, Some(site)),
        None => (text, None),
    };
    let info = RULES.iter().find(|info| info.name == name).ok_or(UnknownRule::Rule)?;
    if info.sites.is_empty() {
        return Err(UnknownRule::NotModelled(info));
    }
    let mut set = RuleSet::EMPTY;
    for &candidate in info.sites {
        if site.is_none_or(|site| candidate.name() == site) {
            set = set.with(info.rule.at(candidate));
        }
    }
    if set.is_empty() { Err(UnknownRule::Site(info)) } else { Ok(set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_at_every_site_has_its_own_bit() {
        let bits: alloc::vec::Vec<usize> = RuleSite::all().map(RuleSite::index).collect();
        let expected: alloc::vec::Vec<usize> = (0..bits.len()).collect();
        assert_eq!(bits, expected);
    }

    #[test]
    fn names_parse_back_and_unmodelled_rules_say_so() {
        for at in RuleSite::all() {
            let parsed = parse_rule(&alloc::format!("{at}")).unwrap();
            assert_eq!(parsed, RuleSet::EMPTY.with(at));
        }
        assert_eq!(parse_rule("kv-read-waits-layer").unwrap().iter().count(), 2);
        assert!(matches!(parse_rule("all-parts-settle"), Err(UnknownRule::NotModelled(_))));
        assert!(matches!(parse_rule("free-once@finish"), Err(UnknownRule::Site(_))));
        assert_eq!(parse_rule("free-twice"), Err(UnknownRule::Rule));
    }
}
