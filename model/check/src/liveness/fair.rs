//! Whether a weakly fair scheduler can stay in a component, and the shortest loop in which it can.

use std::collections::{BTreeMap, VecDeque};

use crate::explore::{Key, Options};
use crate::system::{Class, Found, System};

/// A loop that a weakly fair scheduler can keep.
pub(crate) struct FairLoop<A> {
    /// The state where it starts and ends.
    pub(crate) entry: u32,
    /// Its steps: the action, and the number of the state that it leads to.
    pub(crate) steps: Vec<(A, u32)>,
}

/// The loop of the first component that a fair scheduler can stay in: a shortest one from its least numbered state.
///
/// A component whose every fair part is fair is itself fair, and one that leaves out an action leaves it out in all its
/// parts: so the component as a whole answers for every loop in it.
pub(crate) fn first_loop<S: System, K: Key>(
    system: &S,
    options: &Options,
    components: &[Vec<u32>],
    state_of: impl Fn(u32) -> S::State,
    key_of: impl Fn(u32) -> K,
) -> Option<FairLoop<S::Action>> {
    components.iter().find_map(|states| {
        let part = Part::of(system, options, states, state_of(states[0]), &key_of);
        part.is_fair().then(|| {
            let steps = part.shortest_fair_walk().into_iter().map(|(action, to)| (action, states[to])).collect();
            FairLoop { entry: states[0], steps }
        })
    })
}

/// A System action that is possible in a state of a component, and where it leads.
struct Move<A> {
    action: A,
    to: To,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// The same state: it changes nothing.
    Itself,
    /// A state of the component, by its place.
    Inside(usize),
    Outside,
}

/// A state of a walk, by its place, and what has been seen to by then.
type At = (usize, u64);

/// A component with the actions of its states, which the graph of the search does not keep.
struct Part<A> {
    moves: Vec<Vec<Move<A>>>,
}

impl<A: Clone + Ord> Part<A> {
    /// Takes all System steps of the component's states once more, from `entry` on, which is the first of them.
    fn of<S: System<Action = A>, K: Key>(
        system: &S,
        options: &Options,
        states: &[u32],
        entry: S::State,
        key_of: impl Fn(u32) -> K,
    ) -> Self {
        let places: BTreeMap<K, usize> =
            states.iter().enumerate().map(|(place, &state)| (key_of(state), place)).collect();
        let mut moves: Vec<Option<Vec<Move<A>>>> = states.iter().map(|_| None).collect();
        let mut unvisited = VecDeque::from([(0, entry)]);
        let (mut enabled, mut encoding) = (Vec::new(), Vec::new());
        while let Some((place, state)) = unvisited.pop_front() {
            if moves[place].is_some() {
                continue;
            }
            enabled.clear();
            system.enabled(&state, &mut enabled);
            let mut of_state = Vec::new();
            for action in enabled.drain(..).filter(|action| system.class(&state, action) == Class::System) {
                let (mut next, mut found) = (state.clone(), Found::default());
                system.step(&mut next, &action, &mut found);
                encoding.clear();
                system.encode(&next, &mut encoding);
                let ends = options.ends_at(system, &found.violations);
                let to = match places.get(&K::of(&encoding)) {
                    Some(&target) if target == place && !ends => To::Itself,
                    Some(&target) if !ends => To::Inside(target),
                    _ => To::Outside,
                };
                if let To::Inside(target) = to {
                    unvisited.push_back((target, next));
                }
                of_state.push(Move { action, to });
            }
            moves[place] = Some(of_state);
        }
        Self { moves: moves.into_iter().map(|of_state| of_state.expect("a component hangs together")).collect() }
    }

    /// Whether every action that is possible all over the component is taken somewhere in it.
    fn is_fair(&self) -> bool {
        self.moves[0].iter().all(|first| {
            let missing = |place: &usize| !self.possible(*place, &first.action);
            (0..self.moves.len()).any(|place| missing(&place)) || self.taken(&first.action)
        })
    }

    /// Whether `action` would change the state.
    fn possible(&self, place: usize, action: &A) -> bool {
        self.moves[place].iter().any(|step| step.action == *action && step.to != To::Itself)
    }

    fn taken(&self, action: &A) -> bool {
        self.moves.iter().flatten().any(|step| step.action == *action && matches!(step.to, To::Inside(_)))
    }

    /// Walks grow until they leave nobody out: what a walk leaves out is added to what the next must see to. Each is a
    /// shortest one for a part of what is owed, hence the last is a shortest of all that are fair.
    fn shortest_fair_walk(&self) -> Vec<(A, usize)> {
        let mut owed: Vec<A> = Vec::new();
        loop {
            let walk = self.shortest_walk(&owed);
            let starved = self.moves[0]
                .iter()
                .map(|first| &first.action)
                .find(|&action| walk.iter().all(|(taken, to)| self.possible(*to, action) && taken != action));
            match starved {
                Some(action) => owed.push(action.clone()),
                None => return walk,
            }
        }
    }

    /// A shortest way of at least one step from the first state back to it that, for each action in `owed`, takes it or
    /// passes a state where it is not possible.
    fn shortest_walk(&self, owed: &[A]) -> Vec<(A, usize)> {
        let all = (1u64 << owed.len()) - 1;
        let seen_to = |place: usize| {
            let bits = owed.iter().enumerate().filter(|(_, action)| !self.possible(place, action));
            bits.fold(0, |bits, (at, _)| bits | 1 << at)
        };
        // For each, the one before and the step between.
        let start: At = (0, seen_to(0));
        let mut came_from: BTreeMap<At, (At, &A)> = BTreeMap::new();
        let mut unvisited = VecDeque::from([start]);
        while let Some(at) = unvisited.pop_front() {
            for step in &self.moves[at.0] {
                let to = match step.to {
                    To::Inside(to) => to,
                    To::Itself if self.moves.len() == 1 => at.0,
                    To::Itself | To::Outside => continue,
                };
                let taken = owed.iter().position(|action| *action == step.action).map_or(0, |at| 1 << at);
                let next = (to, at.1 | taken | seen_to(to));
                if came_from.contains_key(&next) {
                    continue;
                }
                came_from.insert(next, (at, &step.action));
                if next == (0, all) {
                    return Self::walked(&came_from, start, next);
                }
                unvisited.push_back(next);
            }
        }
        unreachable!("a fair component hangs together, and each of its obligations can be seen to in it")
    }

    fn walked(came_from: &BTreeMap<At, (At, &A)>, start: At, end: At) -> Vec<(A, usize)> {
        let mut walk = Vec::new();
        let mut at = end;
        loop {
            let (before, action) = came_from[&at];
            walk.push((action.clone(), at.0));
            at = before;
            if at == start {
                break;
            }
        }
        walk.reverse();
        walk
    }
}
