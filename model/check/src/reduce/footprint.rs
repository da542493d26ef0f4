//! What actions touch, as a system tells it.

/// What an action, or a process, touches: numbers that the system gives to parts of its state. Two footprints that do not
/// [conflict](Footprint::conflicts) belong to actions that neither enable, disable nor disturb each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// What is looked at, in the guard or in the step, in what the step reports, and in its class.
    pub reads: Vec<u32>,
    /// What is changed.
    pub writes: Vec<u32>,
    /// What is changed by an amount that depends on nothing: two of them give the same in either order.
    pub adds: Vec<u32>,
}

impl Footprint {
    /// Whether the order of two actions with these footprints can matter.
    pub fn conflicts(&self, other: &Footprint) -> bool {
        let meet = |a: &[u32], b: &[u32]| a.iter().any(|part| b.contains(part));
        let changes = |a: &Footprint, b: &Footprint| {
            meet(&a.writes, &b.reads) || meet(&a.writes, &b.adds) || meet(&a.adds, &b.reads)
        };
        changes(self, other) || changes(other, self) || meet(&self.writes, &other.writes)
    }
}

/// One of the processes that a system consists of. Every action belongs to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// All that decides which actions the process can take next, and all that these touch.
    pub now: Footprint,
    /// All that the process may touch from here on, whatever the others do.
    pub later: Footprint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reads_and_two_adds_agree_and_every_other_pair_conflicts() {
        let touch = |kind: usize| {
            let mut footprint = Footprint::default();
            [&mut footprint.reads, &mut footprint.writes, &mut footprint.adds][kind].push(7);
            footprint
        };
        let conflicts = |a, b| touch(a).conflicts(&touch(b));
        let table: Vec<bool> = (0..9).map(|at| conflicts(at / 3, at % 3)).collect();
        assert_eq!(table, [false, true, true, true, true, true, true, true, false]);
        assert!(!touch(1).conflicts(&Footprint { writes: vec![8], ..Footprint::default() }));
    }
}
