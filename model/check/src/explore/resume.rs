//! Going on from a checkpoint.

use std::io;

use super::checkpoint::{self, Checkpoint, CheckpointError, Loader, Saver};
use super::expand::Broken;
use super::frontier::Frontier;
use super::key::Key;
use super::visited::Visited;
use super::{NO_PARENT, Search};
use crate::liveness::SystemGraph;
use crate::system::{Found, Marks, System, Violation};

impl<S: System, K: Key> Search<'_, S, K> {
    /// Writes everything but the states of the frontier, the first of which has the number `first`.
    pub(super) fn save(&self, first: u32, to: &mut Saver) -> io::Result<()> {
        to.put(first)?;
        let counts = &self.counts;
        let numbers = [counts.states, counts.transitions, counts.depth, counts.done_states, counts.stuck_states];
        to.list(numbers.into_iter().chain([counts.violating_steps, self.table_bytes]).collect::<Vec<_>>().into_iter())?;
        to.list(self.marks.words().iter().copied())?;
        to.put(self.broken.len() as u64)?;
        for (property, broken) in &self.broken {
            to.text(property)?;
            to.text(&broken.violation.detail)?;
            to.put(broken.parent)?;
            to.put(broken.position)?;
        }
        to.list(self.parents.iter())?;
        to.list(self.positions.iter())?;
        self.visited.save(to)?;
        self.graph.save(to)
    }

    fn load(&mut self, from: &mut Loader) -> io::Result<u32> {
        let first = from.take()?;
        let mut numbers = Vec::new();
        from.list(|number: u64| numbers.push(number))?;
        let numbers: [u64; 7] = numbers.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        let counts = &mut self.counts;
        [counts.states, counts.transitions, counts.depth, counts.done_states, counts.stuck_states, ..] = numbers;
        [.., counts.violating_steps, self.table_bytes] = numbers;
        let mut words = Vec::new();
        from.list(|word: u64| words.push(word))?;
        self.marks = Marks::of_words(words.try_into().map_err(|_| io::ErrorKind::InvalidData)?);
        for _ in 0..from.take::<u64>()? {
            let violation = Violation { property: from.name()?, detail: from.text()? };
            let (parent, position) = (from.take()?, from.take()?);
            self.broken.insert(violation.property, Broken { violation, parent, position });
        }
        from.list(|parent| self.parents.push(parent))?;
        from.list(|position| self.positions.push(position))?;
        self.visited = Visited::load(self.options.exact, from)?;
        self.graph = SystemGraph::load(from)?;
        Ok(first)
    }

    /// Takes over a checkpoint, if there is one: the level to go on with.
    pub(super) fn resume(&mut self, checkpoint: &Checkpoint) -> Result<Option<Frontier<S::State>>, CheckpointError> {
        let Some(first) = checkpoint::read(checkpoint, |from| self.load(from))? else { return Ok(None) };
        let states = self.states_from(first).ok_or_else(|| CheckpointError::Damaged {
            path: checkpoint.path.clone(),
            why: "the steps in it do not lead to its states: the system has changed".to_owned(),
        })?;
        let mut frontier = Frontier::new(first);
        states.into_iter().for_each(|state| frontier.push(state));
        Ok(Some(frontier))
    }

    /// The states from number `first` on, made anew by taking the steps that led to them; `None` if they lead elsewhere.
    fn states_from(&self, first: u32) -> Option<Vec<S::State>> {
        let len = self.parents.len() as u32;
        // Which earlier states are on the way, and for each the last of its successors on the way and those before it.
        let mut last_child = vec![NO_PARENT; first as usize];
        let mut sibling = vec![NO_PARENT; len as usize];
        let mut roots = Vec::new();
        for index in (0..len).rev() {
            if index < first && last_child[index as usize] == NO_PARENT {
                continue;
            }
            match self.parents.at(index) {
                NO_PARENT => roots.push(index),
                parent => {
                    // States come later than their parents; anything else would not end.
                    let slot = last_child.get_mut(parent as usize).filter(|_| parent < index)?;
                    sibling[index as usize] = std::mem::replace(slot, index);
                }
            }
        }
        let mut made: Vec<Option<S::State>> = (first..len).map(|_| None).collect();
        let initial = self.system.initial();
        let mut unvisited = Vec::new();
        for root in roots {
            unvisited.push((root, initial.get(usize::from(self.positions.at(root)))?.clone()));
        }
        let (mut actions, mut encoding) = (Vec::new(), Vec::new());
        while let Some((index, state)) = unvisited.pop() {
            encoding.clear();
            self.system.encode(&state, &mut encoding);
            if K::of(&encoding) != self.visited.keys().at(index) {
                return None;
            }
            if index >= first {
                made[(index - first) as usize] = Some(state);
                continue;
            }
            actions.clear();
            self.system.enabled(&state, &mut actions);
            let mut child = last_child[index as usize];
            while child != NO_PARENT {
                let mut next = state.clone();
                let action = actions.get(usize::from(self.positions.at(child)))?;
                self.system.step(&mut next, action, &mut Found::default());
                unvisited.push((child, next));
                child = sibling[child as usize];
            }
        }
        made.into_iter().collect()
    }
}
