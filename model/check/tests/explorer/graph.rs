//! A system that is written down edge by edge.

use std::fmt;

use kvweft_check::explore::{Options, Outcome, explore};
use kvweft_check::system::{Class, Found, System, Violation};

/// A graph of numbered states; state 0 is the initial one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    edges: Vec<Edge>,
    done: Vec<u32>,
    owed: Vec<(u32, &'static str)>,
    /// Initial states, if not 0 alone.
    initial: Option<Vec<u32>>,
    /// States are told apart by their number modulo this.
    encoded_modulo: Option<u32>,
}

#[derive(Clone, Debug)]
struct Edge {
    name: &'static str,
    from: u32,
    to: u32,
    class: Class,
    breaks: Vec<&'static str>,
}

/// The name of an edge, with its place for the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(usize, &'static str);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl Graph {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn edge(mut self, class: Class, name: &'static str, from: u32, to: u32) -> Self {
        self.edges.push(Edge { name, from, to, class, breaks: Vec::new() });
        self
    }

    pub(crate) fn system(self, name: &'static str, from: u32, to: u32) -> Self {
        self.edge(Class::System, name, from, to)
    }

    pub(crate) fn timer(self, name: &'static str, from: u32, to: u32) -> Self {
        self.edge(Class::Timer, name, from, to)
    }

    pub(crate) fn environment(self, name: &'static str, from: u32, to: u32) -> Self {
        self.edge(Class::Environment, name, from, to)
    }

    /// The last edge breaks `property`.
    pub(crate) fn breaks(mut self, property: &'static str) -> Self {
        self.edges.last_mut().expect("an edge goes first").breaks.push(property);
        self
    }

    pub(crate) fn done(mut self, state: u32) -> Self {
        self.done.push(state);
        self
    }

    pub(crate) fn owes(mut self, state: u32, property: &'static str) -> Self {
        self.owed.push((state, property));
        self
    }

    /// These are the initial states.
    pub(crate) fn starting_at(mut self, states: &[u32]) -> Self {
        self.initial = Some(states.to_vec());
        self
    }

    /// States with the same remainder encode to the same bytes.
    pub(crate) fn encoded_modulo(mut self, modulo: u32) -> Self {
        self.encoded_modulo = Some(modulo);
        self
    }

    /// The action called `name`.
    pub(crate) fn action(&self, name: &str) -> Name {
        let place = self.edges.iter().position(|edge| edge.name == name).expect("an edge of that name");
        Name(place, self.edges[place].name)
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.edges.len()
    }

    pub(crate) fn explore(&self) -> Outcome<Name> {
        explore(self, &Options { threads: 1, ..Options::default() })
    }
}

impl System for Graph {
    type State = u32;
    type Action = Name;

    fn initial(&self) -> Vec<u32> {
        self.initial.clone().unwrap_or_else(|| vec![0])
    }

    fn enabled(&self, state: &u32, out: &mut Vec<Name>) {
        let edges = self.edges.iter().enumerate().filter(|(_, edge)| edge.from == *state);
        out.extend(edges.map(|(place, edge)| Name(place, edge.name)));
    }

    fn step(&self, state: &mut u32, action: &Name, found: &mut Found) {
        let edge = &self.edges[action.0];
        *state = edge.to;
        found.marks.set(action.0);
        found
            .violations
            .extend(edge.breaks.iter().map(|&property| Violation { property, detail: edge.name.to_owned() }));
    }

    fn class(&self, _: &u32, action: &Name) -> Class {
        self.edges[action.0].class
    }

    fn done(&self, state: &u32) -> bool {
        self.done.contains(state)
    }

    fn encode(&self, state: &u32, out: &mut Vec<u8>) {
        let number = self.encoded_modulo.map_or(*state, |modulo| state % modulo);
        out.extend_from_slice(&number.to_le_bytes());
    }

    fn owed(&self, state: &u32) -> Vec<Violation> {
        let owed = self.owed.iter().filter(|(owing, _)| owing == state);
        owed.map(|&(_, property)| Violation { property, detail: format!("owed in {state}") }).collect()
    }
}

/// The actions of a trace as text.
pub(crate) fn names(steps: &[Name]) -> Vec<String> {
    steps.iter().map(Name::to_string).collect()
}
