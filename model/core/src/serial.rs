//! How names are written in event logs: short texts, so that a line of a log fits a line of a screen.
//!
//! A page is `d12.3` (device or host, slot, generation), a transfer `t7.2.r4.1` (serial number, record, request, life), a
//! block its hash in 32 hexadecimal digits, a rule `rule@site`, and a set of rules the list of those that are *missing*.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{BlockHash, BlockRef, Generation, Group, Life, PageId, RequestId, Tier, TransferId};
use crate::rules::{RuleSet, RuleSite, parse_rule};

/// Serialises a type as its text, and reads it back with a function from text.
macro_rules! as_text {
    ($type:ty, $write:expr, $read:expr, $expected:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&$write(self))
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $read(&text)
                    .ok_or_else(|| D::Error::custom(format!(concat!("expected ", $expected, ", got `{}`"), text)))
            }
        }
    };
}

as_text!(BlockHash, |hash: &BlockHash| format!("{:032x}", hash.0), block_hash, "32 hexadecimal digits");
as_text!(BlockRef, BlockRef::to_string, page, "a page such as `d12.3`");
as_text!(TransferId, TransferId::to_string, transfer, "a transfer such as `t7.2.r4.1`");
as_text!(RuleSite, RuleSite::to_string, rule_site, "a rule such as `free-once@drain`");

fn block_hash(text: &str) -> Option<BlockHash> {
    (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(BlockHash)).flatten()
}

fn page(text: &str) -> Option<BlockRef> {
    let tier = match text.get(..1)? {
        "d" => Tier::DEVICE,
        "h" => Tier::HOST,
        _ => return None,
    };
    let mut parts = text[1..].split('.');
    let page = PageId(parts.next()?.parse().ok()?);
    let generation = Generation(parts.next()?.parse().ok()?);
    let group = match parts.next() {
        Some(group) => Group(group.strip_prefix('g')?.parse().ok()?),
        None => Group(0),
    };
    parts.next().is_none().then_some(BlockRef { group, tier, page, generation })
}

fn transfer(text: &str) -> Option<TransferId> {
    let mut parts = text.strip_prefix('t')?.split('.');
    let serial = parts.next()?.parse().ok()?;
    let index = parts.next()?.parse().ok()?;
    let request = RequestId(parts.next()?.strip_prefix('r')?.parse().ok()?);
    let life = Life(parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(TransferId { serial, index, request, life })
}

fn rule_site(text: &str) -> Option<RuleSite> {
    text.contains('@').then(|| parse_rule(text).ok()?.iter().next()).flatten()
}

impl Serialize for RuleSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let missing = RuleSite::all().filter(|&at| !self.has(at));
        serializer.collect_seq(missing)
    }
}

impl<'de> Deserialize<'de> for RuleSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let missing = Vec::<RuleSite>::deserialize(deserializer)?;
        Ok(missing.into_iter().fold(RuleSet::ALL, RuleSet::without))
    }
}
