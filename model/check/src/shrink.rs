//! Making a violating list of actions as short as leaving actions out can make it.

use crate::system::{Found, System, Violation};

/// A list of actions that was shrunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk<A> {
    /// What is left, every action of it enabled where it stands, the last one breaking the property; or the input as it
    /// was, if no step of it breaks the property.
    pub actions: Vec<A>,
    /// What the last action breaks; `None` if the input breaks nothing by a step.
    pub violation: Option<Violation>,
    /// How often the system was run.
    pub replays: usize,
}

/// Shrinks `actions`, taken from the first initial state, to a list that still breaks `property` and from which no
/// single action can be left out.
///
/// An action that is not enabled when its turn comes is skipped. Properties that only an end state or a loop breaks are
/// not supported: such an input comes back as it is.
pub fn shrink<S: System>(system: &S, actions: &[S::Action], property: &str) -> Shrunk<S::Action> {
    shrink_from(system, 0, actions, property)
}

/// As [`shrink`], from the initial state at the place `initial`.
pub fn shrink_from<S: System>(system: &S, initial: usize, actions: &[S::Action], property: &str) -> Shrunk<S::Action> {
    let mut shrinker = Shrinker { system, initial, property, replays: 0 };
    let Some((mut kept, mut violation)) = shrinker.violating_part(actions.iter()) else {
        return Shrunk { actions: actions.to_vec(), violation: None, replays: shrinker.replays };
    };
    // Delta debugging: leave out one of `parts` parts at a time, ever finer.
    let mut parts = 2;
    while kept.len() > 1 {
        let part_length = kept.len().div_ceil(parts);
        let smaller = (0..kept.len()).step_by(part_length).find_map(|start| {
            let end = kept.len().min(start + part_length);
            shrinker.violating_part(kept[..start].iter().chain(&kept[end..]))
        });
        match smaller {
            Some(found) => {
                (kept, violation) = found;
                parts = 2.max(parts - 1);
            }
            None if part_length == 1 => break,
            None => parts = kept.len().min(parts * 2),
        }
    }
    Shrunk { actions: kept, violation: Some(violation), replays: shrinker.replays }
}

struct Shrinker<'a, S: System> {
    system: &'a S,
    initial: usize,
    property: &'a str,
    replays: usize,
}

impl<S: System> Shrinker<'_, S> {
    /// The actions that were enabled, up to the first that breaks the property.
    fn violating_part<'b>(
        &mut self,
        actions: impl Iterator<Item = &'b S::Action>,
    ) -> Option<(Vec<S::Action>, Violation)>
    where
        S::Action: 'b,
    {
        self.replays += 1;
        let mut state = self.system.initial().into_iter().nth(self.initial)?;
        let mut taken = Vec::new();
        let mut enabled = Vec::new();
        for action in actions {
            enabled.clear();
            self.system.enabled(&state, &mut enabled);
            if !enabled.contains(action) {
                continue;
            }
            let mut found = Found::default();
            self.system.step(&mut state, action, &mut found);
            taken.push(action.clone());
            let broken = found.violations.into_iter().find(|violation| violation.property == self.property);
            if let Some(violation) = broken {
                return Some((taken, violation));
            }
        }
        None
    }
}
