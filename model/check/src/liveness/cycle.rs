//! Finding the components of the graph of System steps in which something can go round.

use super::{BitSet, EXIT, Reverse, SystemGraph};

/// The strongly connected components that hold a cycle and no done state, in order of their least numbered states; the
/// states of each in order.
pub(crate) fn components(graph: &SystemGraph, reverse: &Reverse) -> Vec<Vec<u32>> {
    let mut core = trim(graph, reverse);
    (0..graph.len() as u32).filter(|&state| graph.done.contains(state)).for_each(|state| core.remove(state));
    // Almost always nothing is left, and the memory of a search for components is never needed.
    if core.first().is_none() {
        return Vec::new();
    }
    on_cycles(graph, &core)
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

/// The components of `core` that hold a cycle: Tarjan's algorithm, with an explicit stack because a path of System steps
/// can be as long as there are states.
fn on_cycles(graph: &SystemGraph, core: &BitSet) -> Vec<Vec<u32>> {
    let mut tarjan = Tarjan {
        order: vec![0; graph.len()],
        low: vec![0; graph.len()],
        on_stack: BitSet::default(),
        stack: Vec::new(),
        entered: 0,
        found: Vec::new(),
    };
    for root in (0..graph.len() as u32).filter(|&state| core.contains(state)) {
        if tarjan.order[root as usize] == 0 {
            tarjan.visit(graph, core, root);
        }
    }
    tarjan.found.iter_mut().for_each(|component| component.sort_unstable());
    tarjan.found.sort_unstable();
    tarjan.found
}

struct Tarjan {
    /// When a state was entered, from 1; 0 if it was not.
    order: Vec<u32>,
    low: Vec<u32>,
    on_stack: BitSet,
    stack: Vec<u32>,
    entered: u32,
    found: Vec<Vec<u32>>,
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
            self.found.push(component);
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

    fn found(rows: &[&[u32]]) -> Vec<Vec<u32>> {
        let graph = graph(rows);
        components(&graph, &Reverse::of(&graph))
    }

    #[test]
    fn a_graph_without_a_cycle_has_none() {
        assert!(found(&[]).is_empty());
        assert!(found(&[&[1, 2], &[3], &[3, EXIT], &[]]).is_empty());
    }

    #[test]
    fn a_state_that_only_leads_to_a_cycle_or_away_from_it_is_not_on_it() {
        assert_eq!(found(&[&[1], &[2], &[3], &[2]]), [[2, 3]]);
        assert_eq!(found(&[&[1], &[2, 3], &[], &[4], &[3, 5], &[5]]), [vec![3, 4], vec![5]]);
        assert_eq!(found(&[&[3], &[1], &[1], &[2, 3]]), [[1], [3]]);
    }

    #[test]
    fn a_cycle_that_needs_a_done_state_is_none() {
        let mut graph = graph(&[&[1]]);
        graph.push([0, 2].into_iter(), true).expect("a small graph");
        graph.push([1, 2].into_iter(), false).expect("a small graph");
        assert_eq!(components(&graph, &Reverse::of(&graph)), [[2]]);
    }

    #[test]
    fn a_path_of_a_million_states_does_not_overflow_a_stack() {
        let last = 1_000_000;
        let mut graph = SystemGraph::default();
        (0..last).for_each(|state| graph.push([state + 1].into_iter(), false).expect("a small graph"));
        graph.push([0].into_iter(), false).expect("a small graph");
        assert_eq!(
            components(&graph, &Reverse::of(&graph)).iter().map(Vec::len).collect::<Vec<_>>(),
            [last as usize + 1]
        );
    }
}
