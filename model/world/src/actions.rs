//! What can happen in a world, and who is responsible for it.

use std::fmt;

use kvweft_core::{Input, RequestId, Submit, Timer, Wait};

use crate::config::Machine;
use crate::engine::Report;
use crate::protocol::Protocol;
use crate::world::{SLOW, World};

/// Who is responsible for an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Must happen eventually.
    System,
    /// May happen when armed; no verdict of progress rests on it.
    Timer,
    /// May happen, within its budget.
    Environment,
}

/// Something that can happen. Names nothing by number but the fixed parts of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// The head of a stream does its next small operations.
    Stream {
        /// Which engine.
        engine: u8,
        /// Which stream: forward, load, store.
        stream: u8,
    },
    /// A one-sided write begins, or ends.
    Nic {
        /// Which of the writes under way, in order of posting.
        at: u8,
    },
    /// The manager takes the next report of its device.
    Report {
        /// Which engine.
        engine: u8,
        /// Which queue: forward, load, store, NIC.
        source: u8,
    },
    /// A control message arrives.
    Deliver {
        /// 0 towards prefill, 1 towards decode.
        link: u8,
    },
    /// A client submits its request.
    Submit {
        /// Which.
        request: u8,
    },
    /// A client goes away.
    Abort {
        /// Which of the scenario's aborts.
        fault: u8,
    },
    /// A policy takes a request's pages.
    Preempt {
        /// Which of the scenario's preemptions.
        fault: u8,
    },
    /// An operator resets an engine.
    Flush {
        /// Which engine.
        engine: u8,
    },
    /// An armed timer runs out.
    Fire {
        /// Which of the armed timers.
        at: u8,
        /// Whether it does so while everything is only slow.
        slow: bool,
    },
    /// A control message is lost.
    Lose {
        /// Which link.
        link: u8,
    },
    /// A control message comes twice.
    Duplicate {
        /// Which link.
        link: u8,
    },
    /// A report of the NIC comes twice.
    DuplicateReport,
    /// A control message is overtaken by the next.
    Reorder {
        /// Which link.
        link: u8,
    },
    /// A one-sided write fails.
    FailPart {
        /// Which of the writes under way.
        at: u8,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl<P: Protocol> World<P> {
    /// Everything that can happen, in a fixed order.
    pub fn enabled(&self, machine: &Machine, out: &mut Vec<Action>) {
        self.system_actions(out);
        let busy = !out.is_empty();
        self.timer_actions(busy, out);
        self.environment_actions(machine, out);
    }

    fn system_actions(&self, out: &mut Vec<Action>) {
        for (e, engine) in self.engines.iter().enumerate() {
            for (stream, ops) in engine.streams.iter().enumerate() {
                if !ops.is_empty() && self.stream_hold(e, stream).is_none() {
                    out.push(Action::Stream { engine: e as u8, stream: stream as u8 });
                }
            }
            for (source, reports) in engine.reports.iter().enumerate() {
                if !reports.is_empty() {
                    out.push(Action::Report { engine: e as u8, source: source as u8 });
                }
            }
        }
        for (at, run) in self.engines[0].nic.iter().enumerate() {
            if run.done > 0 || self.engines[0].unmet(&run.op.after).is_none() {
                out.push(Action::Nic { at: at as u8 });
            }
        }
        for (link, messages) in self.links.iter().enumerate() {
            if !messages.is_empty() {
                out.push(Action::Deliver { link: link as u8 });
            }
        }
    }

    /// A deadline is longer than anything that goes on without a fault. So a timer runs out when nothing else can happen;
    /// or when all that is missing is that the manager looks at reports which are there; or, as a fault, at any time.
    fn timer_actions(&self, busy: bool, out: &mut Vec<Action>) {
        for (at, (engine, timer)) in self.timers.iter().enumerate() {
            let at = at as u8;
            let receive = timer.wait == Wait::Receive;
            let client = &self.clients[timer.request.0 as usize];
            if !busy || (receive && (self.only_unread(*engine, *timer) || client.faults & SLOW != 0)) {
                out.push(Action::Fire { at, slow: false });
            } else if receive && self.left.slow > 0 {
                out.push(Action::Fire { at, slow: true });
            }
        }
    }

    /// Whether everything that a request waits for is queued for its manager.
    fn only_unread(&self, engine: u8, timer: Timer) -> bool {
        let Some(room) = self.clients[timer.request.0 as usize].room else { return false };
        let status = self.links[1].iter().any(|message| {
            message.room == room && matches!(message.body, kvweft_core::Body::Status(kvweft_core::Status::Success))
        });
        let unsent = self.engines[0].nic.iter().any(|run| run.op.room == room);
        status && !unsent && engine == 1
    }

    fn environment_actions(&self, machine: &Machine, out: &mut Vec<Action>) {
        for (request, script) in machine.scripts.iter().enumerate() {
            let client = &self.clients[request];
            let first = client.submissions == 0 && script.after.iter().all(|&other| self.over(other));
            let again = client.submissions > 0
                && client.submissions <= script.retries
                && client.open == 0
                && !client.finished
                && self.forgotten(request);
            if first || again {
                out.push(Action::Submit { request: request as u8 });
            }
        }
        for (fault, abort) in machine.budget.aborts.iter().enumerate() {
            if self.left.aborts >> fault & 1 == 1 && self.clients[abort.request].submissions > 0 {
                out.push(Action::Abort { fault: fault as u8 });
            }
        }
        for (fault, preempt) in machine.budget.preempts.iter().enumerate() {
            let input = Input::Preempt { request: RequestId(preempt.request as u32) };
            if self.left.preempts >> fault & 1 == 1
                && self.engines[usize::from(preempt.engine)].manager.accepts(&input)
                && self.clients[preempt.request].submissions > 0
            {
                out.push(Action::Preempt { fault: fault as u8 });
            }
        }
        for engine in 0..self.engines.len() {
            if self.left.flushes[engine] > 0 && self.clients.iter().any(|client| client.submissions > 0) {
                out.push(Action::Flush { engine: engine as u8 });
            }
        }
        for (link, messages) in self.links.iter().enumerate() {
            let link = link as u8;
            if self.left.losses > 0 && !messages.is_empty() {
                out.push(Action::Lose { link });
            }
            if self.left.duplicates > 0 && !messages.is_empty() {
                out.push(Action::Duplicate { link });
            }
            if self.left.reorders > 0 && messages.len() >= 2 && messages[0] != messages[1] {
                out.push(Action::Reorder { link });
            }
        }
        let nic_reports = &self.engines[0].reports[crate::engine::FROM_NIC];
        if self.left.duplicates > 0 && matches!(nic_reports.front(), Some(Report::Completed(..))) {
            out.push(Action::DuplicateReport);
        }
        if self.left.part_failures > 0 {
            for (at, run) in self.engines[0].nic.iter().enumerate() {
                if run.done > 0 {
                    out.push(Action::FailPart { at: at as u8 });
                }
            }
        }
    }

    /// Whether every engine would take the request again: nothing of its former life is under way.
    fn forgotten(&self, request: usize) -> bool {
        let submit = Submit {
            request: RequestId(request as u32),
            room: None,
            blocks: &[],
            tail_tokens: 0,
            output_tokens: 0,
            priority: 0,
        };
        self.engines.iter().all(|engine| engine.manager.accepts(&Input::Submit(submit)))
    }

    fn over(&self, request: usize) -> bool {
        let client = &self.clients[request];
        client.submissions > 0 && client.open == 0
    }

    /// Who is responsible for an action. A timer of a request into which a fault was injected is the system's own means to
    /// recover from it.
    pub fn class(&self, action: &Action) -> Class {
        match action {
            Action::Stream { .. } | Action::Nic { .. } | Action::Report { .. } | Action::Deliver { .. } => {
                Class::System
            }
            Action::Fire { at, slow: false } => {
                let (_, timer) = self.timers[usize::from(*at)];
                let faulty = self.clients[timer.request.0 as usize].faults != 0;
                if faulty { Class::System } else { Class::Timer }
            }
            Action::Fire { slow: true, .. }
            | Action::Submit { .. }
            | Action::Abort { .. }
            | Action::Preempt { .. }
            | Action::Flush { .. }
            | Action::Lose { .. }
            | Action::Duplicate { .. }
            | Action::DuplicateReport
            | Action::Reorder { .. }
            | Action::FailPart { .. } => Class::Environment,
        }
    }
}
