//! Which steps of the device need not be tried in every order: those that commute with all that can come before them.
//!
//! A small operation of a copy, send or forward step touches cells of pages, the progress of its own operation, and at
//! its end a queue of reports. It is *eager* if no other operation under way touches those pages without being ordered
//! behind it or before it, by its stream or by a fence. What the manager may still ask for cannot be known, so it is
//! watched: until a manager has been told of the end of an operation, any effect of it that touches the same pages in
//! an order that nothing enforces shows that the operation's steps were not eager, and the kind is *refuted*.
//!
//! `docs/reductions.md` has the argument.

use kvweft_core::{
    BlockRef, Component, CopyOp, Fence, FenceOn, Outcome, Pair, PartKind, RequestId, RunStep, SendOp, StepItem,
};

use crate::actions::Action;
use crate::config::Machine;
use crate::engine::{FROM_NIC, Report, newer};
use crate::ops::{CopyRun, Micro, Op, StepRun};
use crate::protocol::Protocol;
use crate::world::{Found, World};

/// An operation that touches pages.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    Copy(&'a CopyOp),
    Step(&'a RunStep),
    Send(&'a SendOp),
}

/// A page that is touched.
#[derive(Clone, Copy)]
struct Use {
    engine: usize,
    page: BlockRef,
    writes: bool,
    /// On whose behalf.
    request: RequestId,
}

/// An operation under way.
struct Other<'a> {
    engine: usize,
    /// Its stream, and how many are ahead of it there; `None` for a send.
    place: Option<(usize, usize)>,
    work: Work<'a>,
    /// The cells that it still touches.
    left: u128,
}

/// Kinds of eager steps, one bit each: for each of the six streams, and for the last step of an operation there, and for
/// begin and end of a send, four groups of requests.
const GROUPS: usize = 4;
const ALL_GROUPS: u64 = (1 << GROUPS) - 1;
const ENDS: usize = 6 * GROUPS;
const SEND_BEGINS: usize = 2 * ENDS;
const SEND_ENDS: usize = SEND_BEGINS + GROUPS;
/// The end of a send that is alone, before other sends come.
const LONE_ENDS: usize = SEND_ENDS + GROUPS;
/// A report that its manager only notes.
const NOTES: usize = LONE_ENDS + GROUPS;

/// From here on the same kinds, in worlds that have no fault left.
const SPENT: usize = u64::BITS as usize;

impl Found {
    fn refute(&mut self, groups: u64, kind: usize) {
        self.refuted |= u128::from(groups) << kind;
    }

    /// What a step from a world in which faults were `spent` has refuted, it has refuted in the worlds before it.
    pub(crate) fn refute_before(&mut self, kinds: u128, spent: bool) {
        self.refuted |= kinds | if spent { kinds << SPENT } else { 0 };
    }
}

/// The bit of a request among the groups.
fn group(request: RequestId) -> u64 {
    1 << (request.0 as usize % GROUPS)
}

/// Where the groups of a stream begin.
fn of_stream(engine: usize, stream: usize) -> usize {
    (engine * 3 + stream) * GROUPS
}

impl<'a> Work<'a> {
    fn of(op: &'a Op) -> Option<Work<'a>> {
        match op {
            Op::Copy(CopyRun { op, .. }) => Some(Work::Copy(op)),
            Op::Step(StepRun { op, .. }) => Some(Work::Step(op)),
            Op::Record(_) => None,
        }
    }

    fn uses(self, engine: usize) -> Vec<Use> {
        let pairs = |pairs: &[Pair], (from, to), request| {
            let ends = pairs.iter().flat_map(|pair| [(from, pair.from, false), (to, pair.to, true)]);
            ends.map(|(engine, page, writes)| Use { engine, page, writes, request }).collect()
        };
        match self {
            Work::Copy(op) => pairs(&op.pairs, (engine, engine), op.transfer.request),
            Work::Send(op) => pairs(&op.pairs, (0, 1), op.transfer.request),
            Work::Step(op) => {
                let of_item = |item: &'a StepItem| {
                    let writes_from = item.write_from as usize;
                    let pages = item.pages.iter().enumerate();
                    pages.map(move |(at, &page)| Use { engine, page, writes: at >= writes_from, request: item.request })
                };
                op.items.iter().flat_map(of_item).collect()
            }
        }
    }

    /// The groups of all requests on whose behalf it is.
    fn groups(self) -> u64 {
        match self {
            Work::Copy(op) => group(op.transfer.request),
            Work::Send(op) => group(op.transfer.request),
            Work::Step(op) => op.items.iter().fold(0, |groups, item| groups | group(item.request)),
        }
    }

    fn after(self) -> &'a [Fence] {
        match self {
            Work::Copy(op) => &op.after,
            Work::Send(op) => &op.after,
            Work::Step(_) => &[],
        }
    }

    /// The cells of each page that some of its small operations touch.
    fn cells(self, micros: &[Micro]) -> u128 {
        let of = |layer: u8, only: Option<Component>| match only {
            Some(Component::IndexK) => INDEX << (2 * layer),
            Some(Component::Kv) => KV << (2 * layer),
            None => (INDEX | KV) << (2 * layer),
        };
        let cells = micros.iter().map(|&micro| match (self, micro) {
            (Work::Copy(op), Micro::CopyBegin { layer, part, .. } | Micro::CopyEnd { layer, part, .. }) => {
                of(layer, Some(op.parts[usize::from(part)].component))
            }
            (_, Micro::Read { layer, component, .. }) => of(layer, Some(component)),
            (_, Micro::WriteBegin { layer, one } | Micro::WriteEnd { layer, one }) => {
                of(layer, one.map(|(_, only)| only))
            }
            _ => 0,
        });
        cells.fold(0, |all, some| all | some)
    }

    /// The cells of each page that it may touch at all.
    fn reach(self) -> u128 {
        let of = |component| if component == Component::IndexK { all_layers(INDEX) } else { all_layers(KV) };
        match self {
            Work::Copy(op) => op.parts.iter().fold(0, |cells, part| cells | of(part.component)),
            Work::Send(op) => op.parts.iter().fold(0, |cells, part| cells | of(part.component)),
            Work::Step(_) => all_layers(INDEX | KV),
        }
    }

    /// Whether a fence or wait of this operation keeps it from what `first` has not finished in `cells`.
    fn waits_for(self, first: Work<'_>, cells: u128) -> bool {
        match first {
            Work::Step(step) => self.after().iter().any(|fence| fence.on == FenceOn::Step(step.step)),
            Work::Copy(copy) => copy.record.filter(|_| copy.record_on == copy.stream).is_some_and(|record| {
                let fenced = self.after().iter().any(|fence| fence.on == FenceOn::Load(record.slot, record.generation));
                // A step whose reads wait layer by layer writes a layer behind them.
                let waits = |step: &RunStep| {
                    step.items.iter().any(|item| item.read > 0)
                        && step.items.iter().flat_map(|item| &item.waits).any(|wait| {
                            let means_it = (wait.slot, wait.generation) == (record.slot, Some(record.generation));
                            means_it
                                && (wait.kv.is_some() || cells & all_layers(KV) == 0)
                                && (wait.index.is_some() || cells & all_layers(INDEX) == 0)
                        })
                };
                fenced || matches!(self, Work::Step(step) if waits(step))
            }),
            Work::Send(_) => false,
        }
    }
}

/// The cells of a page, two bits a layer.
const INDEX: u128 = 1;
const KV: u128 = 2;

fn all_layers(component: u128) -> u128 {
    component * (u128::MAX / 3)
}

/// The groups of those in `touched` that touch a page of `uses` where one of both writes.
fn conflict(uses: &[Use], touched: &[Use]) -> u64 {
    let meets = |a: &Use, b: &Use| {
        a.engine == b.engine && a.page.tier == b.page.tier && a.page.page == b.page.page && (a.writes || b.writes)
    };
    let met = touched.iter().filter(|touch| uses.iter().any(|a| meets(a, touch)));
    met.fold(0, |groups, touch| groups | group(touch.request))
}

impl<P: Protocol> World<P> {
    /// A System action that commutes with every run of other actions that can come before it, unless its kind is in
    /// `refuted`: see [`Found::refuted`].
    pub fn eager(&self, machine: &Machine, refuted: u128) -> Option<Action> {
        let refuted = self.refuted_now(refuted);
        for engine in 0..self.engines.len() {
            for stream in 0..3 {
                if self.stream_is_eager(machine, engine, stream, refuted) {
                    return Some(Action::Stream { engine: engine as u8, stream: stream as u8 });
                }
            }
        }
        if self.note_is_eager(refuted) {
            return Some(Action::Report { engine: 0, source: FROM_NIC as u8 });
        }
        let nic = 0..self.engines[0].nic.len();
        nic.into_iter().find(|&at| self.send_is_eager(at, refuted)).map(|at| Action::Nic { at: at as u8 })
    }

    /// The kinds that are refuted in this world: once all faults have happened, what they refuted holds again.
    pub(crate) fn refuted_now(&self, refuted: u128) -> u64 {
        (if self.left.is_spent() { refuted >> SPENT } else { refuted }) as u64
    }

    fn stream_is_eager(&self, machine: &Machine, engine: usize, stream: usize, refuted: u64) -> bool {
        let refuted = refuted >> of_stream(engine, stream);
        let Some(op) = self.engines[engine].streams[stream].front() else { return false };
        let Some(work) = Work::of(op).filter(|work| refuted & work.groups() == 0) else { return false };
        let unheld = self.stream_hold(engine, stream).is_none() && !self.may_be_held_again(engine, op, work);
        if !unheld || matches!(work, Work::Copy(copy) if copy.record_on != copy.stream) {
            return false;
        }
        let next = self.next_micros(machine, engine, stream);
        let tells = next.iter().any(|micro| matches!(micro, Micro::Record { .. }));
        if tells && !self.engines[engine].manager.only_notes_layers() {
            return false;
        }
        match op.micros().get(usize::from(op.done()) + next.len()) {
            None if refuted >> ENDS & work.groups() != 0 => return false,
            // A deadline that passes while all is slow looks at whether anything can happen at all.
            Some(&micro) if self.left.slow > 0 && self.micro_hold(engine, op, micro).is_some() => return false,
            _ => {}
        }
        !self.races((engine, stream), work, work.cells(next))
    }

    /// Whether the head of a stream that nothing holds back now waits for something in a way that can be undone: by the
    /// bare slot of an event, which the next copy clears, or for an event that was never queued and still may be.
    fn may_be_held_again(&self, engine: usize, op: &Op, work: Work<'_>) -> bool {
        match work {
            Work::Step(step) => step.items.iter().flat_map(|item| &item.waits).any(|wait| wait.generation.is_none()),
            _ => op.done() == 0 && self.waits_for_unqueued(engine, work.after()),
        }
    }

    fn waits_for_unqueued(&self, engine: usize, after: &[Fence]) -> bool {
        after.iter().any(|fence| match fence.on {
            FenceOn::Load(slot, generation) => {
                let queued = self.engines[engine].events[usize::from(slot.0)].queued;
                queued.is_none_or(|queued| newer(generation, queued))
            }
            FenceOn::Step(_) => false,
        })
    }

    fn send_is_eager(&self, at: usize, refuted: u64) -> bool {
        if !self.send_commutes(at, refuted) {
            return false;
        }
        let run = &self.engines[0].nic[at];
        let alone = || refuted >> LONE_ENDS & Work::Send(&run.op).groups() == 0 && self.engines[0].nic.len() == 1;
        let unread = &self.engines[0].reports[FROM_NIC];
        run.done.is_multiple_of(2)
            || (self.left.part_failures == 0 && self.left.duplicates == 0)
                && (alone() || unread.is_empty() && self.only_noted(&run.op, refuted))
    }

    /// Whether the next step of a send commutes with all that can come before it, but for its place in the queue of
    /// reports.
    pub(crate) fn send_commutes(&self, at: usize, refuted: u64) -> bool {
        let run = &self.engines[0].nic[at];
        let held = self.engines[0].unmet(&run.op.after).is_some() || self.waits_for_unqueued(0, &run.op.after);
        if run.op.part.kind == PartKind::Metadata || (run.done == 0 && held) {
            return false;
        }
        let kind = if run.done.is_multiple_of(2) { SEND_BEGINS } else { SEND_ENDS };
        let work = Work::Send(&run.op);
        let uses = work.uses(0);
        let meets =
            |other: &Other<'_>| other.left & work.reach() != 0 && conflict(&uses, &other.work.uses(other.engine)) != 0;
        refuted >> kind & work.groups() == 0 && !self.others(None, Some(at)).any(|other| meets(&other))
    }

    /// Whether the manager only notes the end of a send of KV pages: the index keys of the same pages are under way, and
    /// it can say nothing before they have arrived.
    fn only_noted(&self, op: &SendOp, refuted: u64) -> bool {
        let covers = |other: &SendOp| {
            other.transfer == op.transfer
                && other.part.kind == PartKind::IndexK
                && op.pairs.iter().all(|pair| other.pairs.contains(pair))
        };
        let manager = &self.engines[0].manager;
        refuted >> NOTES & 1 == 0
            && op.part.kind == PartKind::Kv
            && self.engines[0].nic.iter().any(|run| run.done > 0 && covers(&run.op))
            && manager.only_notes(op.transfer, op.part)
            && manager.at_rest()
    }

    /// Whether the report at the head of the queue of sends is one that the manager only notes.
    fn note_is_eager(&self, refuted: u64) -> bool {
        let Some(&Report::Completed(transfer, part, Outcome::Done)) = self.engines[0].reports[FROM_NIC].front() else {
            return false;
        };
        let op = self.arrived.iter().find(|op| (op.transfer, op.part) == (transfer, part));
        self.left.part_failures == 0 && self.left.duplicates == 0 && op.is_some_and(|op| self.only_noted(op, refuted))
    }

    /// Every operation under way but the head of one stream, or one send.
    fn others(&self, head: Option<(usize, usize)>, send: Option<usize>) -> impl Iterator<Item = Other<'_>> {
        let streams = self.engines.iter().enumerate().flat_map(move |(engine, at)| {
            at.streams.iter().enumerate().filter(move |(s, _)| head != Some((engine, *s))).flat_map(move |(s, ops)| {
                ops.iter().enumerate().filter_map(move |(at, op)| {
                    let work = Work::of(op)?;
                    let left = work.cells(&op.micros()[usize::from(op.done())..]);
                    Some(Other { engine, place: Some((s, at)), work, left })
                })
            })
        });
        let sends = self.engines[0].nic.iter().enumerate().filter(move |(at, _)| send != Some(*at));
        let sends = sends.map(|(_, run)| Other {
            engine: 0,
            place: None,
            work: Work::Send(&run.op),
            left: Work::Send(&run.op).reach(),
        });
        streams.chain(sends)
    }

    /// Whether an operation under way still touches what the head of a stream now touches, and nothing orders the two.
    fn races(&self, (engine, stream): (usize, usize), head: Work<'_>, cells: u128) -> bool {
        let uses = head.uses(engine);
        self.others(Some((engine, stream)), None).any(|other| {
            let cells = cells & other.left;
            cells != 0
                && conflict(&uses, &other.work.uses(other.engine)) != 0
                && !(other.engine == engine
                    && (head.waits_for(other.work, cells) || self.behind(engine, other.place, other.work, head, cells)))
        })
    }

    /// Whether `other`, or an operation ahead of it in its stream, waits for what `first` does in `cells`; all of one
    /// engine.
    fn behind(
        &self,
        engine: usize,
        place: Option<(usize, usize)>,
        other: Work<'_>,
        first: Work<'_>,
        cells: u128,
    ) -> bool {
        let ahead = place.into_iter().flat_map(|(stream, at)| self.engines[engine].streams[stream].iter().take(at));
        ahead.filter_map(Work::of).chain([other]).any(|work| work.waits_for(first, cells))
    }

    /// A manager asks for `work`: whatever has begun, touches the same pages, and is neither known to its manager to have
    /// ended nor waited for, was not eager.
    pub(crate) fn watch_work(
        &self,
        machine: &Machine,
        engine: usize,
        stream: usize,
        work: Work<'_>,
        found: &mut Found,
    ) {
        let uses = work.uses(engine);
        let queued = (!matches!(work, Work::Send(_))).then(|| (stream, self.engines[engine].streams[stream].len()));
        for (e, s, first) in self.unacknowledged() {
            let same_stream = queued.is_some() && (e, s) == (engine, stream);
            let cells = all_layers(KV) | if has_index(machine, e) { all_layers(INDEX) } else { 0 };
            let ordered = || e == engine && self.behind(engine, queued, work, first, cells);
            let same_slot = match (work, first) {
                (Work::Copy(a), Work::Copy(b)) => a.record.is_some_and(|a| b.record.is_some_and(|b| a.slot == b.slot)),
                _ => false,
            };
            let met = if same_stream { 0 } else { conflict(&uses, &first.uses(e)) };
            if same_slot {
                found.refute(first.groups(), of_stream(e, s));
            } else if met != 0 && !ordered() {
                found.refute(met, of_stream(e, s));
            }
        }
        self.watch_sends(&uses, work.reach(), found);
        if let Work::Send(_) = work {
            self.refute_lone_ends(found);
        }
    }

    /// A manager looks at pages, or gives them away.
    pub(crate) fn watch_pages(&self, engine: usize, pages: &[BlockRef], changes: bool, found: &mut Found) {
        let uses = |&page| Use { engine, page, writes: changes, request: RequestId(0) };
        let uses: Vec<Use> = pages.iter().map(uses).collect();
        for (e, s, first) in self.unacknowledged() {
            found.refute(conflict(&uses, &first.uses(e)), of_stream(e, s));
        }
        self.watch_sends(&uses, u128::MAX, found);
    }

    fn watch_sends(&self, uses: &[Use], cells: u128, found: &mut Found) {
        let begun = self.engines[0].nic.iter().filter(|run| run.done > 0).map(|run| &run.op);
        let touched = begun.chain(&self.arrived).map(|op| Work::Send(op)).filter(|send| send.reach() & cells != 0);
        let met = touched.fold(0, |met, send| met | conflict(uses, &send.uses(0)));
        found.refute(met, SEND_BEGINS);
        found.refute(met, SEND_ENDS);
    }

    fn refute_lone_ends(&self, found: &mut Found) {
        for op in &self.arrived {
            found.refute(Work::Send(op).groups(), LONE_ENDS);
        }
    }

    /// A manager takes all reports at once.
    pub(crate) fn watch_poll(&self, engine: usize, found: &mut Found) {
        for (e, s, first) in self.unacknowledged().filter(|&(e, ..)| e == engine) {
            found.refute(first.groups(), of_stream(e, s) + ENDS);
        }
        if engine == 0 {
            self.refute_lone_ends(found);
            found.refute(ALL_GROUPS, SEND_ENDS);
            found.refute(1, NOTES);
        }
    }

    /// The prefill manager has taken an input: if a wake would do something now, a report of a part would as well.
    pub(crate) fn watch_rest(&self, engine: u8, found: &mut Found) {
        let begun = self.engines[0].nic.iter().filter(|run| run.done > 0).map(|run| &run.op);
        let noting = || begun.chain(&self.arrived).any(|op| op.part.kind == PartKind::IndexK);
        if engine == 0 && noting() && !self.engines[0].manager.at_rest() {
            found.refute(1, NOTES);
        }
    }

    /// Somebody looks at all of the peer's memory.
    pub(crate) fn watch_arrivals(&self, found: &mut Found) {
        let begun = self.engines[0].nic.iter().filter(|run| run.done > 0).map(|run| &run.op);
        for op in begun.chain(&self.arrived) {
            let groups = Work::Send(op).groups();
            found.refute(groups, SEND_BEGINS);
            found.refute(groups, SEND_ENDS);
        }
    }

    /// Operations of streams that have begun and of whose end their manager does not know: engine, stream, operation.
    fn unacknowledged(&self) -> impl Iterator<Item = (usize, usize, Work<'_>)> {
        self.engines.iter().enumerate().flat_map(|(e, engine)| {
            let begun = engine.streams.iter().filter_map(|ops| ops.front()).filter(|op| op.done() > 0);
            begun.chain(&engine.landed).filter_map(move |op| {
                let work = Work::of(op)?;
                let stream = match work {
                    Work::Copy(copy) => crate::ops::stream_index(copy.stream),
                    Work::Step(_) | Work::Send(_) => 0,
                };
                Some((e, stream, work))
            })
        })
    }
}

fn has_index(machine: &Machine, engine: usize) -> bool {
    machine.engines[engine].units.iter().any(|unit| unit.1 == Component::IndexK)
}
