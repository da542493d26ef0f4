//! Exhaustive search, breadth first and level by level, with the same result at any number of threads.
//!
//! # Why threads change nothing
//!
//! States are numbered in the order in which one worker that takes the frontier state by state, and the actions of each
//! in the system's order, would meet them. The parent of a state is therefore the least (parent number, action position)
//! that leads to it from the level before; of several concrete states with one encoding, the one kept is the one that
//! this step produced. Several workers expand chunks of the frontier of a fixed size against a visited set that stands
//! still, and only drop what is already in it: a state of an earlier level or an earlier chunk, which precedes them in
//! the order anyway. One thread then merges the chunks in order and numbers what is new. All limits are looked at while
//! merging, so that a search that stops also stops at the same state.
//!
//! Merging is one look-up for each step whose target was not known before. The dearer the system's own steps are beside
//! that, the more threads can be kept busy.

mod expand;
mod fingerprint;
mod options;
mod outcome;
mod visited;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use options::{Options, WantedProperties};
pub use outcome::{Counts, Limit, MissProbability, Outcome, Progress, Verdict};

pub(crate) use fingerprint::fingerprint;

use crate::liveness::fair::{self, FairLoop};
use crate::liveness::{self, BitSet, Finding, SystemGraph};
use crate::reduce;
use crate::system::{Marks, System};
use crate::trace::{self, Path, Trace};
use expand::{Broken, Candidate, Expander, Expansion, Target};
use visited::{Entry, STATES_MAX, Visited};

/// States that are expanded and merged together. Part of the results of a search that stops early, hence fixed.
const CHUNK_STATES: usize = 64;
/// Chunks given to each worker at a time: enough to be worth a new thread, few enough to bound what waits for merging.
const CHUNKS_PER_WORKER: usize = 16;
/// The parent of an initial state, whose action position is its place among the initial states.
const NO_PARENT: u32 = u32::MAX;

/// Searches all of `system` that `options` allow.
///
/// # Panics
///
/// If a state enables more than 65,535 actions, or if the system breaks the contract of [`System`] in a way that shows:
/// a path that cannot be taken a second time.
pub fn explore<S: System>(system: &S, options: &Options) -> Outcome<S::Action> {
    explore_with(system, options, &|_| ())
}

/// As [`explore`], and calls `progress` before each level and after each chunk, on the calling thread.
pub fn explore_with<S: System>(system: &S, options: &Options, progress: &dyn Fn(&Progress)) -> Outcome<S::Action> {
    if options.reduce { reduce::explore(system, options, progress) } else { explore_whole(system, options, progress) }
}

/// The search itself.
pub(crate) fn explore_whole<S: System>(
    system: &S,
    options: &Options,
    progress: &dyn Fn(&Progress),
) -> Outcome<S::Action> {
    let mut search = Search::new(system, options, progress);
    let end = search.run();
    search.into_outcome(end)
}

/// Why a search ended before it saw everything.
enum Stop {
    Ran(Limit),
    AtFirst,
}

struct Search<'a, S: System> {
    system: &'a S,
    options: &'a Options,
    progress: &'a dyn Fn(&Progress),
    visited: Visited,
    parents: Vec<u32>,
    positions: Vec<u16>,
    graph: SystemGraph,
    broken: BTreeMap<&'static str, Broken>,
    marks: Marks,
    counts: Counts,
    table_bytes: u64,
    /// The numbers of the candidates of the chunk that is being merged.
    merged: Vec<u32>,
}

impl<'a, S: System> Search<'a, S> {
    fn new(system: &'a S, options: &'a Options, progress: &'a dyn Fn(&Progress)) -> Self {
        Self {
            system,
            options,
            progress,
            visited: Visited::new(options.exact),
            parents: Vec::new(),
            positions: Vec::new(),
            graph: SystemGraph::default(),
            broken: BTreeMap::new(),
            marks: Marks::default(),
            counts: Counts::default(),
            table_bytes: 0,
            merged: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), Stop> {
        let mut frontier = self.start()?;
        let mut first = 0;
        while !frontier.is_empty() {
            let mut next = Vec::new();
            self.expand_level(first, &frontier, &mut next)?;
            first += frontier.len() as u32;
            frontier = next;
            self.counts.depth += u64::from(!frontier.is_empty());
        }
        Ok(())
    }

    /// The distinct initial states.
    fn start(&mut self) -> Result<Vec<S::State>, Stop> {
        let mut frontier = Vec::new();
        let mut encoding = Vec::new();
        for (position, state) in self.system.initial().into_iter().enumerate() {
            encoding.clear();
            self.system.encode(&state, &mut encoding);
            let candidate = Candidate {
                fingerprint: fingerprint(&encoding),
                parent: NO_PARENT,
                position: u16::try_from(position).expect("at most 65,536 initial states"),
                state,
                encoding_end: 0,
            };
            self.admit(candidate, &encoding, &mut frontier)?;
        }
        Ok(frontier)
    }

    fn expand_level(&mut self, first: u32, frontier: &[S::State], next: &mut Vec<S::State>) -> Result<(), Stop> {
        self.report(frontier.len());
        let mut expander = Expander::new(self.system, self.options);
        let batch_states = self.options.threads.max(1) * CHUNKS_PER_WORKER * CHUNK_STATES;
        let mut expanded = 0;
        for batch in frontier.chunks(batch_states) {
            let chunk_count = batch.len().div_ceil(CHUNK_STATES);
            let workers = self.options.threads.min(chunk_count / 2);
            if workers > 1 {
                let expansions = self.expand_batch(workers, first + expanded as u32, batch);
                for (chunk, expansion) in batch.chunks(CHUNK_STATES).zip(expansions) {
                    expanded += chunk.len();
                    self.merge(expansion, next)?;
                    self.report(frontier.len() - expanded);
                }
            } else {
                for chunk in batch.chunks(CHUNK_STATES) {
                    let expansion = expander.expand(&self.visited, first + expanded as u32, chunk);
                    expanded += chunk.len();
                    self.merge(expansion, next)?;
                    self.report(frontier.len() - expanded);
                }
            }
        }
        Ok(())
    }

    /// Expands all chunks of `batch`, on `workers` threads, in any order, and gives them back in their own order.
    fn expand_batch(&self, workers: usize, first: u32, batch: &[S::State]) -> Vec<Expansion<S::State>> {
        let (system, options, visited) = (self.system, self.options, &self.visited);
        let unclaimed = AtomicUsize::new(0);
        let work = || {
            let mut expander = Expander::new(system, options);
            let mut mine = Vec::new();
            loop {
                let chunk = unclaimed.fetch_add(1, Ordering::Relaxed);
                let Some(states) = batch.chunks(CHUNK_STATES).nth(chunk) else {
                    return mine;
                };
                let first = first + (chunk * CHUNK_STATES) as u32;
                mine.push((chunk, expander.expand(visited, first, states)));
            }
        };
        let mut all = Vec::new();
        thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            all = work();
            for other in others {
                match other.join() {
                    Ok(more) => all.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        all.sort_unstable_by_key(|&(chunk, _)| chunk);
        all.into_iter().map(|(_, expansion)| expansion).collect()
    }

    /// Numbers what is new in `expansion` and takes over the rest. Must be called in the order of the chunks.
    fn merge(&mut self, mut expansion: Expansion<S::State>, next: &mut Vec<S::State>) -> Result<(), Stop> {
        self.counts.transitions += expansion.transitions;
        self.counts.violating_steps += expansion.violating_steps;
        self.counts.done_states += expansion.done.iter().filter(|&&done| done).count() as u64;
        self.counts.stuck_states += expansion.stuck.len() as u64;
        self.marks.unite(&expansion.marks);
        for broken in expansion.broken.drain(..) {
            self.broken.entry(broken.violation.property).or_insert(broken);
        }
        self.merged.clear();
        let mut encoding_start = 0;
        for candidate in expansion.candidates.drain(..) {
            let encoding_end = candidate.encoding_end;
            let index = self.admit(candidate, &expansion.encodings[encoding_start..encoding_end], next)?;
            encoding_start = encoding_end;
            self.merged.push(index);
        }
        if expansion.stopped {
            return Err(Stop::AtFirst);
        }
        if self.options.liveness {
            self.merge_graph(&expansion)?;
        }
        self.account(0)
    }

    fn merge_graph(&mut self, expansion: &Expansion<S::State>) -> Result<(), Stop> {
        let number = |target: &Target| match *target {
            Target::Known(index) => index,
            Target::Candidate(place) => self.merged[place as usize],
            Target::Exit => liveness::EXIT,
        };
        let (mut start, mut other_start) = (0, 0);
        for ((&end, &other_end), &done) in expansion.row_ends.iter().zip(&expansion.other_ends).zip(&expansion.done) {
            let row = expansion.targets[start..end].iter().map(number);
            let others = expansion.others[other_start..other_end].iter().map(number);
            self.graph.push(row, done).map_err(Stop::Ran)?;
            if self.options.all_steps {
                self.graph.push_others(others).map_err(Stop::Ran)?;
            }
            (start, other_start) = (end, other_end);
        }
        for stuck in &expansion.stuck {
            self.graph.push_stuck(stuck.state, &stuck.owed);
        }
        Ok(())
    }

    /// The number of a state, which is added to `next` if it is new.
    fn admit(
        &mut self,
        candidate: Candidate<S::State>,
        encoding: &[u8],
        next: &mut Vec<S::State>,
    ) -> Result<u32, Stop> {
        // A full set may still know the state: then nothing is lost.
        let full = self.visited.len() as u64 >= self.options.states_max.min(STATES_MAX);
        if full || self.visited.bytes_for_one_more() > 0 {
            if let Some(index) = self.visited.find(candidate.fingerprint, encoding) {
                return Ok(index);
            }
            if full {
                return Err(Stop::Ran(Limit::States));
            }
            self.account(self.visited.bytes_for_one_more())?;
        }
        match self.visited.insert(candidate.fingerprint, encoding) {
            Entry::Known(index) => Ok(index),
            Entry::New(index) => {
                self.parents.push(candidate.parent);
                self.positions.push(candidate.position);
                self.counts.states += 1;
                next.push(candidate.state);
                Ok(index)
            }
        }
    }

    /// Notes what the tables take now, and stops if that and `more` bytes are too much. Counts what is filled and not
    /// what is reserved: that much does not depend on an allocator.
    fn account(&mut self, more: u64) -> Result<(), Stop> {
        let parents = size_of_val(&self.parents[..]) + size_of_val(&self.positions[..]);
        let bytes = self.visited.bytes() + parents as u64 + self.graph.bytes();
        if bytes + more > self.options.table_bytes_max {
            return Err(Stop::Ran(Limit::Memory));
        }
        self.table_bytes = self.table_bytes.max(bytes);
        Ok(())
    }

    fn report(&self, frontier: usize) {
        (self.progress)(&Progress {
            states: self.counts.states,
            transitions: self.counts.transitions,
            frontier: frontier as u64,
            depth: self.counts.depth,
        });
    }

    fn into_outcome(mut self, end: Result<(), Stop>) -> Outcome<S::Action> {
        let fingerprint_collisions = self.visited.collisions();
        // Nothing is looked up from here on, and the judge of liveness needs the room.
        self.visited.close();
        let mut traces = self.safety_traces();
        let liveness_judged = self.options.liveness && end.is_ok();
        let acyclic = (liveness_judged && self.options.all_steps).then(|| liveness::acyclic(&self.graph));
        if liveness_judged {
            let more = self.judge_liveness();
            traces.extend(more);
        }
        traces.sort_by_key(|trace| trace.violation.property);
        traces.dedup_by_key(|trace| trace.violation.property);
        let verdict = match end {
            _ if !traces.is_empty() => Verdict::Violated,
            Err(Stop::Ran(ran_out_of)) => Verdict::Inconclusive { ran_out_of },
            Err(Stop::AtFirst) => {
                unreachable!("the search stops at a broken property, which has a trace")
            }
            Ok(()) => Verdict::Holds,
        };
        Outcome {
            verdict,
            exhausted: end.is_ok(),
            liveness_judged,
            traces,
            counts: self.counts,
            marks: self.marks,
            miss: match self.options.exact {
                true => MissProbability::Zero,
                false => MissProbability::of_fingerprints(self.counts.states),
            },
            fingerprint_collisions,
            table_bytes: self.table_bytes,
            reduction: None,
            acyclic,
            digest: self.digest(),
        }
    }

    fn safety_traces(&self) -> Vec<Trace<S::Action>> {
        let trace = |broken: &Broken| {
            let mut path = self.path_to(broken.parent);
            path.positions.push(broken.position);
            let (steps, _) = trace::walk(self.system, &path);
            Trace {
                initial: path.initial,
                steps,
                violation: broken.violation.clone(),
                dooming_step: None,
                loop_from: None,
            }
        };
        self.broken.values().map(trace).collect()
    }

    /// One trace per broken liveness property that is wanted.
    fn judge_liveness(&mut self) -> Vec<Trace<S::Action>> {
        let judged = liveness::judge(&self.graph, &self.options.want);
        self.counts.doomed_states = judged.doomed.count();
        let mut traces: Vec<_> =
            judged.findings.iter().map(|finding| self.stuck_trace(finding, &judged.doomed)).collect();
        let found = fair::first_loop(
            self.system,
            self.options,
            &judged.components,
            |index| trace::walk(self.system, &self.path_to(index)).1,
            |index| self.visited.fingerprints()[index as usize],
        );
        traces.extend(found.map(|found| self.loop_trace(&found, &judged.doomed)));
        traces
    }

    fn stuck_trace(&self, finding: &Finding, doomed: &BitSet) -> Trace<S::Action> {
        let (mut trace, mut state) = self.stem(finding.entry, doomed);
        for &index in &finding.tail {
            let action = self.follow(&mut state, index, None);
            trace.steps.push(action);
        }
        trace.violation = liveness::violation(self.system, finding, &state);
        trace
    }

    fn loop_trace(&self, found: &FairLoop<S::Action>, doomed: &BitSet) -> Trace<S::Action> {
        let (mut trace, mut state) = self.stem(found.entry, doomed);
        trace.loop_from = Some(trace.steps.len());
        for (action, index) in &found.steps {
            let action = self.follow(&mut state, *index, Some(action));
            trace.steps.push(action);
        }
        trace
    }

    /// The trace to the state `entry`, with the dooming step on it; and that state.
    fn stem(&self, entry: u32, doomed: &BitSet) -> (Trace<S::Action>, S::State) {
        let path = self.path_to(entry);
        // An environment step may have led out of a doomed region before: the last way in counts.
        let on_path = self.indices_to(entry);
        let doomed = on_path.iter().rev().take_while(|&&index| doomed.contains(index)).count();
        let dooming_step = (doomed > 0).then(|| on_path.len() - doomed);
        let (steps, state) = trace::walk(self.system, &path);
        let violation = liveness::loop_violation();
        (Trace { initial: path.initial, steps, violation, dooming_step, loop_from: None }, state)
    }

    fn follow(&self, state: &mut S::State, index: u32, wanted: Option<&S::Action>) -> S::Action {
        let target = self.visited.fingerprints()[index as usize];
        trace::follow(self.system, state, target, wanted, |found| !self.options.ends_at(self.system, &found.violations))
    }

    /// The numbers of the states on the way to `index`, from an initial state on.
    fn indices_to(&self, index: u32) -> Vec<u32> {
        let mut indices: Vec<u32> = std::iter::successors(Some(index), |&index| {
            let parent = self.parents[index as usize];
            (parent != NO_PARENT).then_some(parent)
        })
        .collect();
        indices.reverse();
        indices
    }

    fn path_to(&self, index: u32) -> Path {
        let mut positions = self.indices_to(index).into_iter().map(|index| self.positions[index as usize]);
        Path {
            initial: positions.next().map(usize::from).expect("a way to a state holds the state itself"),
            positions: positions.collect(),
        }
    }

    fn digest(&self) -> u128 {
        let mut digest = 0u128;
        let mut bytes = [0; 38];
        for (index, fingerprint) in self.visited.fingerprints().iter().enumerate() {
            bytes[..16].copy_from_slice(&digest.to_le_bytes());
            bytes[16..32].copy_from_slice(&fingerprint.to_le_bytes());
            bytes[32..36].copy_from_slice(&self.parents[index].to_le_bytes());
            bytes[36..].copy_from_slice(&self.positions[index].to_le_bytes());
            digest = self::fingerprint(&bytes);
        }
        digest
    }
}
