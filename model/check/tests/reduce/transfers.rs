//! Transfers that share staging buffers: issue, then the copy lands or fails, then that is observed, then the buffer goes
//! back.

use std::fmt;

use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::reduce::{Footprint, Process, Reduction};
use kvweft_check::system::{Class, Found, System, Violation};

use crate::{both, check_processes};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Waiting,
    Copying,
    Landed,
    Failed,
    SeenLanded,
    SeenFailed,
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Whoever sees a failure gives the buffer back twice.
    ReleasesTwice,
    /// Whoever sees a failure keeps the buffer.
    KeepsOnFailure,
    /// Whoever sees a failure tries again, for ever.
    RetriesOnFailure,
}

struct Transfers {
    transfers: usize,
    buffers: u8,
    fault: Fault,
    reductions: [bool; 2],
}

#[derive(Clone, Debug)]
struct State {
    phases: Vec<Phase>,
    free: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Action {
    Issue(usize),
    Land(usize),
    Fail(usize),
    Observe(usize),
    Release(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Action {
    fn transfer(self) -> usize {
        let (Self::Issue(at) | Self::Land(at) | Self::Fail(at) | Self::Observe(at) | Self::Release(at)) = self;
        at
    }
}

/// The number of free buffers, as one who takes and as one who gives back.
const TAKEN: u32 = 0;
const GIVEN: u32 = 1;

impl System for Transfers {
    type State = State;
    type Action = Action;

    fn initial(&self) -> Vec<State> {
        vec![State { phases: vec![Phase::Waiting; self.transfers], free: self.buffers }]
    }

    fn enabled(&self, state: &State, out: &mut Vec<Action>) {
        for (at, phase) in state.phases.iter().enumerate() {
            match phase {
                Phase::Waiting if state.free > 0 => out.push(Action::Issue(at)),
                Phase::Copying => out.extend([Action::Land(at), Action::Fail(at)]),
                Phase::Landed | Phase::Failed => out.push(Action::Observe(at)),
                Phase::SeenFailed if self.fault == Fault::KeepsOnFailure => {}
                Phase::SeenLanded | Phase::SeenFailed => out.push(Action::Release(at)),
                Phase::Waiting | Phase::Released => {}
            }
        }
    }

    fn step(&self, state: &mut State, action: &Action, found: &mut Found) {
        let phase = &mut state.phases[action.transfer()];
        let failed = *phase == Phase::SeenFailed;
        *phase = match action {
            Action::Issue(_) => Phase::Copying,
            Action::Land(_) => Phase::Landed,
            Action::Fail(_) => Phase::Failed,
            Action::Observe(_) if *phase == Phase::Failed => Phase::SeenFailed,
            Action::Observe(_) => Phase::SeenLanded,
            Action::Release(_) if failed && self.fault == Fault::RetriesOnFailure => Phase::Failed,
            Action::Release(_) => Phase::Released,
        };
        match action {
            Action::Issue(_) => state.free -= 1,
            Action::Release(_) if failed && self.fault == Fault::RetriesOnFailure => {}
            Action::Release(_) => state.free += 1 + u8::from(failed && self.fault == Fault::ReleasesTwice),
            _ => {}
        }
        if state.free > self.buffers {
            let detail = format!("expected at most {} free buffers, got {}", self.buffers, state.free);
            found.violations.push(Violation { property: "buffers-are-counted", detail });
        }
    }

    fn class(&self, _: &State, action: &Action) -> Class {
        if matches!(action, Action::Fail(_)) { Class::Environment } else { Class::System }
    }

    fn done(&self, state: &State) -> bool {
        state.phases.iter().all(|phase| *phase == Phase::Released)
    }

    fn encode(&self, state: &State, out: &mut Vec<u8>) {
        out.push(state.free);
        out.extend(state.phases.iter().map(|phase| *phase as u8));
    }

    fn canonical(&self, state: &State, out: &mut Vec<u8>) {
        self.encode(state, out);
        if self.reductions[1] {
            out[1..].sort_unstable();
        }
    }

    fn processes(&self, state: &State, out: &mut Vec<Process>) -> bool {
        let waiting = state.phases.iter().filter(|phase| **phase == Phase::Waiting).count();
        // A fault makes every giving back report what it sees of the count.
        let counted = self.fault == Fault::ReleasesTwice;
        out.extend(state.phases.iter().enumerate().map(|(at, phase)| {
            let mut now = Footprint { writes: vec![at as u32 + 10], ..Footprint::default() };
            let mut later = now.clone();
            match phase {
                Phase::Waiting => {
                    now.adds.push(TAKEN);
                    // Others may take what is left; who finds nothing looks for what comes back.
                    if usize::from(state.free) < waiting {
                        now.reads.push(TAKEN);
                    }
                    if state.free == 0 {
                        now.reads.push(GIVEN);
                    }
                    later.reads.push(TAKEN);
                    later.adds.extend([TAKEN, GIVEN]);
                }
                Phase::SeenLanded | Phase::SeenFailed => {
                    now.adds.push(GIVEN);
                    later.adds.push(GIVEN);
                }
                Phase::Copying | Phase::Landed | Phase::Failed => later.adds.push(GIVEN),
                Phase::Released => {}
            }
            if counted && later.adds.contains(&GIVEN) {
                now.writes.extend([TAKEN, GIVEN]);
                later.writes.extend([TAKEN, GIVEN]);
            }
            Process { now, later }
        }));
        self.reductions[0]
    }

    fn process_of(&self, _: &State, action: &Action) -> usize {
        action.transfer()
    }
}

fn transfers(transfers: usize, buffers: u8, fault: Fault) -> Transfers {
    Transfers { transfers, buffers, fault, reductions: [true, true] }
}

#[test]
fn eight_transfers_over_four_buffers_take_a_handful_of_states() {
    let options = Options { threads: 1, ..Options::default() };
    let whole = explore(&transfers(8, 4, Fault::None), &options);
    assert_eq!((whole.verdict, whole.counts.states, whole.counts.transitions), (Verdict::Holds, 974_176, 4_993_408));
    let reduced = |reductions| {
        let system = Transfers { reductions, ..transfers(8, 4, Fault::None) };
        let outcome = explore(&system, &Options { reduce: true, ..options.clone() });
        let how = Some(Reduction::Applied { refuted: 0 });
        assert_eq!((outcome.verdict, outcome.reduction), (Verdict::Holds, how));
        outcome.counts.states
    };
    assert_eq!([[false, true], [true, false], [true, true]].map(reduced), [714, 1287, 16]);
}

#[test]
fn verdicts_of_every_fault_are_those_of_the_whole() {
    for fault in [Fault::None, Fault::ReleasesTwice, Fault::KeepsOnFailure, Fault::RetriesOnFailure] {
        for (count, buffers) in [(1, 1), (2, 1), (3, 2), (4, 2), (4, 4)] {
            for reductions in [[false, true], [true, false], [true, true]] {
                let system = Transfers { reductions, ..transfers(count, buffers, fault) };
                let (_, _, how) = both(&system, &|| format!("{fault:?}, {count} over {buffers}, {reductions:?}"));
                assert_eq!(how == Reduction::Cyclic, fault == Fault::RetriesOnFailure);
            }
        }
    }
}

#[test]
fn what_transfers_say_of_themselves_is_true() {
    for fault in [Fault::None, Fault::ReleasesTwice, Fault::KeepsOnFailure, Fault::RetriesOnFailure] {
        check_processes(&transfers(5, 2, fault), 200);
    }
}
