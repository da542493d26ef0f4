//! Expanding a run of states: the part of the search that workers do side by side.
//!
//! A worker only reads the visited set, which stands still meanwhile. What it finds depends on its own states alone but
//! for one thing: a successor that another worker of the same batch finds too is still unknown to both. That is settled
//! when the expansions are merged, in the order of the states they came from.

use super::key::Key;
use super::options::Options;
use super::visited::Visited;
use crate::system::{Class, Found, Marks, System, Violation};

/// A successor that was not known when it was found.
pub(super) struct Candidate<K, State> {
    pub(super) key: K,
    pub(super) parent: u32,
    pub(super) position: u16,
    pub(super) state: State,
    /// End of its encoding in [`Expansion::encodings`]; zero unless the search is exact.
    pub(super) encoding_end: usize,
}

/// The target of a System step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A numbered state.
    Known(u32),
    /// The candidate at this place of the same expansion.
    Candidate(u32),
    /// A state that is not explored: the step broke a property.
    Exit,
}

/// A step that broke a property.
pub(super) struct Broken {
    pub(super) violation: Violation,
    pub(super) parent: u32,
    pub(super) position: u16,
}

/// A state that is not done and in which no System action is enabled.
pub(super) struct Stuck {
    pub(super) state: u32,
    pub(super) owed: Vec<&'static str>,
}

/// What came of a run of states, all lists in the order of (state, action position).
pub(super) struct Expansion<K, State> {
    pub(super) candidates: Vec<Candidate<K, State>>,
    pub(super) encodings: Vec<u8>,
    /// The first break of each property.
    pub(super) broken: Vec<Broken>,
    pub(super) marks: Marks,
    pub(super) transitions: u64,
    pub(super) violating_steps: u64,
    pub(super) done: Vec<bool>,
    /// System steps of all states; with liveness only.
    pub(super) targets: Vec<Target>,
    /// End of each state's row in `targets`; with liveness only.
    pub(super) row_ends: Vec<usize>,
    /// Steps of the other classes, and the ends of their rows; with `all_steps` only.
    pub(super) others: Vec<Target>,
    pub(super) other_ends: Vec<usize>,
    pub(super) stuck: Vec<Stuck>,
    /// A property is broken and the search is to stop there.
    pub(super) stopped: bool,
}

impl<K, State> Expansion<K, State> {
    fn new() -> Self {
        Self {
            candidates: Vec::new(),
            encodings: Vec::new(),
            broken: Vec::new(),
            marks: Marks::default(),
            transitions: 0,
            violating_steps: 0,
            done: Vec::new(),
            targets: Vec::new(),
            row_ends: Vec::new(),
            others: Vec::new(),
            other_ends: Vec::new(),
            stuck: Vec::new(),
            stopped: false,
        }
    }
}

/// A step that was taken and whose target has not been looked up yet.
struct Taken<K, State> {
    position: u16,
    class: Class,
    /// The target; `None` if the step leaves the explored graph.
    target: Option<(K, State)>,
    /// End of its encoding in [`Row::encodings`].
    encoding_end: usize,
}

/// All steps of one state.
struct Row<K, State> {
    index: u32,
    taken: Vec<Taken<K, State>>,
    encodings: Vec<u8>,
    done: bool,
    /// What it owes, if it is stuck: neither done nor with a System step.
    stuck: Option<Vec<&'static str>>,
}

impl<K, State> Default for Row<K, State> {
    fn default() -> Self {
        Self { index: 0, taken: Vec::new(), encodings: Vec::new(), done: false, stuck: None }
    }
}

/// One worker, with buffers that it uses again and again.
pub(super) struct Expander<'a, S: System, K> {
    system: &'a S,
    options: &'a Options,
    actions: Vec<S::Action>,
    encoding: Vec<u8>,
    found: Found,
    /// States that nobody needs any more. Cloning into one uses its storage again.
    spare: Vec<S::State>,
    /// The steps of the present state, and of the one before. Targets are looked up one state late and all of a state
    /// together, so that the waits for memory overlap.
    row: Row<K, S::State>,
    row_before: Row<K, S::State>,
}

impl<'a, S: System, K: Key> Expander<'a, S, K> {
    pub(super) fn new(system: &'a S, options: &'a Options) -> Self {
        Self {
            system,
            options,
            actions: Vec::new(),
            encoding: Vec::new(),
            found: Found::default(),
            spare: Vec::new(),
            row: Row::default(),
            row_before: Row::default(),
        }
    }

    /// Takes states that nobody needs any more.
    pub(super) fn recycle(&mut self, states: impl IntoIterator<Item = S::State>) {
        self.spare.extend(states);
    }

    /// Takes every enabled action of every state in `states`, the first of which has the number `first`. What is left
    /// in `states` is of use for its storage alone.
    pub(super) fn expand(
        &mut self,
        visited: &Visited<K>,
        first: u32,
        states: &mut [S::State],
    ) -> Expansion<K, S::State> {
        let mut into = Expansion::new();
        for (offset, state) in states.iter_mut().enumerate() {
            self.take_all(first + offset as u32, state, &mut into);
            std::mem::swap(&mut self.row, &mut self.row_before);
            // The steps of the state before are looked up now; of the first state there is none.
            if offset > 0 {
                self.look_up(visited, &mut into);
            }
            if into.stopped {
                break;
            }
        }
        std::mem::swap(&mut self.row, &mut self.row_before);
        self.look_up(visited, &mut into);
        into.marks = std::mem::take(&mut self.found.marks);
        into
    }

    /// Takes all steps of a state into `row`.
    fn take_all(&mut self, index: u32, state: &mut S::State, into: &mut Expansion<K, S::State>) {
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        self.system.enabled(state, &mut actions);
        assert!(
            actions.len() <= usize::from(u16::MAX),
            "expected at most {} enabled actions in a state, got {}",
            u16::MAX,
            actions.len()
        );
        self.row.index = index;
        self.row.done = self.system.done(state);
        let class = |action| self.system.class(state, action);
        let stuck = self.options.liveness && !self.row.done && actions.iter().all(|a| class(a) != Class::System);
        self.row.stuck = stuck.then(|| self.system.owed(state).iter().map(|violation| violation.property).collect());
        let last = actions.len().saturating_sub(1);
        for (position, action) in actions.iter().enumerate() {
            let class = self.system.class(state, action);
            let next = self.copy_for_step(state, position == last);
            self.take((index, position as u16), next, (action, class), into);
            if into.stopped {
                self.row.stuck = None;
                break;
            }
        }
        self.actions = actions;
    }

    /// A copy of a state, or, with `last`, the state itself, with something to recycle left in its place.
    fn copy_for_step(&mut self, state: &mut S::State, last: bool) -> S::State {
        match self.spare.pop() {
            Some(spare) if last => std::mem::replace(state, spare),
            Some(mut spare) => {
                spare.clone_from(state);
                spare
            }
            None => state.clone(),
        }
    }

    fn take(
        &mut self,
        (parent, position): (u32, u16),
        mut next: S::State,
        (action, class): (&S::Action, Class),
        into: &mut Expansion<K, S::State>,
    ) {
        self.system.step(&mut next, action, &mut self.found);
        into.transitions += 1;
        let mut target = None;
        if self.leaves((parent, position), into) {
            self.spare.push(next);
        } else {
            self.encoding.clear();
            self.system.encode(&next, &mut self.encoding);
            if self.options.exact && !K::EXACT {
                self.row.encodings.extend_from_slice(&self.encoding);
            }
            target = Some((K::of(&self.encoding), next));
        }
        self.row.taken.push(Taken { position, class, target, encoding_end: self.row.encodings.len() });
    }

    /// Notes what the last step broke; whether the search leaves the system there.
    fn leaves(&mut self, at: (u32, u16), into: &mut Expansion<K, S::State>) -> bool {
        if self.found.violations.is_empty() {
            return false;
        }
        let violations = std::mem::take(&mut self.found.violations);
        let ends = self.options.ends_at(self.system, &violations);
        let wanted = self.record(violations, at, into);
        into.stopped |= wanted && self.options.stop_at_first;
        wanted && ends
    }

    /// Looks up the targets of `row`, and hands on those that are not known.
    fn look_up(&mut self, visited: &Visited<K>, into: &mut Expansion<K, S::State>) {
        let row = &mut self.row;
        let touched = row.taken.iter().filter_map(|taken| taken.target.as_ref());
        std::hint::black_box(touched.fold(0, |sum, (key, _)| sum ^ visited.first_slot(*key)));
        let row_start = into.targets.len();
        let mut encoding_start = 0;
        for Taken { position, class, target, encoding_end } in row.taken.drain(..) {
            let encoding = &row.encodings[encoding_start..encoding_end];
            encoding_start = encoding_end;
            let target = match target {
                None => Target::Exit,
                Some((key, state)) => match visited.find(key, encoding) {
                    Some(index) => {
                        self.spare.push(state);
                        Target::Known(index)
                    }
                    None => {
                        into.encodings.extend_from_slice(encoding);
                        let encoding_end = into.encodings.len();
                        into.candidates.push(Candidate { key, parent: row.index, position, state, encoding_end });
                        Target::Candidate((into.candidates.len() - 1) as u32)
                    }
                },
            };
            if !self.options.liveness {
                continue;
            }
            if class != Class::System {
                if self.options.all_steps {
                    into.others.push(target);
                }
            } else if !into.targets[row_start..].contains(&target) {
                into.targets.push(target);
            }
        }
        row.encodings.clear();
        into.done.push(row.done);
        if self.options.liveness {
            into.row_ends.push(into.targets.len());
            into.other_ends.push(into.others.len());
            into.stuck.extend(row.stuck.take().map(|owed| Stuck { state: row.index, owed }));
        }
    }

    /// Whether any of `violations` is wanted.
    fn record(
        &self,
        violations: Vec<Violation>,
        (parent, position): (u32, u16),
        into: &mut Expansion<K, S::State>,
    ) -> bool {
        let mut violating = false;
        for violation in violations {
            if !self.options.want.wants(violation.property) {
                continue;
            }
            violating = true;
            if !into.broken.iter().any(|broken| broken.violation.property == violation.property) {
                into.broken.push(Broken { violation, parent, position });
            }
        }
        into.violating_steps += u64::from(violating);
        violating
    }
}
