//! The states of a level, in order.

/// States that are expanded and merged together. Part of the results of a search that stops early, hence fixed.
const CHUNK_STATES: usize = 64;

/// States in chunks, so that those that were expanded are given up while the others wait.
pub(super) struct Frontier<State> {
    /// The number of the first of them.
    pub(super) first: u32,
    chunks: Vec<Vec<State>>,
}

impl<State> Frontier<State> {
    /// An empty level whose first state will have the number `first`.
    pub(super) fn new(first: u32) -> Self {
        Self { first, chunks: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_STATES + last.len())
    }

    pub(super) fn push(&mut self, state: State) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK_STATES => last.push(state),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_STATES);
                chunk.push(state);
                self.chunks.push(chunk);
            }
        }
    }

    /// All chunks in order; all but the last are full.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Vec<State>> {
        self.chunks.into_iter()
    }
}
