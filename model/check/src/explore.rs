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

mod checkpoint;
mod column;
mod expand;
mod fingerprint;
mod frontier;
mod key;
mod options;
mod outcome;
mod resume;
mod visited;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use options::{Options, WantedProperties};
pub use outcome::{Counts, Limit, MissProbability, Outcome, Progress, Verdict};

pub(crate) use checkpoint::{Loader, Saver};
pub(crate) use column::Column;
pub(crate) use fingerprint::fingerprint;
pub(crate) use key::Key;

use checkpoint::Keeper;
use fingerprint::digest;
use frontier::Frontier;

use crate::liveness::fair::{self, FairLoop};
use crate::liveness::{self, BitSet, Finding, SystemGraph};
use crate::reduce;
use crate::system::{Found, Marks, System};
use crate::trace::{self, Path, Trace};
use expand::{Broken, Candidate, Expander, Expansion, Target};
use visited::{Entry, STATES_MAX, Visited};

/// Chunks given to each worker at a time: enough to be worth a new thread, few enough to bound what waits for merging.
const CHUNKS_PER_WORKER: usize = 16;
/// With fewer chunks each, threads cost more than they bring.
const CHUNKS_WORTH_A_WORKER: usize = 2;
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

/// The search itself, without reduction.
pub(crate) fn explore_whole<S: System>(
    system: &S,
    options: &Options,
    progress: &dyn Fn(&Progress),
) -> Outcome<S::Action> {
    start(system, options, progress, None).unwrap_or_else(|_| unreachable!("only checkpoints fail"))
}

/// As [`explore_with`], and keeps a checkpoint: goes on from it if it is there, writes it from time to time between two
/// levels, and at the end. The outcome is that of one run without. Threads and limits may differ from run to run, and a
/// search that ran into a limit goes on from its last checkpoint if there is more room now.
///
/// # Errors
///
/// If the checkpoint cannot be read or written, or is not one of this search.
///
/// # Panics
///
/// If the search is to be reduced: that is more than one search, and has no checkpoints.
pub fn explore_from<S: System>(
    system: &S,
    options: &Options,
    progress: &dyn Fn(&Progress),
    checkpoint: &Checkpoint,
) -> Result<Outcome<S::Action>, CheckpointError> {
    // What decides which states there are and what is noted about them; threads and limits do not.
    let Options { exact, want, stop_at_first, liveness, expand_violating, reduce, all_steps, .. } = options;
    assert!(!reduce && !all_steps, "expected a search of the whole system, which has checkpoints, got a reduced one");
    let options_too = format!(
        "{}; word {}, exact {exact}, want {want:?}, stop at first {stop_at_first}, liveness {liveness}, expand violating \
         {expand_violating}",
        checkpoint.identity,
        S::ENCODES_A_WORD
    );
    start(system, options, progress, Some(&Checkpoint { identity: options_too, ..checkpoint.clone() }))
}

fn start<S: System>(
    system: &S,
    options: &Options,
    progress: &dyn Fn(&Progress),
    checkpoint: Option<&Checkpoint>,
) -> Result<Outcome<S::Action>, CheckpointError> {
    if S::ENCODES_A_WORD {
        Search::<S, u64>::new(system, options, progress).outcome(checkpoint)
    } else {
        Search::<S, u128>::new(system, options, progress).outcome(checkpoint)
    }
}

/// Why a search ended before it saw everything.
enum Stop {
    Ran(Limit),
    AtFirst,
    Failed(CheckpointError),
}

struct Search<'a, S: System, K> {
    system: &'a S,
    options: &'a Options,
    progress: &'a dyn Fn(&Progress),
    visited: Visited<K>,
    parents: Column<u32>,
    positions: Column<u16>,
    graph: SystemGraph,
    broken: BTreeMap<&'static str, Broken>,
    marks: Marks,
    counts: Counts,
    table_bytes: u64,
    /// The numbers of the candidates of the chunk that is being merged.
    merged: Vec<u32>,
}

/// States that are expanded together, in order.
type Chunk<S> = Vec<<S as System>::State>;

/// A chunk that a worker has expanded.
struct Expanded<S: System, K> {
    /// Its place in its batch.
    place: usize,
    worker: usize,
    /// Of use for their storage.
    states: Chunk<S>,
    expansion: Expansion<K, S::State>,
}

impl<'a, S: System, K: Key> Search<'a, S, K> {
    fn new(system: &'a S, options: &'a Options, progress: &'a dyn Fn(&Progress)) -> Self {
        Self {
            system,
            options,
            progress,
            visited: Visited::new(options.exact),
            parents: Column::default(),
            positions: Column::default(),
            graph: SystemGraph::default(),
            broken: BTreeMap::new(),
            marks: Marks::default(),
            counts: Counts::default(),
            table_bytes: 0,
            merged: Vec::new(),
        }
    }

    fn run(&mut self, checkpoint: Option<&Checkpoint>) -> Result<(), Stop> {
        let mut keeper = checkpoint.map(Keeper::new);
        let resumed = checkpoint.map(|checkpoint| self.resume(checkpoint)).transpose().map_err(Stop::Failed)?.flatten();
        let mut frontier = match resumed {
            Some(resumed) => resumed,
            None => self.start()?,
        };
        let (system, options) = (self.system, self.options);
        let mut workers: Vec<_> = (0..options.threads.max(1)).map(|_| Expander::new(system, options)).collect();
        while frontier.len() > 0 {
            frontier = self.expand_level(&mut workers, frontier)?;
            self.counts.depth += u64::from(frontier.len() > 0);
            if let Some(keeper) = &mut keeper
                && (keeper.is_due() || frontier.len() == 0)
            {
                keeper.write(|to| self.save(frontier.first, to)).map_err(Stop::Failed)?;
            }
        }
        Ok(())
    }

    /// The distinct initial states.
    fn start(&mut self) -> Result<Frontier<S::State>, Stop> {
        let mut frontier = Frontier::new(0);
        let mut encoding = Vec::new();
        for (position, state) in self.system.initial().into_iter().enumerate() {
            encoding.clear();
            self.system.encode(&state, &mut encoding);
            let candidate = Candidate {
                key: K::of(&encoding),
                parent: NO_PARENT,
                position: u16::try_from(position).expect("at most 65,536 initial states"),
                state,
                encoding_end: 0,
            };
            self.admit(candidate, &encoding, &mut frontier, &mut Vec::new())?;
        }
        Ok(frontier)
    }

    /// Expands a level; gives the next one.
    fn expand_level(
        &mut self,
        workers: &mut [Expander<'a, S, K>],
        frontier: Frontier<S::State>,
    ) -> Result<Frontier<S::State>, Stop> {
        let mut first = frontier.first;
        let mut left = frontier.len();
        self.report(left);
        let mut next = Frontier::new(first + left as u32);
        let mut chunks = frontier.into_chunks();
        loop {
            let batch: Vec<Chunk<S>> = chunks.by_ref().take(workers.len() * CHUNKS_PER_WORKER).collect();
            if batch.is_empty() {
                return Ok(next);
            }
            // One worker merges each chunk while its steps are in the cache.
            let busy = workers.len().min(batch.len() / CHUNKS_WORTH_A_WORKER);
            let together = if busy > 1 { batch.len() } else { 1 };
            let mut batch = batch.into_iter();
            while batch.len() > 0 {
                let some: Vec<Chunk<S>> = batch.by_ref().take(together).collect();
                for done in self.expand_batch(&mut workers[..busy.max(1)], first, some) {
                    let states = done.states.len();
                    let mut spare = done.states;
                    self.merge(done.expansion, &mut next, &mut spare)?;
                    workers[done.worker].recycle(spare);
                    left -= states;
                    first += states as u32;
                    self.report(left);
                }
            }
        }
    }

    /// Expands all chunks of `batch`, on as many threads as there are workers, in any order, and gives them back in their
    /// own order.
    fn expand_batch(
        &self,
        workers: &mut [Expander<'a, S, K>],
        first: u32,
        batch: Vec<Chunk<S>>,
    ) -> Vec<Expanded<S, K>> {
        let visited = &self.visited;
        let unclaimed = Mutex::new((first, batch.into_iter().enumerate()));
        let claim = || {
            let mut unclaimed = unclaimed.lock().expect("nobody panics while holding it");
            let (place, states) = unclaimed.1.next()?;
            let first = unclaimed.0;
            unclaimed.0 += states.len() as u32;
            Some((place, first, states))
        };
        let work = |worker: usize, expander: &mut Expander<'a, S, K>| {
            let mut mine = Vec::new();
            while let Some((place, first, mut states)) = claim() {
                let expansion = expander.expand(visited, first, &mut states);
                mine.push(Expanded { place, worker, states, expansion });
            }
            mine
        };
        let (one, others) = workers.split_first_mut().expect("there is at least one worker");
        if others.is_empty() {
            return work(0, one);
        }
        let mut all = Vec::new();
        thread::scope(|scope| {
            let spawn = |(at, expander)| scope.spawn(move || work(at + 1, expander));
            let others: Vec<_> = others.iter_mut().enumerate().map(spawn).collect();
            all = work(0, one);
            for other in others {
                match other.join() {
                    Ok(more) => all.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        all.sort_unstable_by_key(|expanded| expanded.place);
        all
    }

    /// Numbers what is new in `expansion` and takes over the rest; states that are not new go to `spare`. Must be called
    /// in the order of the chunks.
    fn merge(
        &mut self,
        mut expansion: Expansion<K, S::State>,
        next: &mut Frontier<S::State>,
        spare: &mut Vec<S::State>,
    ) -> Result<(), Stop> {
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
        // As with look-ups: the waits for memory overlap.
        let places = expansion.candidates.iter().map(|candidate| self.visited.first_slot(candidate.key));
        std::hint::black_box(places.fold(0, |sum, slot| sum ^ slot));
        for candidate in expansion.candidates.drain(..) {
            let encoding_end = candidate.encoding_end;
            let index = self.admit(candidate, &expansion.encodings[encoding_start..encoding_end], next, spare)?;
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

    fn merge_graph(&mut self, expansion: &Expansion<K, S::State>) -> Result<(), Stop> {
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
        candidate: Candidate<K, S::State>,
        encoding: &[u8],
        next: &mut Frontier<S::State>,
        spare: &mut Vec<S::State>,
    ) -> Result<u32, Stop> {
        // A full set may still know the state: then nothing is lost.
        let full = self.visited.len() as u64 >= self.options.states_max.min(STATES_MAX);
        if full || self.visited.bytes_for_one_more() > 0 {
            if let Some(index) = self.visited.find(candidate.key, encoding) {
                spare.push(candidate.state);
                return Ok(index);
            }
            if full {
                return Err(Stop::Ran(Limit::States));
            }
            self.account(self.visited.bytes_for_one_more())?;
        }
        match self.visited.insert(candidate.key, encoding) {
            Entry::Known(index) => {
                spare.push(candidate.state);
                Ok(index)
            }
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
        let parents = self.parents.bytes() + self.positions.bytes();
        let bytes = self.visited.bytes() + parents + self.graph.bytes();
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
            table_bytes: self.table_bytes,
        });
    }

    fn outcome(mut self, checkpoint: Option<&Checkpoint>) -> Result<Outcome<S::Action>, CheckpointError> {
        let end = match self.run(checkpoint) {
            Err(Stop::Failed(error)) => return Err(error),
            end => end,
        };
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
            Err(Stop::AtFirst | Stop::Failed(_)) => {
                unreachable!("the search stops at a broken property, which has a trace")
            }
            Ok(()) => Verdict::Holds,
        };
        Ok(Outcome {
            verdict,
            exhausted: end.is_ok(),
            liveness_judged,
            traces,
            counts: self.counts,
            marks: self.marks,
            miss: match self.options.exact || K::EXACT {
                true => MissProbability::Zero,
                false => MissProbability::of_fingerprints(self.counts.states),
            },
            fingerprint_collisions,
            table_bytes: self.table_bytes,
            reduction: None,
            acyclic,
            digest: self.digest(),
        })
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
        let found = fair::first_loop::<S, K>(
            self.system,
            self.options,
            &judged.components,
            |index| trace::walk(self.system, &self.path_to(index)).1,
            |index| self.visited.keys().at(index),
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
        let target = self.visited.keys().at(index);
        let is_target = |encoding: &[u8]| K::of(encoding) == target;
        let allowed = |found: &Found| !self.options.ends_at(self.system, &found.violations);
        trace::follow(self.system, state, is_target, wanted, allowed)
    }

    /// The numbers of the states on the way to `index`, from an initial state on.
    fn indices_to(&self, index: u32) -> Vec<u32> {
        let mut indices: Vec<u32> = std::iter::successors(Some(index), |&index| {
            let parent = self.parents.at(index);
            (parent != NO_PARENT).then_some(parent)
        })
        .collect();
        indices.reverse();
        indices
    }

    fn path_to(&self, index: u32) -> Path {
        let mut positions = self.indices_to(index).into_iter().map(|index| self.positions.at(index));
        Path {
            initial: positions.next().map(usize::from).expect("a way to a state holds the state itself"),
            positions: positions.collect(),
        }
    }

    fn digest(&self) -> u128 {
        let origins = self.parents.iter().zip(self.positions.iter());
        let origins = origins.map(|(parent, position)| u128::from(parent) << 16 | u128::from(position));
        digest(self.visited.keys().iter().zip(origins).flat_map(|(key, origin)| [key.wide(), origin]))
    }
}
