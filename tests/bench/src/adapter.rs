//! Any [`System`] as a model of stateright: the same steps, the same encodings, another search.

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};

use kvweft_check::system::{Found, System};
use stateright::{Model, Property};

/// A system, driven by stateright.
pub(crate) struct Adapter<S: 'static>(pub(crate) &'static S);

/// A state that is known by its encoding.
pub(crate) struct State<S: System + 'static> {
    state: S::State,
    broken: bool,
    owner: &'static S,
}

thread_local! {
    static ENCODING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<S: System> State<S> {
    fn with_encoding<T>(&self, then: impl FnOnce(&[u8]) -> T) -> T {
        ENCODING.with_borrow_mut(|encoding| {
            encoding.clear();
            self.owner.encode(&self.state, encoding);
            then(encoding)
        })
    }
}

impl<S: System> Clone for State<S> {
    fn clone(&self) -> Self {
        State { state: self.state.clone(), ..*self }
    }
}

impl<S: System> fmt::Debug for State<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_encoding(|encoding| write!(f, "{encoding:?}"))
    }
}

impl<S: System> PartialEq for State<S> {
    fn eq(&self, other: &Self) -> bool {
        let own = self.with_encoding(<[u8]>::to_vec);
        other.with_encoding(|encoding| encoding == own)
    }
}

impl<S: System> Hash for State<S> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.with_encoding(|encoding| hasher.write(encoding));
    }
}

impl<S: System<State: Send + Sync> + 'static> Model for Adapter<S> {
    type State = State<S>;
    type Action = S::Action;

    fn init_states(&self) -> Vec<State<S>> {
        let state = |state| State { state, broken: false, owner: self.0 };
        self.0.initial().into_iter().map(state).collect()
    }

    fn actions(&self, state: &State<S>, actions: &mut Vec<S::Action>) {
        self.0.enabled(&state.state, actions);
    }

    fn next_state(&self, state: &State<S>, action: S::Action) -> Option<State<S>> {
        let mut next = state.clone();
        let mut found = Found::default();
        self.0.step(&mut next.state, &action, &mut found);
        next.broken = !found.violations.is_empty();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing is broken", |_: &Self, state: &State<S>| !state.broken)]
    }
}
