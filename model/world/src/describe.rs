//! Words for what can happen, what keeps something back, and what has happened.
//!
//! The words are what a trace file holds, and replay finds actions by them. They use local names, so that they do not
//! depend on slots and serial numbers.

use kvweft_core::{
    BlockRef, Body, Component, Effect, Ending, Failure, FenceOn, Message, MoveKind, Part, PartKind, RuleSite, RunStep,
    Status, StepKind, Timer, Wait,
};
use kvweft_trace::{Content, LocalNames};

use crate::actions::Action;
use crate::config::Machine;
use crate::engine::{Hold, HoldOn, NicRun, Report};
use crate::operation::{Operation, operation};
use crate::ops::{Micro, OnePage, Op, STREAMS, stream_index};
use crate::protocol::Protocol;
use crate::world::{LogEntry, World};

/// An action in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Who acts.
    pub actor: String,
    /// The small operations, in order.
    pub ops: Vec<String>,
}

/// Something that would come next if a fence did not keep it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Who would act.
    pub actor: String,
    /// The small operation, in words.
    pub op: String,
    /// The small operation by what it works on.
    pub operation: Operation,
    /// What it waits for.
    pub waits_for: String,
    /// The rule that the fence is owed to.
    pub owed_to: RuleSite,
}

impl<P: Protocol> World<P> {
    /// The words for an action that is enabled.
    pub fn describe(&self, machine: &Machine, action: Action, names: &LocalNames) -> Described {
        let mut names = names.clone();
        let (actor, ops) = match action {
            Action::Stream { engine, stream } => {
                let e = usize::from(engine);
                let op = self.engines[e].streams[usize::from(stream)].front().expect("enabled");
                let micros = self.next_micros(machine, e, usize::from(stream));
                let mut ops: Vec<String> =
                    micros.iter().map(|&micro| micro_text(op, micro, engine, &mut names)).collect();
                if ops.is_empty() {
                    ops.push(format!("{} nothing to move", op_name(op, engine, &mut names)));
                }
                (actor(machine, engine, STREAM_ACTORS[usize::from(stream)]), ops)
            }
            Action::Nic { at } => {
                let run = &self.engines[0].nic[usize::from(at)];
                (actor(machine, 0, "nic"), vec![nic_text(run, nic_verb(run), &mut names)])
            }
            Action::FailPart { at } => {
                let run = &self.engines[0].nic[usize::from(at)];
                ("fault".to_owned(), vec![nic_text(run, "fail", &mut names)])
            }
            Action::Report { engine, source } => {
                let report = *self.engines[usize::from(engine)].reports[usize::from(source)].front().expect("enabled");
                (actor(machine, engine, "sched"), vec![self.report_text(machine, engine, report, &mut names)])
            }
            Action::DuplicateReport => {
                let report = *self.engines[0].reports[crate::engine::FROM_NIC].front().expect("enabled");
                ("fault".to_owned(), vec![format!("repeat {}", self.report_text(machine, 0, report, &mut names))])
            }
            Action::Deliver { link } => ("net".to_owned(), vec![self.head(machine, link, "deliver")]),
            Action::Lose { link } => ("fault".to_owned(), vec![self.head(machine, link, "lose")]),
            Action::Duplicate { link } => ("fault".to_owned(), vec![self.head(machine, link, "repeat")]),
            Action::Reorder { link } => ("fault".to_owned(), vec![self.head(machine, link, "delay")]),
            Action::Fire { at, slow } => {
                let (_, timer) = self.timers[usize::from(at)];
                ("timer".to_owned(), vec![timer_text(machine, timer, slow)])
            }
            Action::Submit { request } => ("client".to_owned(), vec![submit_text(machine, usize::from(request))]),
            Action::Abort { fault } => {
                let fault = machine.budget.aborts[usize::from(fault)];
                ("client".to_owned(), vec![subject_text(machine, "abort", fault.request, fault.engine)])
            }
            Action::Preempt { fault } => {
                let fault = machine.budget.preempts[usize::from(fault)];
                (actor(machine, fault.engine, "sched"), vec![subject_text(machine, "preempt", fault.request, 0)])
            }
            Action::Flush { engine } => {
                ("operator".to_owned(), vec![format!("reset {}", engine_name(machine, engine))])
            }
        };
        Described { actor, ops }
    }

    /// Everything that a fence keeps back now.
    pub fn blocked(&self, machine: &Machine, names: &LocalNames) -> Vec<Blocked> {
        let mut names = names.clone();
        let mut blocked = Vec::new();
        for e in 0..self.engines.len() {
            for stream in STREAMS {
                let s = stream_index(stream);
                let Some(hold) = self.stream_hold(e, s) else { continue };
                let op = self.engines[e].streams[s].front().expect("it is held");
                let micro = op.micros()[usize::from(op.done())];
                blocked.push(Blocked {
                    actor: actor(machine, e as u8, STREAM_ACTORS[s]),
                    op: micro_text(op, micro, e as u8, &mut names),
                    operation: operation(op, micro, e as u8),
                    waits_for: hold_text(hold, e as u8, &mut names),
                    owed_to: hold.owed_to,
                });
            }
        }
        for run in &self.engines[0].nic {
            if let Some(fence) = self.engines[0].unmet(&run.op.after).filter(|_| run.done == 0) {
                let hold = Hold { owed_to: fence.owed_to, on: HoldOn::Fence(fence.on) };
                blocked.push(Blocked {
                    actor: actor(machine, 0, "nic"),
                    op: nic_text(run, nic_verb(run), &mut names),
                    operation: Operation::next_of(run),
                    waits_for: hold_text(hold, 0, &mut names),
                    owed_to: fence.owed_to,
                });
            }
        }
        blocked
    }

    /// The words for what a step brought about. Binds the names of everything that was handed out.
    pub fn results(machine: &Machine, log: &[LogEntry], names: &mut LocalNames) -> String {
        let mut words = Vec::new();
        for entry in log {
            match entry {
                LogEntry::Effect(engine, effect) => words.extend(effect_text(machine, *engine, effect, names)),
                LogEntry::Read { expected, found } if *found != Content::Block(*expected) => {
                    let name = |block| machine.block_name(block);
                    words.push(format!("expects {}, finds {}", name(*expected), found.show(name)));
                }
                LogEntry::Read { .. } => {}
                LogEntry::Rejected(why) => words.push(format!("rejected: {why}")),
            }
        }
        words.dedup();
        words.join("; ")
    }

    /// What a cell of memory holds, for pictures: page names with the contents of each unit.
    pub fn memory_text(&self, machine: &Machine, names: &mut LocalNames) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        for (e, engine) in self.engines.iter().enumerate() {
            for (t, pages) in engine.memory.tiers.iter().enumerate() {
                for (at, page) in pages.pages.iter().enumerate() {
                    if page.owner == crate::memory::Owner::Free {
                        continue;
                    }
                    let block = BlockRef {
                        group: kvweft_core::Group(0),
                        tier: kvweft_core::Tier(t as u8),
                        page: kvweft_core::PageId(at as u32),
                        generation: page.generation,
                    };
                    let cells =
                        machine.engines[e].units.iter().zip(pages.cells(at)).map(|(&(layer, component), cell)| {
                            let content = cell.content.show(|block| machine.block_name(block));
                            let under = if cell.writers > 0 { "*" } else { "" };
                            format!("{}{layer} {content}{under}", if component == Component::Kv { "kv" } else { "ix" })
                        });
                    rows.push((names.page(e as u8, block), cells.collect::<Vec<_>>().join(" ")));
                }
            }
        }
        rows.sort();
        rows
    }

    fn head(&self, machine: &Machine, link: u8, verb: &str) -> String {
        let message = self.links[usize::from(link)].front().expect("enabled");
        format!("{verb} {}", message_text(machine, message))
    }

    fn report_text(&self, machine: &Machine, engine: u8, report: Report, names: &mut LocalNames) -> String {
        match report {
            Report::Step(step) => format!("take {} done", names.step(engine, step)),
            Report::Completed(id, part, outcome) => {
                let ended = if outcome == kvweft_core::Outcome::Done { "completed" } else { "failed" };
                let name = names.transfer(engine, id);
                match part.kind {
                    PartKind::Whole => format!("take {name} {ended}"),
                    _ => format!("take {name} {} {ended}", part_text(part)),
                }
            }
            Report::Metadata(_, room) => {
                let owner = self.clients.iter().position(|client| client.room == Some(room));
                let name = owner.map_or("a former submission", |at| machine.scripts[at].name.as_str());
                format!("take metadata of {name}")
            }
        }
    }
}

const STREAM_ACTORS: [&str; 3] = ["forward", "h2d", "d2h"];

fn actor(machine: &Machine, engine: u8, name: &str) -> String {
    match (machine.split(), engine) {
        (false, _) => name.to_owned(),
        (true, 0) => format!("p.{name}"),
        (true, _) => format!("d.{name}"),
    }
}

fn engine_name(machine: &Machine, engine: u8) -> &'static str {
    match (machine.split(), engine) {
        (false, _) => "the engine",
        (true, 0) => "prefill",
        (true, _) => "decode",
    }
}

fn subject_text(machine: &Machine, verb: &str, request: usize, engine: u8) -> String {
    let name = &machine.scripts[request].name;
    if machine.split() {
        format!("{verb} {name} at {}", engine_name(machine, engine))
    } else {
        format!("{verb} {name}")
    }
}

fn submit_text(machine: &Machine, request: usize) -> String {
    let script = &machine.scripts[request];
    let names = |blocks: &[u16]| blocks.iter().map(|&block| machine.block_name(block)).collect::<Vec<_>>().join(" ");
    if script.output.is_empty() {
        format!("submit {} [{}]", script.name, names(&script.prompt))
    } else {
        format!("submit {} [{} | {}]", script.name, names(&script.prompt), names(&script.output))
    }
}

fn timer_text(machine: &Machine, timer: Timer, slow: bool) -> String {
    let wait = match timer.wait {
        Wait::Receive => "receive",
        Wait::Drain => "drain",
    };
    let early = if slow { " (everything is slow)" } else { "" };
    format!("{wait} deadline of {} passes{early}", machine.scripts[timer.request.0 as usize].name)
}

fn message_text(machine: &Machine, message: &Message) -> String {
    let what = match &message.body {
        Body::Reserved { .. } => "reserved",
        Body::Abort => "abort",
        Body::Status(Status::Success) => "success",
        Body::Status(Status::Failed) => "failed",
        Body::Status(Status::Refused) => "refused",
        Body::Drained => "drained",
    };
    format!("{what} {}", machine.scripts[message.request.0 as usize].name)
}

pub(crate) fn part_text(part: Part) -> String {
    match part.kind {
        PartKind::Whole => "all".to_owned(),
        PartKind::Kv if part.handle > 1 => format!("kv part {}", part.handle),
        PartKind::Kv => if part.handle == 0 { "cached kv" } else { "kv" }.to_owned(),
        PartKind::IndexK => "index-k".to_owned(),
        PartKind::Metadata => "metadata".to_owned(),
    }
}

fn nic_verb(run: &NicRun) -> &'static str {
    match (run.op.part.kind, run.done % 2 == 1) {
        (PartKind::Metadata, _) => "write",
        (_, false) => "begin",
        (_, true) => "end",
    }
}

fn nic_text(run: &NicRun, verb: &str, names: &mut LocalNames) -> String {
    format!("{} {verb} {}", names.transfer(0, run.op.transfer), part_text(run.op.part))
}

fn op_name(op: &Op, engine: u8, names: &mut LocalNames) -> String {
    match op {
        Op::Copy(run) => names.transfer(engine, run.op.transfer),
        Op::Record(run) => names.transfer(engine, run.op.transfer),
        Op::Step(run) => names.step(engine, run.op.step),
    }
}

fn micro_text(op: &Op, micro: Micro, engine: u8, names: &mut LocalNames) -> String {
    let name = op_name(op, engine, names);
    let parts = match op {
        Op::Copy(run) => run.op.parts.as_slice(),
        Op::Record(run) => run.op.parts.as_slice(),
        Op::Step(_) => &[],
    };
    let page = |pair: Option<u16>| pair.map_or(String::new(), |pair| format!(" page {}", pair + 1));
    match micro {
        Micro::CopyBegin { layer, part, pair } => {
            format!("{name} begin {} layer {layer}{}", parts[usize::from(part)].component.name(), page(pair))
        }
        Micro::CopyEnd { layer, part, pair } => {
            format!("{name} end {} layer {layer}{}", parts[usize::from(part)].component.name(), page(pair))
        }
        Micro::Record { layer: Some(layer) } => format!("{name} record layer {layer}"),
        Micro::Record { layer: None } => format!("{name} record completion"),
        Micro::Read { layer, component, one } => {
            let page = one.map_or(String::new(), one_page);
            format!("{name} read {} layer {layer}{page}", component.name())
        }
        Micro::WriteBegin { layer, one } => format!("{name} begin write layer {layer}{}", one_cell(one)),
        Micro::WriteEnd { layer, one } => format!("{name} end write layer {layer}{}", one_cell(one)),
    }
}

fn one_page(page: OnePage) -> String {
    let item = if page.item == 0 { String::new() } else { format!(" item {}", page.item + 1) };
    format!(" page {}{item}", page.position + 1)
}

fn one_cell(one: Option<(OnePage, Component)>) -> String {
    one.map_or(String::new(), |(page, component)| format!(" {}{}", component.name(), one_page(page)))
}

fn hold_text(hold: Hold, engine: u8, names: &mut LocalNames) -> String {
    match hold.on {
        HoldOn::Fence(FenceOn::Step(step)) => format!("the end of {}", names.step(engine, step)),
        HoldOn::Fence(FenceOn::Load(..)) => "every layer of the reload".to_owned(),
        HoldOn::Layer(_, layer) => format!("the reload event of layer {layer}"),
    }
}

fn pages_text(engine: u8, pages: &[BlockRef], names: &mut LocalNames) -> String {
    pages.iter().map(|&page| names.page(engine, page)).collect::<Vec<_>>().join(" ")
}

fn effect_text(machine: &Machine, engine: u8, effect: &Effect, names: &mut LocalNames) -> Option<String> {
    let text = match effect {
        Effect::Copy(op) => {
            let from: Vec<BlockRef> = op.pairs.iter().map(|pair| pair.from).collect();
            let to: Vec<BlockRef> = op.pairs.iter().map(|pair| pair.to).collect();
            let verb = if op.direction == kvweft_core::Direction::Reload { "reload" } else { "offload" };
            let name = names.transfer(engine, op.transfer);
            format!("=> {name} {verb} {} to {}", pages_text(engine, &from, names), pages_text(engine, &to, names))
        }
        Effect::Send(op) => {
            let name = names.transfer(engine, op.transfer);
            let to: Vec<BlockRef> = op.pairs.iter().map(|pair| pair.to).collect();
            let to = if to.is_empty() { String::new() } else { format!(" to {}", pages_text(1, &to, names)) };
            format!("=> {name} send {}{to}", part_text(op.part))
        }
        Effect::RunStep(op) => step_text(machine, engine, op, names),
        Effect::Answer(answer) => {
            let how = match answer.ending {
                Ending::Finished => "ends well",
                Ending::Aborted => "ends aborted",
                Ending::Timeout => "ends by its deadline",
                Ending::Failed(Failure::Layout) => "is refused: the layouts differ",
                Ending::Failed(Failure::Peer) => "fails: the peer could not complete it",
                Ending::Failed(Failure::Device) => "fails: a copy or send failed",
                Ending::Failed(Failure::Reset) => "fails: the engine is reset",
            };
            let name = &machine.scripts[answer.request.0 as usize].name;
            let place = if machine.split() { format!(" at {}", engine_name(machine, engine)) } else { String::new() };
            format!("{name} {how}{place}")
        }
        Effect::Message(message) => format!("send {}", message_text(machine, message)),
        Effect::Move(moved) => match moved.what {
            MoveKind::Take => format!("=> {}", pages_text(engine, &moved.pages, names)),
            MoveKind::Free => format!("free {}", pages_text(engine, &moved.pages, names)),
            MoveKind::Drain => format!("drain {}", pages_text(engine, &moved.pages, names)),
            MoveKind::Publish => format!("publish {}", pages_text(engine, &moved.pages, names)),
        },
        Effect::Wake(wake) => format!("{} has arrived", machine.scripts[wake.request.0 as usize].name),
        Effect::Poll(_) => "poll first".to_owned(),
        Effect::Arm(_) | Effect::Disarm(_) | Effect::Collective(_) => return None,
    };
    Some(text)
}

fn step_text(machine: &Machine, engine: u8, op: &RunStep, names: &mut LocalNames) -> String {
    let name = names.step(engine, op.step);
    let items = op.items.iter().map(|item| {
        let kind = if item.kind == StepKind::Prefill { "prefill" } else { "decode" };
        let reads = pages_text(engine, &item.pages[..(item.read as usize).min(item.pages.len())], names);
        let writes = pages_text(engine, &item.pages[(item.write_from as usize).min(item.pages.len())..], names);
        let mut text = format!("{kind} {}", machine.scripts[item.request.0 as usize].name);
        if !reads.is_empty() {
            text += &format!(" reads {reads}");
        }
        if !writes.is_empty() {
            text += &format!(" writes {writes}");
        }
        text
    });
    let items: Vec<String> = items.collect();
    format!("=> {name} {}", items.join(", "))
}
