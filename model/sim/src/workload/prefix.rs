//! The prefix-tree property of block ids: equal ids mean equal blocks behind equal blocks.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::mix;

/// No block before this one.
const START: u64 = u64::MAX;

/// Hashes ids, which are numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
}

/// What stood before each id, as far as the log was read. Only looked up, never walked.
#[derive(Default)]
pub(super) struct Prefixes {
    before: HashMap<u64, u64, BuildHasherDefault<IdHasher>>,
}

impl Prefixes {
    /// Takes ids that follow `last` in a prompt.
    ///
    /// # Errors
    /// What an id stood behind before, and what it stands behind now.
    pub(super) fn take(&mut self, mut last: Option<u64>, ids: impl Iterator<Item = u64>) -> Result<(), String> {
        for id in ids {
            if id == START {
                return Err(format!("expected an id below {START}, got it itself"));
            }
            let found = last.unwrap_or(START);
            let known = *self.before.entry(id).or_insert(found);
            if known != found {
                let words = |id: u64| if id == START { "at the start".to_owned() } else { format!("behind {id}") };
                return Err(format!(
                    "block {id} does not stand for one prefix: expected it {}, as in an earlier request, found it {}",
                    words(known),
                    words(found)
                ));
            }
            last = Some(id);
        }
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.before.clear();
    }
}
