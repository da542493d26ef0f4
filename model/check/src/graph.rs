//! Graphs for Graphviz: the manager's state machines, and traces.

use std::collections::BTreeMap;

use kvweft_core::machine::Next;
use kvweft_core::machine::request::{self, RequestEvent, RequestState};
use kvweft_core::machine::slot::{self, SlotEvent, SlotState};
use kvweft_trace::TraceFile;
use petgraph::dot::{Config, Dot};
use petgraph::graph::DiGraph;

/// The request machine as a graph: one edge for each pair of states, labelled with its events.
pub fn request_dot() -> String {
    machine_dot(&RequestState::ALL, &RequestEvent::ALL, request::next)
}

/// The slot machine as a graph.
pub fn slot_dot() -> String {
    machine_dot(&SlotState::ALL, &SlotEvent::ALL, slot::next)
}

fn machine_dot<S, E>(states: &[S], events: &[E], next: impl Fn(S, E) -> Next<S>) -> String
where
    S: Copy + PartialEq + std::fmt::Debug,
    E: Copy + std::fmt::Debug,
{
    let mut graph = DiGraph::<String, String>::new();
    let nodes: Vec<_> = states.iter().map(|state| graph.add_node(format!("{state:?}"))).collect();
    for (from, &state) in states.iter().enumerate() {
        let mut labels: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for &event in events {
            if let Next::To(target) = next(state, event) {
                let to = states.iter().position(|&other| other == target).expect("every state is listed");
                labels.entry(to).or_default().push(format!("{event:?}"));
            }
        }
        for (to, events) in labels {
            graph.add_edge(nodes[from], nodes[to], events.join(", "));
        }
    }
    dot(&graph)
}

/// The table of a machine: every (state, event) outcome.
pub fn request_table() -> String {
    table(&RequestState::ALL, &RequestEvent::ALL, request::next)
}

/// The table of the slot machine.
pub fn slot_table() -> String {
    table(&SlotState::ALL, &SlotEvent::ALL, slot::next)
}

fn table<S, E>(states: &[S], events: &[E], next: impl Fn(S, E) -> Next<S>) -> String
where
    S: Copy + std::fmt::Debug,
    E: Copy + std::fmt::Debug,
{
    let mut out = String::new();
    for &state in states {
        for &event in events {
            let outcome = match next(state, event) {
                Next::To(target) => format!("-> {target:?}"),
                Next::Stay(why) => format!("stays: {why}"),
                Next::Refused(rule) => format!("refused by {}", rule.name()),
                Next::Never(why) => format!("never: {why}"),
            };
            let cell = format!("{state:?}");
            out.push_str(&format!("{cell:<14}{:<14}{outcome}\n", format!("{event:?}")));
        }
    }
    out
}

/// A trace as a graph: the steps of one actor in a row, and an edge from the step that handed a transfer or step out to
/// each first use of it.
pub fn trace_dot(trace: &TraceFile) -> String {
    let mut graph = DiGraph::<String, String>::new();
    let mut last_of: BTreeMap<&str, petgraph::graph::NodeIndex> = BTreeMap::new();
    let mut bound: BTreeMap<String, petgraph::graph::NodeIndex> = BTreeMap::new();
    for (i, step) in trace.steps.iter().enumerate() {
        let mark = if step.mark.is_empty() { String::new() } else { format!(" [{}]", step.mark) };
        let node = graph.add_node(format!("{} {}: {}{mark}", i + 1, step.actor, step.action));
        if let Some(before) = last_of.insert(&step.actor, node) {
            graph.add_edge(before, node, String::new());
        }
        let subject = step.action.split(' ').find(|word| bound.contains_key(*word)).unwrap_or_default();
        if let Some(&origin) = bound.get(subject)
            && !graph.contains_edge(origin, node)
        {
            graph.add_edge(origin, node, subject.to_owned());
        }
        for name in step.result.split("; ").filter_map(|part| part.strip_prefix("=> ")) {
            if let Some(name) = name.split(' ').next().filter(|name| name.starts_with(['t', 's'])) {
                bound.entry(name.to_owned()).or_insert(node);
            }
        }
    }
    dot(&graph)
}

fn dot(graph: &DiGraph<String, String>) -> String {
    let label = |text: &str| format!("label=\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let edge = |_: &DiGraph<String, String>, edge: petgraph::graph::EdgeReference<'_, String>| label(edge.weight());
    let node = |_: &DiGraph<String, String>, (_, name): (petgraph::graph::NodeIndex, &String)| {
        format!("shape=box {}", label(name))
    };
    let config = [Config::EdgeNoLabel, Config::NodeNoLabel];
    format!("{:?}", Dot::with_attr_getters(graph, &config, &edge, &node))
}
