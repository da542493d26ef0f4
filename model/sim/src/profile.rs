//! What things cost: a profile of a machine, every figure with its source or the word that it is assumed.

use serde::{Deserialize, Serialize};

/// A figure, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// The figure, in the unit that its key names.
    pub value: u64,
    /// Who published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why it is assumed, where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
}

macro_rules! profile {
    ($($(#[doc = $doc:literal])+ $key:ident,)+) => {
        /// A machine, as far as time goes. Ranks move and compute the same things side by side, so figures are of one rank.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Profile {
            /// The version of the form.
            pub format: u32,
            /// The name.
            pub name: String,
            /// One line about it.
            pub title: String,
            $($(#[doc = $doc])+ pub $key: Quantity,)+
        }

        impl Profile {
            /// Every figure by its key, in the order of the documentation.
            pub fn quantities(&self) -> Vec<(&'static str, &Quantity)> {
                vec![$((stringify!($key), &self.$key)),+]
            }
        }

        /// The figures of a profile alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct Costs {
            $(pub(crate) $key: u64,)+
        }

        impl From<&Profile> for Costs {
            fn from(profile: &Profile) -> Costs {
                Costs { $($key: profile.$key.value,)+ }
            }
        }
    };
}

profile! {
    /// Host to device, in megabytes a second.
    load_mb_per_s,
    /// Device to host, in megabytes a second.
    store_mb_per_s,
    /// What is left of each direction while both are used, in percent.
    both_ways_percent,
    /// Launching the copy of one layer, in nanoseconds.
    copy_launch_ns,
    /// Each further run of neighbouring pages in it, in nanoseconds.
    copy_extent_ns,
    /// Launching a forward step, in nanoseconds.
    step_launch_ns,
    /// A prefill step, whatever it computes, in nanoseconds.
    prefill_base_ns,
    /// Each token of it, in picoseconds.
    prefill_token_ps,
    /// Each pair of a token and one before it, in femtoseconds: attention.
    prefill_pair_fs,
    /// A decode step, whatever it computes, in nanoseconds.
    decode_base_ns,
    /// Each request of it, in picoseconds.
    decode_request_ps,
    /// Each cached token that it reads, in femtoseconds.
    decode_context_fs,
    /// A write into the peer's memory arrives so much later, in nanoseconds.
    network_latency_ns,
    /// Between two engines, in megabytes a second; writes under way at once share it.
    network_mb_per_s,
    /// A message between two engines, in nanoseconds.
    message_ns,
    /// Steps and copies take up to so much more or less, by chance, in permille.
    jitter_permille,
}

/// Figures that a division needs, or that would let time go backwards.
const POSITIVE: [&str; 4] = ["load_mb_per_s", "store_mb_per_s", "both_ways_percent", "network_mb_per_s"];

impl Profile {
    /// What is wrong with it: the key, and what was expected.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.format != 1 {
            faults.push(("format", format!("expected 1, got {}", self.format)));
        }
        for (key, quantity) in self.quantities() {
            if quantity.source.is_some() == quantity.assumed.is_some() {
                faults.push((key, "expected either `source` or `assumed`".to_owned()));
            }
            let min = u64::from(POSITIVE.contains(&key));
            let max = match key {
                "both_ways_percent" => 100,
                "jitter_permille" => 999,
                _ => 1 << 40,
            };
            if !(min..=max).contains(&quantity.value) {
                faults.push((key, format!("expected {min} to {max}, got {}", quantity.value)));
            }
        }
        faults
    }
}

impl Costs {
    /// A step that computes `tokens` prompt tokens behind `cached` others, in nanoseconds.
    pub(crate) fn prefill_ns(&self, cached: u64, tokens: u64) -> u64 {
        // Each token attends to all before it.
        let pairs = u128::from(tokens) * u128::from(cached) + u128::from(tokens) * u128::from(tokens) / 2;
        let pairs_ns = (pairs * u128::from(self.prefill_pair_fs) / 1_000_000) as u64;
        self.prefill_base_ns + tokens * self.prefill_token_ps / 1000 + pairs_ns
    }

    /// A step that continues `requests` answers and reads `context` cached tokens, in nanoseconds.
    pub(crate) fn decode_ns(&self, requests: u64, context: u64) -> u64 {
        let context_ns = (u128::from(context) * u128::from(self.decode_context_fs) / 1_000_000) as u64;
        self.decode_base_ns + requests * self.decode_request_ps / 1000 + context_ns
    }
}

/// How long `bytes` take at `mb_per_s`, in nanoseconds.
pub(crate) fn transfer_ns(bytes: u64, mb_per_s: u64) -> u64 {
    (u128::from(bytes) * 1000).div_ceil(u128::from(mb_per_s)) as u64
}
