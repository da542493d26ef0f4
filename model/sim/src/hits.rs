//! What a cache of some size could reuse of a workload at most, whatever the machine: a property of the log alone.
//!
//! Requests are taken in the order of the log, one after the other, and a prompt's blocks are matched from the first on.

use std::collections::{BTreeSet, HashMap};

use crate::workload::Workload;

/// What was found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Blocks of the prompts, and those found.
    pub blocks: u64,
    /// See `blocks`.
    pub blocks_hit: u64,
    /// Tokens of the prompts, and those found.
    pub tokens: u64,
    /// See `tokens`.
    pub tokens_hit: u64,
}

impl Hits {
    /// Tokens found, in parts per 10,000, rounded to the nearest.
    pub fn tokens_per_10k(&self) -> u64 {
        per_10k(self.tokens_hit, self.tokens)
    }

    /// Blocks found, likewise.
    pub fn blocks_per_10k(&self) -> u64 {
        per_10k(self.blocks_hit, self.blocks)
    }
}

fn per_10k(part: u64, whole: u64) -> u64 {
    ((u128::from(part) * 10_000 + u128::from(whole) / 2) / u128::from(whole.max(1))) as u64
}

/// What a cache without a limit reuses; counted from the request `from` on.
pub fn unlimited(workload: &Workload, from: usize) -> Hits {
    Cache::new(workload, u64::MAX).play(workload, from)
}

/// What a cache of so many blocks reuses that drops the least recently used block without a successor; counted from the
/// request `from` on.
pub fn least_recently_used(workload: &Workload, blocks: u64, from: usize) -> Hits {
    Cache::new(workload, blocks).play(workload, from)
}

/// A block that was seen.
#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    present: bool,
    children: u32,
    used: u64,
    /// The last request that found it.
    wanted: u32,
}

/// The start of every prompt.
const ROOT: u32 = 0;

struct Cache {
    nodes: Vec<Node>,
    names: HashMap<(u64, u64), u32>,
    /// Blocks without a successor, the least recently used first.
    leaves: BTreeSet<(u64, u32)>,
    size: u64,
    capacity: u64,
    clock: u64,
    block_tokens: u64,
}

impl Cache {
    fn new(workload: &Workload, capacity: u64) -> Cache {
        let root = Node { parent: ROOT, present: true, children: 0, used: 0, wanted: 0 };
        Cache {
            nodes: vec![root],
            names: HashMap::new(),
            leaves: BTreeSet::new(),
            size: 0,
            capacity,
            clock: 0,
            block_tokens: u64::from(workload.block_tokens),
        }
    }

    fn play(mut self, workload: &Workload, from: usize) -> Hits {
        let mut hits = Hits::default();
        let mut number = 0;
        for session in &workload.sessions {
            let mut chains = vec![Vec::new(); session.chains as usize];
            for request in &workload.requests[session.requests.start as usize..session.requests.end as usize] {
                let chain: &mut Vec<u64> = &mut chains[request.chain as usize];
                chain.truncate(request.keep as usize);
                for run in &workload.runs[request.runs.start as usize..request.runs.end as usize] {
                    chain.extend(run.first..run.first + u64::from(run.count));
                }
                let found = self.ask(session.scope, chain, number as u32 + 1);
                if number >= from {
                    let tokens = u64::from(request.input_tokens);
                    hits.blocks += chain.len() as u64;
                    hits.blocks_hit += found;
                    hits.tokens += tokens;
                    hits.tokens_hit += (found * self.block_tokens).min(tokens);
                }
                number += 1;
            }
        }
        hits
    }

    /// Looks a prompt up, then keeps it; how many of its first blocks were there.
    fn ask(&mut self, scope: u64, ids: &[u64], number: u32) -> u64 {
        let mut path = Vec::with_capacity(ids.len());
        let mut parent = ROOT;
        for id in ids {
            let fresh = self.nodes.len() as u32;
            let node = *self.names.entry((scope, *id)).or_insert(fresh);
            if node == fresh {
                self.nodes.push(Node { parent, present: false, children: 0, used: 0, wanted: 0 });
            }
            path.push(node);
            parent = node;
        }
        let found = path.iter().take_while(|node| self.nodes[**node as usize].present).count();
        for &node in &path[..found] {
            self.nodes[node as usize].wanted = number;
            self.touch(node);
        }
        for &node in &path[found..] {
            if self.size >= self.capacity && !self.evict(number) {
                break;
            }
            let parent = self.nodes[node as usize].parent;
            if !self.nodes[parent as usize].present {
                break;
            }
            self.leaves.remove(&(self.nodes[parent as usize].used, parent));
            self.nodes[parent as usize].children += 1;
            self.nodes[node as usize].present = true;
            self.size += 1;
            self.touch(node);
        }
        found as u64
    }

    fn touch(&mut self, at: u32) {
        self.clock += 1;
        let node = &mut self.nodes[at as usize];
        if node.children == 0 {
            self.leaves.remove(&(node.used, at));
            self.leaves.insert((self.clock, at));
        }
        node.used = self.clock;
    }

    /// Drops a block that the prompt in hand did not find; false where there is none.
    fn evict(&mut self, number: u32) -> bool {
        let victim = self.leaves.iter().find(|(_, at)| self.nodes[*at as usize].wanted != number).copied();
        let Some((used, at)) = victim else { return false };
        self.leaves.remove(&(used, at));
        self.nodes[at as usize].present = false;
        self.size -= 1;
        let parent = self.nodes[at as usize].parent;
        self.nodes[parent as usize].children -= 1;
        if parent != ROOT && self.nodes[parent as usize].children == 0 {
            self.leaves.insert((self.nodes[parent as usize].used, parent));
        }
        true
    }
}
