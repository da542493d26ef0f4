//! Whether the system, left alone, gets where it must: over System actions only, on the graph of a finished search.
//!
//! * *Stuck* (deadlock): a state that is not done and in which no System action is enabled.
//! * *Doomed* (wedge): a state from which no done state is in reach over System actions. Whatever a timer or the outside
//!   world could still do does not count, or a free timer would hide every lost completion.
//! * *Idle loop* (livelock): a cycle of System actions that a weakly fair scheduler can stay in and on which no state is
//!   done, even if the goal can be reached from it; see below.
//!
//! Each property that some stuck state owes gives one finding: the least numbered (hence shallowest) doomed state from
//! which a stuck state that owes it is in reach over System actions, and the shortest way there. A doomed state that
//! reaches no stuck state reaches an idle loop; that is found as such.
//!
//! A step that broke a property and was not explored (see [`crate::explore::Options::expand_violating`]) counts as a
//! way out: a state with such a step is neither stuck nor doomed.
//!
//! # Fairness
//!
//! Weak fairness: an action that is possible in every state of a loop is taken in the loop. A loop that leaves such an
//! action out needs a scheduler that never gives it its turn, and is not reported. A step that changes nothing counts for
//! neither side: where an action leads back to the same state it is not possible, and taking it there is not taking it.
//! Actions are told apart by their value; where the encoding renames things, actions must not name those.

mod cycle;
pub(crate) mod fair;

use std::collections::BTreeSet;
use std::io;

use crate::explore::{Column, Limit, Loader, Saver, WantedProperties};
use crate::system::{System, Violation};

/// The property that a cycle of System actions breaks.
pub const NO_IDLE_LOOP: &str = "no-idle-loop";
/// The property that a stuck state breaks for which [`System::owed`] names no other.
pub const NO_DEADLOCK: &str = "no-deadlock";

/// The target of a step that leaves the explored graph.
pub(crate) const EXIT: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// The System steps between all states, by number, and which states are done or stuck.
#[derive(Default)]
pub(crate) struct SystemGraph {
    targets: Column<u32>,
    /// End of each state's row in `targets`.
    ends: Column<u32>,
    done: BitSet,
    /// Steps of the other classes, in rows as those of System; empty unless all steps are kept.
    others: Column<u32>,
    other_ends: Column<u32>,
    stuck: Vec<(u32, OwedSet)>,
    owed_sets: Vec<Vec<&'static str>>,
}

/// A place in [`SystemGraph::owed_sets`]: thousands of stuck states owe one of a few sets of properties.
type OwedSet = u32;

/// A liveness property that a stuck state breaks, in state numbers.
pub(crate) struct Finding {
    pub(crate) property: &'static str,
    /// The state where the tail starts; the way there is the search's own.
    pub(crate) entry: u32,
    /// The states after `entry`, each a System step from the one before.
    pub(crate) tail: Vec<u32>,
}

/// The result of [`judge`].
pub(crate) struct Judged {
    pub(crate) doomed: BitSet,
    /// In order of the properties' names.
    pub(crate) findings: Vec<Finding>,
    /// Where a loop may be, if loops are wanted: see [`fair::first_loop`].
    pub(crate) components: Vec<Vec<u32>>,
}

/// Finds every wanted liveness property that the graph breaks.
pub(crate) fn judge(graph: &SystemGraph, want: &WantedProperties) -> Judged {
    let reverse = Reverse::of(graph);
    let states = 0..graph.len() as u32;
    let has_exit = |state: u32| graph.row(state).any(|target| target == EXIT);
    let saved = reverse.reachable(states.filter(|&state| graph.done.contains(state) || has_exit(state)), |_| true);
    let doomed = saved.complement(graph.len());

    let owed: BTreeSet<&'static str> = graph.stuck.iter().flat_map(|&(_, set)| graph.owed(set)).copied().collect();
    let findings = owed
        .into_iter()
        .filter(|property| want.wants(property))
        .map(|property| find_stuck(graph, &reverse, &doomed, property))
        .collect();
    let components = if want.wants(NO_IDLE_LOOP) { cycle::components(graph, &reverse) } else { Vec::new() };
    Judged { doomed, findings, components }
}

/// What `finding` breaks, in words; `end` is the state at the end of its trace.
pub(crate) fn violation<S: System>(system: &S, finding: &Finding, end: &S::State) -> Violation {
    let owed = system.owed(end).into_iter().find(|violation| violation.property == finding.property);
    owed.unwrap_or_else(|| Violation {
        property: finding.property,
        detail: "expected the goal to be reached, got a state in which no system action is possible".to_owned(),
    })
}

/// What a loop breaks, in words.
pub(crate) fn loop_violation() -> Violation {
    let detail = "expected every run of system actions to come to rest, got one that repeats for ever".to_owned();
    Violation { property: NO_IDLE_LOOP, detail }
}

/// The first doomed state that can get stuck owing `property`, and the shortest way to a state that does.
fn find_stuck(graph: &SystemGraph, reverse: &Reverse, doomed: &BitSet, property: &'static str) -> Finding {
    let owes = graph.stuck.iter().filter(|&&(_, set)| graph.owed(set).contains(&property)).map(|&(state, _)| state);
    let mut ends = BitSet::default();
    owes.clone().for_each(|state| ends.insert(state));
    let before = reverse.reachable(owes, |state| doomed.contains(state));
    let entry = before.first().expect("some stuck state owes the property, and is doomed");
    let tail = if ends.contains(entry) {
        Vec::new()
    } else {
        graph.shortest_way(entry, |state| ends.contains(state)).expect("the entry was found from the end")
    };
    Finding { property, entry, tail }
}

impl SystemGraph {
    /// Adds the next state: the targets of its System steps in the order of the actions.
    pub(crate) fn push(&mut self, targets: impl Iterator<Item = u32>, done: bool) -> Result<(), Limit> {
        let state = self.ends.len() as u32;
        targets.for_each(|target| self.targets.push(target));
        self.ends.push(u32::try_from(self.targets.len()).map_err(|_| Limit::Memory)?);
        if done {
            self.done.insert(state);
        }
        Ok(())
    }

    /// Adds the targets of the newest state's steps of other classes.
    pub(crate) fn push_others(&mut self, targets: impl Iterator<Item = u32>) -> Result<(), Limit> {
        targets.for_each(|target| self.others.push(target));
        self.other_ends.push(u32::try_from(self.others.len()).map_err(|_| Limit::Memory)?);
        Ok(())
    }

    /// Notes that `state` is stuck, and what it owes.
    pub(crate) fn push_stuck(&mut self, state: u32, owed: &[&'static str]) {
        let owed = if owed.is_empty() { &[NO_DEADLOCK] } else { owed };
        let set = self.owed_sets.iter().position(|set| set == owed).unwrap_or_else(|| {
            self.owed_sets.push(owed.to_vec());
            self.owed_sets.len() - 1
        });
        self.stuck.push((state, set as OwedSet));
    }

    /// Writes all of it to a checkpoint.
    pub(crate) fn save(&self, to: &mut Saver) -> io::Result<()> {
        to.list(self.targets.iter())?;
        to.list(self.ends.iter())?;
        to.list(self.done.0.iter().copied())?;
        to.list(self.stuck.iter().map(|&(state, set)| u64::from(state) << 32 | u64::from(set)))?;
        to.put(self.owed_sets.len() as u64)?;
        for set in &self.owed_sets {
            to.put(set.len() as u64)?;
            set.iter().try_for_each(|property| to.text(property))?;
        }
        Ok(())
    }

    /// Reads what [`SystemGraph::save`] wrote.
    pub(crate) fn load(from: &mut Loader) -> io::Result<Self> {
        let mut graph = Self::default();
        from.list(|target| graph.targets.push(target))?;
        from.list(|end| graph.ends.push(end))?;
        from.list(|word| graph.done.0.push(word))?;
        from.list(|pair: u64| graph.stuck.push(((pair >> 32) as u32, pair as OwedSet)))?;
        for _ in 0..from.take::<u64>()? {
            let count: u64 = from.take()?;
            graph.owed_sets.push((0..count).map(|_| from.name()).collect::<io::Result<_>>()?);
        }
        Ok(graph)
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        let rest = size_of_val(&self.stuck[..]) + size_of_val(&self.done.0[..]);
        let columns = [&self.targets, &self.ends, &self.others, &self.other_ends];
        columns.iter().map(|column| column.bytes()).sum::<u64>() + rest as u64
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn row(&self, state: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        row(&self.targets, &self.ends, state)
    }

    fn owed(&self, set: OwedSet) -> &[&'static str] {
        &self.owed_sets[set as usize]
    }

    /// The states of a shortest way of at least one step from `start`, exclusive, to a state that is an `end`, breadth
    /// first, least action first.
    fn shortest_way(&self, start: u32, end: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
        let mut came_from = vec![NONE; self.len()];
        let mut queue = vec![start];
        let mut head = 0;
        while let Some(&state) = queue.get(head) {
            head += 1;
            for target in self.row(state) {
                if target == EXIT || came_from[target as usize] != NONE {
                    continue;
                }
                came_from[target as usize] = state;
                if end(target) {
                    let back = std::iter::successors(Some(target), |&at| {
                        let before = came_from[at as usize];
                        (before != start).then_some(before)
                    });
                    let mut way: Vec<u32> = back.collect();
                    way.reverse();
                    return Some(way);
                }
                queue.push(target);
            }
        }
        None
    }
}

fn row<'a>(targets: &'a Column<u32>, ends: &Column<u32>, state: u32) -> impl ExactSizeIterator<Item = u32> + 'a {
    let start = if state == 0 { 0 } else { ends.at(state - 1) };
    // A range of u32 does not know its length on every machine.
    let (start, end) = (start as usize, ends.at(state) as usize);
    (start..end).map(|place| targets.at(place as u32))
}

/// Whether no steps of `graph`, of any class, go round: all states go when those that nothing leads to go, again and again.
pub(crate) fn acyclic(graph: &SystemGraph) -> bool {
    let steps = |state: u32| {
        let others = row(&graph.others, &graph.other_ends, state);
        graph.row(state).chain(others).filter(|&target| target != EXIT)
    };
    let states = 0..graph.len() as u32;
    let mut sources = vec![0u32; graph.len()];
    states.clone().flat_map(steps).for_each(|target| sources[target as usize] += 1);
    let mut gone: Vec<u32> = states.filter(|&state| sources[state as usize] == 0).collect();
    let mut count = 0;
    while let Some(state) = gone.pop() {
        count += 1;
        for target in steps(state) {
            sources[target as usize] -= 1;
            if sources[target as usize] == 0 {
                gone.push(target);
            }
        }
    }
    count == graph.len()
}

/// The graph turned around.
struct Reverse {
    sources: Vec<u32>,
    /// Start of each state's row in `sources`, and one more for the end of the last.
    starts: Vec<u32>,
}

impl Reverse {
    fn of(graph: &SystemGraph) -> Self {
        let mut starts = vec![0u32; graph.len() + 1];
        let inside = || graph.targets.iter().filter(|&target| target != EXIT);
        inside().for_each(|target| starts[target as usize] += 1);
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        // Each row is filled from its end, which moves its start into place.
        let mut sources = vec![0; end as usize];
        for state in (0..graph.len() as u32).rev() {
            for target in graph.row(state).filter(|&target| target != EXIT) {
                starts[target as usize] -= 1;
                sources[starts[target as usize] as usize] = state;
            }
        }
        Self { sources, starts }
    }

    fn row(&self, state: u32) -> &[u32] {
        let state = state as usize;
        &self.sources[self.starts[state] as usize..self.starts[state + 1] as usize]
    }

    /// All states from which one of `ends` is in reach through states that are `allowed`, the ends included.
    fn reachable(&self, ends: impl Iterator<Item = u32>, allowed: impl Fn(u32) -> bool) -> BitSet {
        let mut seen = BitSet::default();
        let mut unvisited = Vec::new();
        for end in ends {
            if !seen.contains(end) {
                seen.insert(end);
                unvisited.push(end);
            }
            while let Some(state) = unvisited.pop() {
                for &source in self.row(state) {
                    if !seen.contains(source) && allowed(source) {
                        seen.insert(source);
                        unvisited.push(source);
                    }
                }
            }
        }
        seen
    }
}

/// A set of state numbers.
#[derive(Default)]
pub(crate) struct BitSet(Vec<u64>);

impl BitSet {
    pub(crate) fn contains(&self, state: u32) -> bool {
        self.0.get(state as usize / 64).is_some_and(|word| word & (1 << (state % 64)) != 0)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn insert(&mut self, state: u32) {
        let word = state as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (state % 64);
    }

    fn remove(&mut self, state: u32) {
        if let Some(word) = self.0.get_mut(state as usize / 64) {
            *word &= !(1 << (state % 64));
        }
    }

    fn first(&self) -> Option<u32> {
        let word = self.0.iter().position(|&word| word != 0)?;
        Some(word as u32 * 64 + self.0[word].trailing_zeros())
    }

    /// The numbers below `len` that are not in the set.
    fn complement(&self, len: usize) -> Self {
        let words = (0..len.div_ceil(64)).map(|word| !self.0.get(word).copied().unwrap_or(0));
        let mut complement = Self(words.collect());
        if let Some(last) = complement.0.last_mut().filter(|_| !len.is_multiple_of(64)) {
            *last &= (1 << (len % 64)) - 1;
        }
        complement
    }
}
