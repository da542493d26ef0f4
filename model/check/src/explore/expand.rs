//! Expanding a run of states: the part of the search that workers do side by side.
//!
//! A worker only reads the visited set, which stands still meanwhile. What it finds depends on its own states alone but
//! for one thing: a successor that another worker of the same batch finds too is still unknown to both. That is settled
//! when the expansions are merged, in the order of the states they came from.

use super::fingerprint::fingerprint;
use super::options::Options;
use super::visited::Visited;
use crate::system::{Class, Found, Marks, System, Violation};

/// A successor that was not known when it was found.
pub(super) struct Candidate<State> {
    pub(super) fingerprint: u128,
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
pub(super) struct Expansion<State> {
    pub(super) candidates: Vec<Candidate<State>>,
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

/// One worker, with buffers that it uses again and again.
pub(super) struct Expander<'a, S: System> {
    system: &'a S,
    options: &'a Options,
    actions: Vec<S::Action>,
    encoding: Vec<u8>,
    /// Holds the storage of the last duplicate, for states whose `clone_from` can use it again.
    spare: Option<S::State>,
}

impl<'a, S: System> Expander<'a, S> {
    pub(super) fn new(system: &'a S, options: &'a Options) -> Self {
        Self { system, options, actions: Vec::new(), encoding: Vec::new(), spare: None }
    }

    /// Takes every enabled action of every state in `states`, the first of which has the number `first`.
    pub(super) fn expand(&mut self, visited: &Visited, first: u32, states: &[S::State]) -> Expansion<S::State> {
        let mut into = Expansion {
            candidates: Vec::new(),
            encodings: Vec::new(),
            broken: Vec::new(),
            marks: Marks::default(),
            transitions: 0,
            violating_steps: 0,
            done: Vec::with_capacity(states.len()),
            targets: Vec::new(),
            row_ends: Vec::new(),
            others: Vec::new(),
            other_ends: Vec::new(),
            stuck: Vec::new(),
            stopped: false,
        };
        for (offset, state) in states.iter().enumerate() {
            self.expand_one(visited, first + offset as u32, state, &mut into);
            if into.stopped {
                break;
            }
        }
        into
    }

    fn expand_one(&mut self, visited: &Visited, index: u32, state: &S::State, into: &mut Expansion<S::State>) {
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        self.system.enabled(state, &mut actions);
        assert!(
            actions.len() <= usize::from(u16::MAX),
            "expected at most {} enabled actions in a state, got {}",
            u16::MAX,
            actions.len()
        );
        let row_start = into.targets.len();
        for (position, action) in actions.iter().enumerate() {
            let target = self.take(visited, (index, position as u16), state, action, into);
            if into.stopped {
                break;
            }
            if !self.options.liveness {
                continue;
            }
            if self.system.class(state, action) == Class::System {
                if !into.targets[row_start..].contains(&target) {
                    into.targets.push(target);
                }
            } else if self.options.all_steps {
                into.others.push(target);
            }
        }
        self.actions = actions;
        let done = self.system.done(state);
        into.done.push(done);
        if self.options.liveness {
            into.row_ends.push(into.targets.len());
            into.other_ends.push(into.others.len());
            if !done && into.targets.len() == row_start && !into.stopped {
                let owed = self.system.owed(state).into_iter().map(|violation| violation.property).collect();
                into.stuck.push(Stuck { state: index, owed });
            }
        }
    }

    fn take(
        &mut self,
        visited: &Visited,
        (parent, position): (u32, u16),
        state: &S::State,
        action: &S::Action,
        into: &mut Expansion<S::State>,
    ) -> Target {
        let mut next = match self.spare.take() {
            Some(mut spare) => {
                spare.clone_from(state);
                spare
            }
            None => state.clone(),
        };
        let mut found = Found::default();
        self.system.step(&mut next, action, &mut found);
        into.transitions += 1;
        into.marks.unite(&found.marks);
        if !found.violations.is_empty() {
            let ends = self.options.ends_at(self.system, &found.violations);
            if self.record(found.violations, (parent, position), into) {
                into.stopped = self.options.stop_at_first;
                if ends {
                    self.spare = Some(next);
                    return Target::Exit;
                }
            }
        }
        self.encoding.clear();
        self.system.encode(&next, &mut self.encoding);
        let fingerprint = fingerprint(&self.encoding);
        if let Some(index) = visited.find(fingerprint, &self.encoding) {
            self.spare = Some(next);
            return Target::Known(index);
        }
        if self.options.exact {
            into.encodings.extend_from_slice(&self.encoding);
        }
        let encoding_end = into.encodings.len();
        into.candidates.push(Candidate { fingerprint, parent, position, state: next, encoding_end });
        Target::Candidate((into.candidates.len() - 1) as u32)
    }

    /// Whether any of `violations` is wanted.
    fn record(
        &self,
        violations: Vec<Violation>,
        (parent, position): (u32, u16),
        into: &mut Expansion<S::State>,
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
