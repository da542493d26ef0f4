//! What is claimed of single states: an eager step, and a step that is put off, commute with every other that is possible
//! there, bit for bit and violation for violation, or the other one refutes the claim.

use std::collections::BTreeMap;

use kvweft_check::build::CacheSystem;
use kvweft_check::system::{Found, System, Violation};
use kvweft_core::Manager;
use kvweft_world::{Action, Operation, World};

use crate::worlds::{Numbers, wanted, world};

type State = World<Manager>;

/// What an action is called whatever else is under way: places in lists move.
#[derive(Debug, PartialEq)]
enum Name {
    Does(Vec<Operation>),
    Is(Action),
}

fn name(system: &CacheSystem, state: &State, action: Action) -> Name {
    let operations = state.operations(&system.machine, action);
    if operations.is_empty() { Name::Is(action) } else { Name::Does(operations) }
}

fn named(system: &CacheSystem, state: &State, wanted: &Name) -> Option<Action> {
    let mut enabled = Vec::new();
    system.enabled(state, &mut enabled);
    enabled.into_iter().find(|&action| name(system, state, action) == *wanted)
}

/// A state behind some steps, and what they showed.
struct Behind {
    state: State,
    violations: Vec<Violation>,
    refuted: bool,
}

fn take(system: &CacheSystem, state: &State, actions: &[Name]) -> Option<Behind> {
    let mut behind = Behind { state: state.clone(), violations: Vec::new(), refuted: false };
    for wanted in actions {
        let action = named(system, &behind.state, wanted)?;
        let mut found = Found::default();
        system.step(&mut behind.state, &action, &mut found);
        behind.refuted |= found.refuted != 0;
        behind.violations.extend(found.violations);
    }
    behind.violations.sort();
    Some(behind)
}

fn bits(system: &CacheSystem, state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    system.encode(state, &mut out);
    out
}

/// How often each kind of claim was put to the test, and how often another step refuted it.
#[derive(Debug, Default)]
struct Tested(BTreeMap<&'static str, [u64; 2]>);

impl Tested {
    /// `first` and `second` are possible in `state`; in either order the same comes of both. If `absorbed`, what comes of
    /// the second alone is the same as well.
    fn pair(&mut self, system: &CacheSystem, state: &State, kind: &'static str, pair: [Action; 2], text: &str) {
        let names = || pair.map(|action| name(system, state, action));
        let ends = |behind: &Behind| behind.violations.iter().any(|violation| !system.survives(violation));
        let [a, b] = names();
        let (first, second) = (take(system, state, &[a]).expect(text), take(system, state, &[b]).expect(text));
        if ends(&first) {
            // Then it is neither taken at once nor put off.
            return;
        }
        if ends(&second) {
            // Where the search ends, nothing follows that might differ.
            let [a, b] = names();
            let there = take(system, state, &[a, b]).expect(text);
            let mut both = [first.violations, second.violations].concat();
            both.sort();
            assert!(there.refuted || there.violations == both, "{:?}: {text}", names());
            return;
        }
        let [a, b] = names();
        let there = take(system, state, &[a, b]).unwrap_or_else(|| panic!("{:?}: the first disables: {text}", names()));
        let [a, b] = names();
        // A deadline that passes takes in all that is queued.
        let back = match pair[1] {
            Action::Fire { .. } if kind.starts_with("metadata") => take(system, state, &[b]),
            _ => take(system, state, &[b, a]),
        };
        let counts = self.0.entry(kind).or_default();
        if there.refuted || back.as_ref().is_some_and(|back| back.refuted) {
            counts[1] += 1;
            return;
        }
        let back = back.unwrap_or_else(|| panic!("{:?}: the second disables: {text}", names()));
        assert_eq!(there.violations, back.violations, "{:?}: {text}", names());
        assert!(bits(system, &there.state) == bits(system, &back.state), "{:?} give two states: {text}", names());
        counts[0] += 1;
    }
}

fn ends_a_send(system: &CacheSystem, state: &State, action: Action) -> bool {
    matches!(state.operations(&system.machine, action)[..], [Operation::SendEnd { .. } | Operation::SendFail { .. }])
}

fn kind(system: &CacheSystem, state: &State, action: Action) -> &'static str {
    match action {
        Action::Stream { .. } => "stream",
        Action::Report { engine: 0, .. } => "note",
        Action::Report { .. } => "metadata put off",
        _ if ends_a_send(system, state, action) => "end of a send",
        _ => "begin of a send",
    }
}

/// Every claim about one state.
fn claims(system: &CacheSystem, state: &State, tested: &mut Tested, text: &str) {
    let mut enabled = Vec::new();
    system.enabled(state, &mut enabled);
    if let Some(eager) = system.eager(state, 0) {
        let kind = kind(system, state, eager);
        for &other in enabled.iter().filter(|&&other| other != eager) {
            // Which of two ends comes first decides which report does; here the argument is another one.
            if !(ends_a_send(system, state, eager) && ends_a_send(system, state, other)) {
                tested.pair(system, state, kind, [eager, other], text);
            }
        }
        return;
    }
    let mut kept = enabled.clone();
    system.put_off(state, 0, &mut kept);
    let late: Vec<Action> = enabled.iter().copied().filter(|action| !kept.contains(action)).collect();
    for late in late {
        let kind = if ends_a_send(system, state, late) { "end put off" } else { "metadata put off" };
        for &other in &kept {
            tested.pair(system, state, kind, [late, other], text);
        }
    }
}

const STEPS_MAX: usize = 60;

#[test]
fn steps_that_are_eager_or_put_off_commute_with_every_other_or_are_refuted() {
    let (mut numbers, mut tested) = (Numbers(13), Tested::default());
    for at in 0..2 * wanted(1_000) {
        let Some(lot) = world(&mut numbers, at % 4 != 0) else { continue };
        let mut state = lot.system.initial().swap_remove(0);
        for _ in 0..STEPS_MAX {
            claims(&lot.system, &state, &mut tested, &lot.text);
            let mut enabled = Vec::new();
            lot.system.enabled(&state, &mut enabled);
            if enabled.is_empty() {
                break;
            }
            let action = enabled[numbers.below(enabled.len() as u64) as usize];
            let mut found = Found::default();
            lot.system.step(&mut state, &action, &mut found);
            // Behind a violation that ends the search nothing is claimed.
            if found.violations.iter().any(|violation| !lot.system.survives(violation)) {
                break;
            }
        }
    }
    eprintln!("{tested:?}");
    for kind in ["stream", "begin of a send", "end of a send", "note", "end put off", "metadata put off"] {
        let [held, _] = tested.0.get(kind).copied().unwrap_or_default();
        assert!(held > 100, "{kind}: {tested:?}");
    }
}
