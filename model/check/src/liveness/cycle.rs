//! Finding a cycle of System steps.

use super::{BitSet, EXIT, Reverse, SystemGraph};

/// The least numbered state on a cycle, and the states of a shortest cycle from it back to itself.
pub(super) fn first_cycle(graph: &SystemGraph, reverse: &Reverse) -> Option<(u32, Vec<u32>)> {
    let core = trim(graph, reverse);
    // Almost always nothing is left, and the memory of a search for components is never needed.
    core.first()?;
    let entry = least_on_cycle(graph, &core)?;
    let way = graph.shortest_way(entry, |state| core.contains(state), |state| state == entry);
    Some((entry, way.expect("the entry lies on a cycle of the core")))
}

/// The states from which a cycle is in reach: all that is left when states without a step are taken away, again and
/// again.
fn trim(graph: &SystemGraph, reverse: &Reverse) -> BitSet {
    let mut core = BitSet::default().complement(graph.len());
    let inside = |state: u32| graph.row(state).filter(|&target| target != EXIT).count() as u16;
    let mut degrees: Vec<u16> = (0..graph.len() as u32).map(inside).collect();
    let mut ends: Vec<u32> = (0..graph.len() as u32).filter(|&state| degrees[state as usize] == 0).collect();
    while let Some(state) = ends.pop() {
        core.remove(state);
        for &source in reverse.row(state) {
            degrees[source as usize] -= 1;
            if degrees[source as usize] == 0 {
                ends.push(source);
            }
        }
    }
    core
}

/// The least numbered state of all strongly connected components that hold a cycle: Tarjan's algorithm, with an explicit
/// stack because a path of System steps can be as long as there are states.
fn least_on_cycle(graph: &SystemGraph, core: &BitSet) -> Option<u32> {
    let mut tarjan = Tarjan {
        order: vec![0; graph.len()],
        low: vec![0; graph.len()],
        on_stack: BitSet::default(),
        stack: Vec::new(),
        entered: 0,
        least: None,
    };
    for root in (0..graph.len() as u32).filter(|&state| core.contains(state)) {
        if tarjan.order[root as usize] == 0 {
            tarjan.visit(graph, core, root);
        }
    }
    tarjan.least
}

struct Tarjan {
    /// When a state was entered, from 1; 0 if it was not.
    order: Vec<u32>,
    low: Vec<u32>,
    on_stack: BitSet,
    stack: Vec<u32>,
    entered: u32,
    least: Option<u32>,
}

impl Tarjan {
    fn visit(&mut self, graph: &SystemGraph, core: &BitSet, root: u32) {
        // A state, and how many of its steps were followed.
        let mut calls = vec![(root, 0)];
        self.enter(root);
        while let Some((state, followed)) = calls.last_mut() {
            let state = *state;
            if let Some(target) = graph.row(state).nth(*followed) {
                *followed += 1;
                if target == EXIT || !core.contains(target) {
                    continue;
                }
                if self.order[target as usize] == 0 {
                    self.enter(target);
                    calls.push((target, 0));
                } else if self.on_stack.contains(target) {
                    self.lower(state, self.order[target as usize]);
                }
            } else {
                calls.pop();
                if let Some(&(caller, _)) = calls.last() {
                    self.lower(caller, self.low[state as usize]);
                }
                if self.low[state as usize] == self.order[state as usize] {
                    self.close(graph, state);
                }
            }
        }
    }

    fn enter(&mut self, state: u32) {
        self.entered += 1;
        self.order[state as usize] = self.entered;
        self.low[state as usize] = self.entered;
        self.on_stack.insert(state);
        self.stack.push(state);
    }

    fn lower(&mut self, state: u32, order: u32) {
        let low = &mut self.low[state as usize];
        *low = (*low).min(order);
    }

    /// Takes the component of `head` off the stack.
    fn close(&mut self, graph: &SystemGraph, head: u32) {
        let start = self.stack.iter().rposition(|&state| state == head).expect("a head is on the stack");
        let component = self.stack.split_off(start);
        component.iter().for_each(|&state| self.on_stack.remove(state));
        if component.len() > 1 || graph.row(head).any(|target| target == head) {
            self.least = self.least.into_iter().chain(component).min();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(rows: &[&[u32]]) -> SystemGraph {
        let mut graph = SystemGraph::default();
        for row in rows {
            graph.push(row.iter().copied(), false).expect("a small graph");
        }
        graph
    }

    fn cycle(rows: &[&[u32]]) -> Option<(u32, Vec<u32>)> {
        let graph = graph(rows);
        first_cycle(&graph, &Reverse::of(&graph))
    }

    #[test]
    fn a_graph_without_a_cycle_has_none() {
        assert_eq!(cycle(&[]), None);
        assert_eq!(cycle(&[&[1, 2], &[3], &[3, EXIT], &[]]), None);
    }

    #[test]
    fn a_state_that_only_leads_to_a_cycle_is_not_its_entry() {
        assert_eq!(cycle(&[&[1], &[2], &[3], &[2]]), Some((2, vec![3, 2])));
    }

    #[test]
    fn a_state_between_two_cycles_is_not_an_entry() {
        assert_eq!(cycle(&[&[1], &[2, 3], &[], &[4], &[3, 5], &[5]]), Some((3, vec![4, 3])));
        assert_eq!(cycle(&[&[3], &[1], &[1], &[2, 3]]), Some((1, vec![1])));
    }

    #[test]
    fn the_shortest_cycle_of_a_component_is_reported() {
        assert_eq!(cycle(&[&[1], &[2], &[3, 1], &[4], &[1]]), Some((1, vec![2, 1])));
    }

    #[test]
    fn a_path_of_a_million_states_does_not_overflow_a_stack() {
        let last = 1_000_000;
        let mut graph = SystemGraph::default();
        (0..last).for_each(|state| graph.push([state + 1].into_iter(), false).expect("a small graph"));
        graph.push([0].into_iter(), false).expect("a small graph");
        let (entry, way) = first_cycle(&graph, &Reverse::of(&graph)).expect("one large cycle");
        assert_eq!((entry, way.len()), (0, last as usize + 1));
    }
}
