//! What the explorer explores: any state machine that can list its actions and take one.

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::hash::{Hash, Hasher};

use kvweft_trace::StepLine;

use crate::words::{self, Told};

use crate::reduce::Process;

/// Who is responsible for an action. Liveness is judged by [`Class::System`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The system itself: must happen eventually (manager, streams, copy engines, network delivery).
    System,
    /// A timer that may fire, but on which no verdict of progress may rest.
    Timer,
    /// The outside world: may happen within its budget (clients, aborts, faults).
    Environment,
}

/// One property found broken by one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// The kebab-case name of the property, for instance `reads-see-own-content`.
    pub property: &'static str,
    /// One line: what was expected, what came, where. Uses no raw ids, so that it is stable.
    pub detail: String,
}

/// What steps showed beside the new state. The explorer hands one to many steps: each adds what it found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Properties that the step broke.
    pub violations: Vec<Violation>,
    /// Marks reached: a set of small numbers that only the system gives a meaning to (a covered cell of a
    /// transition table, a rule that held something back). The explorer unites them over the whole search.
    pub marks: Marks,
    /// Kinds of actions that [`System::eager`] gave out before this step and, as this step shows, should not have: one
    /// bit a kind.
    pub refuted: u128,
}

/// A fixed-size set of small numbers, `0..Marks::CAPACITY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks([u64; 16]);

impl Marks {
    /// One more than the largest number that can be set.
    pub const CAPACITY: usize = 16 * 64;

    /// Adds `mark`.
    pub fn set(&mut self, mark: usize) {
        self.0[mark / 64] |= 1 << (mark % 64);
    }

    /// Adds `64 * word + i` for every bit `i` of `bits`.
    pub fn set_word(&mut self, word: usize, bits: u64) {
        self.0[word] |= bits;
    }

    /// Whether `mark` is in the set.
    pub fn contains(&self, mark: usize) -> bool {
        self.0[mark / 64] & (1 << (mark % 64)) != 0
    }

    /// All of it, 64 marks a word.
    pub(crate) fn words(&self) -> &[u64; 16] {
        &self.0
    }

    /// What [`Marks::words`] gave.
    pub(crate) fn of_words(words: [u64; 16]) -> Self {
        Self(words)
    }

    /// Adds all of `other`.
    pub fn unite(&mut self, other: &Marks) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
}

/// A finite state machine under exploration.
///
/// `step` must be deterministic: equal states and equal actions give equal results. States that `encode` to the same
/// bytes must be interchangeable (same enabled actions, encodings of the successors equal again).
pub trait System: Sync {
    /// One whole state.
    type State: Clone + Send + Sync;
    /// Whether every state [encodes](System::encode) to exactly 8 bytes. Then the search keeps the encodings themselves in
    /// place of fingerprints: it is exact, and takes less memory.
    const ENCODES_A_WORD: bool = false;

    /// One action. Its order breaks ties between equally short traces.
    type Action: Clone + Eq + Ord + Hash + Debug + Display + Send + Sync;

    /// The initial states, in a fixed order.
    fn initial(&self) -> Vec<Self::State>;
    /// Appends every action that is possible in `state`, in a fixed order and without duplicates.
    fn enabled(&self, state: &Self::State, out: &mut Vec<Self::Action>);
    /// Takes `action`. The state stays defined after a violation, and exploration goes on.
    fn step(&self, state: &mut Self::State, action: &Self::Action, found: &mut Found);
    /// Who is responsible for `action` when it is taken in `state`.
    fn class(&self, state: &Self::State, action: &Self::Action) -> Class;
    /// Whether everything that was asked for has ended well: the goal that must stay within reach.
    fn done(&self, state: &Self::State) -> bool;
    /// Appends the canonical encoding of `state`: equal bytes mean the same state up to renaming of ids.
    fn encode(&self, state: &Self::State, out: &mut Vec<u8>);
    /// Whether the search goes on behind a step that broke this: what is broken is seen, and the state is worth exploring.
    /// If not (the default), the state behind such a step is left alone: see
    /// [`Options::expand_violating`](crate::explore::Options::expand_violating).
    fn survives(&self, violation: &Violation) -> bool {
        let _ = violation;
        false
    }
    /// What is still owed in `state` when nothing more can happen there: one violation per liveness property that the
    /// end state breaks (a request without an answer, a page that never returned). Called on stuck states alone.
    fn owed(&self, state: &Self::State) -> Vec<Violation> {
        let _ = state;
        Vec::new()
    }
    /// Appends bytes that are equal for states that a symmetry of the system takes into each other: [`System::encode`] of
    /// a state that is picked from all of them. A better pick leaves fewer states; any is right.
    fn canonical(&self, state: &Self::State, out: &mut Vec<u8>) {
        self.encode(state, out);
    }
    /// Appends the processes of the system in `state`, if it is known what they touch. If not (the default), every action
    /// counts as dependent on every other.
    fn processes(&self, state: &Self::State, out: &mut Vec<Process>) -> bool {
        let _ = (state, out);
        false
    }
    /// The place of an action's process among [`System::processes`].
    fn process_of(&self, state: &Self::State, action: &Self::Action) -> usize {
        let _ = (state, action);
        0
    }
    /// An enabled System action that commutes with every run of other actions that may come before it, if there is one
    /// and its kind is not in `refuted`. A claim that may turn out wrong must be watched: see [`Found::refuted`].
    fn eager(&self, state: &Self::State, refuted: u128) -> Option<Self::Action> {
        let _ = (state, refuted);
        None
    }
    /// Takes out of `actions`, all that are possible in `state`, some that can wait: no run of them leads to one that depends
    /// on an action that is left, unless its kind is in `refuted`. Gives back whether the system can tell such a thing.
    fn put_off(&self, state: &Self::State, refuted: u128, actions: &mut Vec<Self::Action>) -> bool {
        let _ = (state, refuted, actions);
        false
    }
    /// Who takes `action`: schedulers give priorities to actors. The first word of its text, if it has several.
    fn actor(&self, state: &Self::State, action: &Self::Action) -> Cow<'static, str> {
        let _ = state;
        Cow::Owned(words::actor_and_words(&action.to_string()).0)
    }
    /// `actions`, taken one after the other from the initial state at the place `initial`, in words.
    fn tell(&self, initial: usize, actions: &[Self::Action]) -> Told
    where
        Self: Sized,
    {
        words::tell(self, initial, actions)
    }
    /// The actions that lines of a trace say: the way back from [`System::tell`].
    ///
    /// # Errors
    /// The first step that cannot happen.
    fn retrace(&self, initial: usize, lines: &[StepLine]) -> Result<Vec<Self::Action>, String>
    where
        Self: Sized,
    {
        words::retrace(self, initial, lines)
    }
}

/// Appends what `value` hashes: an encoding for [`System::encode`] of anything that derives [`Hash`]. Equal values give
/// equal bytes; values that differ must hash differently, as they do where `Hash` is derived.
pub fn encode_hash<T: Hash + ?Sized>(value: &T, out: &mut Vec<u8>) {
    value.hash(&mut Bytes(out));
}

/// Keeps what is written, the same on every platform.
struct Bytes<'a>(&'a mut Vec<u8>);

impl Hasher for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_u16(&mut self, number: u16) {
        self.write(&number.to_le_bytes());
    }

    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    fn write_u128(&mut self, number: u128) {
        self.write(&number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0.len() as u64
    }
}
