//! Managers that cannot be cloned or hashed: full of locks, shared pointers and guards. Their states are rebuilt by taking
//! the steps again.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;

use crate::system::{Class, Found, System, encode_hash};

/// A machine as four functions. A state of it is the list of steps that lead there; each step of a search begins with a
/// fresh machine and takes them again, so that a search costs the depth of a state times as much as one over states that
/// can be cloned.
///
/// All actions are [`Class::System`], and any state in which nothing is possible counts as done, unless
/// [`Checker::done`](crate::builder::Checker::done) says what an end should look like.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use kvweft_check::builder::Checker;
/// use kvweft_check::replayed::Replayed;
/// use kvweft_check::system::Found;
///
/// let counter = Replayed {
///     fresh: || Arc::new(Mutex::new(0u32)),
///     enabled: |counter: &Arc<Mutex<u32>>| if *counter.lock().unwrap() < 3 { vec!["add one"] } else { vec![] },
///     step: |counter: &mut Arc<Mutex<u32>>, _: &&str, _: &mut Found| *counter.lock().unwrap() += 1,
///     fingerprint: |counter: &Arc<Mutex<u32>>| *counter.lock().unwrap(),
/// };
/// Checker::new(counter).always("at-most-three", |state| *state.view() <= 3).check().assert_holds();
/// ```
pub struct Replayed<Fresh, Enabled, Step, Fingerprint> {
    /// A machine in which nothing has happened. Two of them must share nothing.
    pub fresh: Fresh,
    /// Every action that is possible, in a fixed order and without duplicates.
    pub enabled: Enabled,
    /// Takes an action, and says what it broke.
    pub step: Step,
    /// All that matters of a state, as a value: states with equal values are one. Properties look at it.
    pub fingerprint: Fingerprint,
}

/// A state of a [`Replayed`] machine.
#[derive(Clone, Debug)]
pub struct Rebuilt<A, V> {
    path: Option<Arc<Link<A>>>,
    enabled: Arc<[A]>,
    view: V,
}

#[derive(Debug)]
struct Link<A> {
    before: Option<Arc<Link<A>>>,
    action: A,
}

impl<A: Clone, V> Rebuilt<A, V> {
    /// What `fingerprint` gave for it.
    pub fn view(&self) -> &V {
        &self.view
    }

    /// The steps that lead to it.
    pub fn path(&self) -> Vec<A> {
        let mut link = self.path.as_ref();
        let mut path: Vec<A> = std::iter::from_fn(|| {
            let here = link?;
            link = here.before.as_ref();
            Some(here.action.clone())
        })
        .collect();
        path.reverse();
        path
    }
}

/// Why no verdict may rest on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Two machines that `fresh` made are not alike.
    #[error("`fresh` must make the same machine every time: expected {expected}, got {got}")]
    Fresh {
        /// The fingerprint of the first.
        expected: String,
        /// That of a later one.
        got: String,
    },
    /// A step of one machine changed another.
    #[error(
        "two machines that `fresh` made share state: `{action}` of one turned the other from {expected} into {got}; \
         make each of its own parts, in place of cloning pointers to common ones"
    )]
    Shared {
        /// The step.
        action: String,
        /// The fingerprint of the other machine before it.
        expected: String,
        /// And after it.
        got: String,
    },
    /// The same steps led to another state, or made other actions possible.
    #[error(
        "the same steps must lead to the same state: after step {step}, `{action}`, expected {expected}, got {got}; look \
         for a clock, a random number, the order of a hash table, or state that two machines share"
    )]
    Nondeterministic {
        /// The number of the step, from 1.
        step: usize,
        /// The step.
        action: String,
        /// The fingerprint and the possible actions at first.
        expected: String,
        /// And the second time.
        got: String,
    },
}

/// Walks that [`Replayed::verify`] takes, and steps of each.
const WALKS: u64 = 32;
const STEPS_MAX: usize = 64;

impl<M, A, V, Fresh, Enabled, Step, Fingerprint> Replayed<Fresh, Enabled, Step, Fingerprint>
where
    Fresh: Fn() -> M,
    Enabled: Fn(&M) -> Vec<A>,
    Step: Fn(&mut M, &A, &mut Found),
    Fingerprint: Fn(&M) -> V,
    A: Clone + Eq + Display + Debug,
    V: Eq + Debug,
{
    /// Looks for what would make every verdict worthless: machines that share state, and steps that differ when they are
    /// taken again. It walks at random, with fixed numbers. A search looks again at each state that it rebuilds.
    ///
    /// # Errors
    /// The first fault.
    pub fn verify(&self) -> Result<(), Fault> {
        let first = (self.fresh)();
        let expected = self.seen(&first);
        for walk in 0..WALKS {
            let (mut one, mut other) = ((self.fresh)(), (self.fresh)());
            for machine in [&one, &other, &first] {
                let got = self.seen(machine);
                if got != expected {
                    return Err(Fault::Fresh { expected: shown(&expected), got: shown(&got) });
                }
            }
            let mut numbers = crate::numbers::Numbers::new(walk);
            let mut taken: Vec<(A, (V, Vec<A>))> = Vec::new();
            for _ in 0..STEPS_MAX {
                let possible = (self.enabled)(&one);
                if possible.is_empty() {
                    break;
                }
                let action = possible[numbers.below(possible.len())].clone();
                (self.step)(&mut one, &action, &mut Found::default());
                let got = self.seen(&other);
                if got != expected {
                    let action = action.to_string();
                    return Err(Fault::Shared { action, expected: shown(&expected), got: shown(&got) });
                }
                taken.push((action, self.seen(&one)));
            }
            for (at, (action, expected)) in taken.iter().enumerate() {
                (self.step)(&mut other, action, &mut Found::default());
                let got = self.seen(&other);
                if got != *expected {
                    return Err(nondeterministic(at + 1, action, shown(expected), shown(&got)));
                }
            }
        }
        Ok(())
    }

    fn seen(&self, machine: &M) -> (V, Vec<A>) {
        ((self.fingerprint)(machine), (self.enabled)(machine))
    }
}

fn shown<V: Debug, A: Display>((view, enabled): &(V, Vec<A>)) -> String {
    let enabled: Vec<String> = enabled.iter().map(ToString::to_string).collect();
    format!("{view:?} with [{}]", enabled.join(", "))
}

fn nondeterministic(step: usize, action: &impl Display, expected: String, got: String) -> Fault {
    Fault::Nondeterministic { step, action: action.to_string(), expected, got }
}

/// # Panics
/// With the [`Fault`], before a search begins or where it rebuilds a state: no verdict could rest on such a machine.
impl<M, A, V, Fresh, Enabled, Step, Fingerprint> System for Replayed<Fresh, Enabled, Step, Fingerprint>
where
    Fresh: Fn() -> M + Sync,
    Enabled: Fn(&M) -> Vec<A> + Sync,
    Step: Fn(&mut M, &A, &mut Found) + Sync,
    Fingerprint: Fn(&M) -> V + Sync,
    A: Clone + Eq + Ord + Hash + Debug + Display + Send + Sync,
    V: Clone + Eq + Hash + Debug + Send + Sync,
{
    type State = Rebuilt<A, V>;
    type Action = A;

    fn initial(&self) -> Vec<Rebuilt<A, V>> {
        if let Err(fault) = self.verify() {
            panic!("{fault}");
        }
        let (view, enabled) = self.seen(&(self.fresh)());
        vec![Rebuilt { path: None, enabled: enabled.into(), view }]
    }

    fn enabled(&self, state: &Rebuilt<A, V>, out: &mut Vec<A>) {
        out.extend_from_slice(&state.enabled);
    }

    fn step(&self, state: &mut Rebuilt<A, V>, action: &A, found: &mut Found) {
        let mut machine = (self.fresh)();
        let path = state.path();
        for before in &path {
            (self.step)(&mut machine, before, &mut Found::default());
        }
        let again = self.seen(&machine);
        if (&again.0, again.1.as_slice()) != (&state.view, &state.enabled[..]) {
            let expected = shown(&(&state.view, state.enabled.to_vec()));
            let last: &dyn Display = path.last().map_or(&"fresh", |last| last);
            panic!("{}", nondeterministic(path.len(), &last, expected, shown(&again)));
        }
        (self.step)(&mut machine, action, found);
        let (view, enabled) = self.seen(&machine);
        let link = Link { before: state.path.take(), action: action.clone() };
        *state = Rebuilt { path: Some(Arc::new(link)), enabled: enabled.into(), view };
    }

    fn class(&self, _: &Rebuilt<A, V>, _: &A) -> Class {
        Class::System
    }

    fn done(&self, state: &Rebuilt<A, V>) -> bool {
        state.enabled.is_empty()
    }

    fn encode(&self, state: &Rebuilt<A, V>, out: &mut Vec<u8>) {
        encode_hash(&state.view, out);
    }
}
