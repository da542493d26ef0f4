//! What blocks, requests and sessions are called in what comes out.

use std::collections::{HashMap, HashSet};

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};
use std::hash::Hasher;

use super::Asked;

/// A salt that is easily guessed hides nothing.
pub(super) const SALT_BYTES_MIN: usize = 16;

/// A hash that only those can compute who know the salt.
#[derive(Clone, Copy)]
pub(super) struct Salt([u8; 16]);

impl Salt {
    pub(super) fn new(text: &str) -> Salt {
        let mut hasher = SipHasher128::new();
        hasher.write(text.as_bytes());
        Salt(hasher.finish128().as_bytes())
    }

    /// 63 bits, which every reader of JSON takes for an integer.
    fn hash(self, kind: u8, pieces: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&[kind]);
        for piece in pieces {
            hasher.write(&(piece.len() as u64).to_le_bytes());
            hasher.write(piece);
        }
        hasher.finish() >> 1
    }
}

/// Names for blocks: one for each content behind the same blocks.
pub(super) struct Blocks {
    salt: Option<Salt>,
    known: HashMap<(Option<u64>, Vec<u8>), u64>,
}

impl Blocks {
    /// Hashes under a salt; without one, numbers in the order in which blocks are first seen.
    pub(super) fn new(salt: Option<Salt>) -> Blocks {
        Blocks { salt, known: HashMap::new() }
    }

    /// The names of blocks that follow each other from the start of a prompt.
    pub(super) fn of<'a>(&mut self, blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u64> {
        let mut names: Vec<u64> = Vec::new();
        for block in blocks {
            let before = names.last().copied();
            names.push(match self.salt {
                Some(salt) => salt.hash(b'b', &[&before.map_or(Vec::new(), |id| id.to_le_bytes().to_vec()), block]),
                None => {
                    let fresh = self.known.len() as u64;
                    *self.known.entry((before, block.to_vec())).or_insert(fresh)
                }
            });
        }
        names
    }
}

/// The names of a request and of its session.
pub(super) struct Named {
    pub(super) request: u64,
    pub(super) session: u64,
}

/// Names for all requests of a log, which stand in their order.
pub(super) fn named(requests: &[Asked], salt: Option<Salt>) -> Vec<Named> {
    let mut sessions: HashMap<&str, u64> = HashMap::new();
    let mut taken: HashSet<u64> = HashSet::new();
    let mut count = 0;
    let name = |(at, request): (usize, &'_ Asked)| -> u64 {
        let Some(salt) = salt else { return at as u64 };
        let session = request.session.as_deref().unwrap_or_default();
        let blocks: Vec<u8> = request.blocks.iter().flat_map(|id| id.to_le_bytes()).collect();
        let pieces = [session.as_bytes(), &request.at_ms.to_le_bytes(), &blocks];
        // Requests that are alike in all of this are told apart by how many of them came before.
        let again = (0_u64..).map(|times| salt.hash(b'r', &[&pieces.concat(), &times.to_le_bytes()]));
        again.into_iter().find(|name| taken.insert(*name)).expect("names do not run out")
    };
    let names: Vec<u64> = requests.iter().enumerate().map(name).collect();
    let mut named = Vec::new();
    for (request, name) in requests.iter().zip(names) {
        let known = request.session.as_deref().and_then(|session| sessions.get(session)).copied();
        let session = known.unwrap_or_else(|| match (salt, request.session.as_deref()) {
            (None, _) => count,
            (Some(salt), Some(session)) => salt.hash(b's', &[session.as_bytes()]),
            (Some(_), None) => name,
        });
        count += u64::from(known.is_none());
        if let Some(text) = request.session.as_deref() {
            sessions.insert(text, session);
        }
        named.push(Named { request: name, session });
    }
    named
}
