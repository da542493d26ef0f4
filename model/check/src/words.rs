//! Actions in words, for any system: what trace files of systems other than worlds are made of.

use kvweft_trace::StepLine;

use crate::system::{Found, System};

/// A run in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// One line a step, without marks.
    pub lines: Vec<StepLine>,
    /// What there is to show of the state after each step, as names and what they stand for; may be empty.
    pub memory: Vec<Vec<(String, String)>>,
}

/// Who acts, and what it does: the first word of an action's text, and the rest. One word alone is done by `system`.
pub fn actor_and_words(text: &str) -> (String, String) {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [] => ("system".to_owned(), "-".to_owned()),
        [one] => ("system".to_owned(), (*one).to_owned()),
        [actor, rest @ ..] => ((*actor).to_owned(), rest.join(" ")),
    }
}

/// Actions by their `Display`; below each step, what it broke.
pub(crate) fn tell<S: System>(system: &S, initial: usize, actions: &[S::Action]) -> Told {
    let mut told = Told::default();
    let Some(mut state) = system.initial().into_iter().nth(initial) else { return told };
    for step in actions {
        let (actor, action) = actor_and_words(&step.to_string());
        let mut found = Found::default();
        system.step(&mut state, step, &mut found);
        let broken: Vec<&str> = found.violations.iter().map(|violation| violation.property).collect();
        let result = if broken.is_empty() { String::new() } else { format!("breaks {}", broken.join(", ")) };
        told.lines.push(StepLine { actor, action, result, mark: String::new() });
    }
    told
}

/// The actions that lines say; at each step the first enabled one of those words.
pub(crate) fn retrace<S: System>(system: &S, initial: usize, lines: &[StepLine]) -> Result<Vec<S::Action>, String> {
    let mut actions = Vec::with_capacity(lines.len());
    let mut state = system.initial().into_iter().nth(initial).ok_or("the system has no such initial state")?;
    let mut enabled = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        enabled.clear();
        system.enabled(&state, &mut enabled);
        let said = |action: &S::Action| {
            let (actor, words) = actor_and_words(&action.to_string());
            actor == line.actor && words == line.action
        };
        let Some(action) = enabled.iter().find(|action| said(action)) else {
            return Err(format!("step {} cannot happen: {} {}", at + 1, line.actor, line.action));
        };
        system.step(&mut state, action, &mut Found::default());
        actions.push(action.clone());
    }
    Ok(actions)
}
