//! A block pool as servers have them: a lock around the free list, leases that give their block back when they are dropped,
//! and copies that hold on to what they work on. It is not `Clone`, and cannot be: a lease is there once.

use std::sync::{Arc, Mutex};

/// The part behind the lock.
#[derive(Debug, Default)]
struct Shared {
    free: Vec<u8>,
}

/// A block, until it is dropped.
#[derive(Debug)]
struct Lease {
    pool: Arc<Mutex<Shared>>,
    block: u8,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.lock().expect("nobody panics under the lock").free.push(self.block);
    }
}

/// A copy into a block, and what it holds on to.
#[derive(Debug)]
struct Copy {
    block: u8,
    _lease: Option<Arc<Lease>>,
}

/// Requests, each with a lease, and the copies under way.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Mutex<Shared>>,
    /// Whether a copy keeps the lease of its block; a pool whose leases live as long as a request does not.
    copies_hold: bool,
    leases: [Option<Arc<Lease>>; 2],
    ended: [bool; 2],
    copies: Vec<Copy>,
}

/// What can happen, as text: the actor first.
pub(crate) type Action = String;

/// All that matters of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) free: Vec<u8>,
    pub(crate) leased: [Option<u8>; 2],
    pub(crate) ended: [bool; 2],
    /// The blocks that copies write, in the order of their beginning.
    pub(crate) written: Vec<u8>,
}

impl View {
    /// Whether some copy writes a block that is free, or that two copies write.
    pub(crate) fn copies_collide(&self) -> bool {
        let twice = |at: usize| self.written[..at].contains(&self.written[at]);
        (0..self.written.len()).any(|at| self.free.contains(&self.written[at]) || twice(at))
    }
}

impl Pool {
    pub(crate) fn new(blocks: u8, copies_hold: bool) -> Self {
        let shared = Arc::new(Mutex::new(Shared { free: (0..blocks).collect() }));
        Self { shared, copies_hold, leases: [None, None], ended: [false; 2], copies: Vec::new() }
    }

    pub(crate) fn enabled(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let room = !self.shared.lock().expect("as above").free.is_empty();
        for request in 0..2 {
            match (&self.leases[request], self.ended[request]) {
                (None, false) if room => actions.push(format!("r{request} lease and copy")),
                (Some(_), _) => actions.push(format!("r{request} end")),
                _ => {}
            }
        }
        if !self.copies.is_empty() {
            actions.push("dma complete".to_owned());
        }
        actions
    }

    pub(crate) fn step(&mut self, action: &Action) {
        let request = usize::from(action.starts_with("r1"));
        match action.split_once(' ').expect("an actor and what it does").1 {
            "lease and copy" => {
                let block = self.shared.lock().expect("as above").free.pop().expect("there is room");
                let lease = Arc::new(Lease { pool: Arc::clone(&self.shared), block });
                let held = self.copies_hold.then(|| Arc::clone(&lease));
                self.copies.push(Copy { block, _lease: held });
                self.leases[request] = Some(lease);
            }
            "end" => {
                self.leases[request] = None;
                self.ended[request] = true;
            }
            _ => {
                self.copies.remove(0);
            }
        }
    }

    pub(crate) fn view(&self) -> View {
        View {
            free: self.shared.lock().expect("as above").free.clone(),
            leased: [0, 1].map(|at| self.leases[at].as_ref().map(|lease| lease.block)),
            ended: self.ended,
            written: self.copies.iter().map(|copy| copy.block).collect(),
        }
    }

    /// Another handle to the same pool, as a derived `Clone` would give: nothing for an explorer to start from.
    pub(crate) fn shallow_clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), copies: Vec::new(), leases: [None, None], ..*self }
    }
}
