//! Logs of good runs that were tampered with: each is rejected at the line that is wrong, or is a harmless reordering.

mod played;

use std::collections::BTreeMap;

use kvweft_core::{Dtype, Effect, Generation, Geometry};
use kvweft_shell::conform::{NotConforming, conform};
use kvweft_shell::run::Workload;
use kvweft_trace::event::{Event, InputRecord, Line, Phase};

/// Mutants of each kind and log.
const EACH: usize = 60;

/// What was done to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Two lines next to each other change places.
    SwapNeighbours,
    /// Two lines next to each other, of different actors, change places.
    SwapActors,
    /// Two lines that are up to 40 apart change places.
    Swap,
    /// One line is missing.
    Remove,
    /// A page of an effect is another.
    Page,
    /// A generation of an effect is another.
    Generation,
    /// A completion is handed in before the last end of its copy.
    EarlyCompletion,
    /// A copy begins before the step that it waits for has ended.
    FenceLeftOut,
    /// A layer is read before its reload event.
    WaitLeftOut,
    /// Other bytes are read.
    OtherBytes,
}

const KINDS: [Kind; 10] = [
    Kind::SwapNeighbours,
    Kind::SwapActors,
    Kind::Swap,
    Kind::Remove,
    Kind::Page,
    Kind::Generation,
    Kind::EarlyCompletion,
    Kind::FenceLeftOut,
    Kind::WaitLeftOut,
    Kind::OtherBytes,
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }
}

fn text(lines: &[Line]) -> String {
    // Numbered afresh, so that the numbers give nothing away.
    let mut lines = lines.to_vec();
    let last = lines.len() as u64 - 1;
    for (seq, line) in (0..).zip(&mut lines) {
        line.seq = seq;
        if let Event::End { lines, .. } = &mut line.event {
            *lines = last;
        }
    }
    lines.iter().map(|line| line.to_json() + "\n").collect()
}

/// A mutant and the lines (counted from 0) between which it must be noticed; `None` where the log has no place for it.
fn mutant(kind: Kind, good: &[Line], random: &mut Random) -> Option<(Vec<Line>, usize, usize)> {
    let mut lines = good.to_vec();
    let inner = 1 + random.below(lines.len() - 3);
    match kind {
        Kind::SwapNeighbours | Kind::Swap => {
            let distance = if kind == Kind::Swap { 2 + random.below(38) } else { 1 };
            let other = (inner + distance).min(lines.len() - 2);
            lines.swap(inner, other);
            Some((lines, inner, other))
        }
        Kind::SwapActors => {
            let differ = |at: &usize| actor(&lines[*at]) != actor(&lines[*at + 1]);
            let at = (inner..lines.len() - 2).chain((1..inner).rev()).find(differ)?;
            lines.swap(at, at + 1);
            Some((lines, at, at + 1))
        }
        Kind::Remove => {
            lines.remove(inner);
            let end = lines.len() - 1;
            Some((lines, inner, end))
        }
        Kind::Page | Kind::Generation => {
            let at = nearest(&lines, inner, |line| first_page(&mut line.clone()).is_some())?;
            let page = first_page(&mut lines[at]).expect("just found");
            match kind {
                Kind::Page => page.page.0 ^= 1,
                _ => page.generation = Generation(page.generation.0 + 1),
            }
            Some((lines, at, at))
        }
        Kind::OtherBytes => {
            let reads = |line: &Line| matches!(&line.event, Event::Read { sums, .. } if !sums.is_empty());
            let at = nearest(&lines, inner, reads)?;
            if let Event::Read { sums, .. } = &mut lines[at].event {
                let which = random.below(sums.len());
                sums[which].0 ^= 1 << random.below(64);
            }
            Some((lines, at, at))
        }
        Kind::EarlyCompletion => {
            let completes = |line: &Line| match &line.event {
                Event::Input { input: InputRecord::Completed { transfer, .. }, engine, .. } => {
                    last_end(&lines, *engine, transfer.serial).is_some()
                }
                _ => false,
            };
            let at = nearest(&lines, inner, completes)?;
            let Event::Input { input: InputRecord::Completed { transfer, .. }, engine, .. } = &lines[at].event else {
                unreachable!("just found")
            };
            let end = last_end(&lines, *engine, transfer.serial)?;
            (end < at).then(|| {
                let line = lines.remove(at);
                lines.insert(end, line);
                (lines, end, end)
            })
        }
        Kind::FenceLeftOut => early_begin(lines, inner),
        Kind::WaitLeftOut => early_read(lines, inner),
    }
}

/// Who does what a line says: a stream, the network, or a manager.
fn actor(line: &Line) -> (u8, u8) {
    match &line.event {
        Event::Copy { engine, stream, .. } | Event::Record { engine, stream, .. } => (*engine, *stream as u8),
        Event::Read { engine, .. } | Event::Write { engine, .. } | Event::Nothing { engine, .. } => (*engine, 0),
        Event::Send { .. } | Event::SendFailed { .. } => (0, 3),
        Event::Input { engine, .. } => (*engine, 4),
        Event::Run(_) | Event::Lost { .. } | Event::End { .. } => (0, 5),
    }
}

fn nearest(lines: &[Line], from: usize, good: impl Fn(&Line) -> bool) -> Option<usize> {
    (from..lines.len()).chain((0..from).rev()).find(|&at| good(&lines[at]))
}

fn first_page(line: &mut Line) -> Option<&mut kvweft_core::BlockRef> {
    let Event::Input { effects, .. } = &mut line.event else { return None };
    effects.iter_mut().find_map(|effect| match effect {
        Effect::Copy(op) => op.pairs.first_mut().map(|pair| &mut pair.to),
        Effect::RunStep(op) => op.items.first_mut().and_then(|item| item.pages.last_mut()),
        Effect::Move(moved) => moved.pages.first_mut(),
        _ => None,
    })
}

/// The last end of a copy that is part of what an input completes.
fn last_end(lines: &[Line], engine: u8, serial: u32) -> Option<usize> {
    lines.iter().rposition(|line| match &line.event {
        Event::Copy { engine: at, transfer, phase: Phase::End, .. } => *at == engine && transfer.serial == serial,
        _ => false,
    })
}

/// Moves the first begin of an offload in front of the last write of the step that it waits for.
fn early_begin(mut lines: Vec<Line>, from: usize) -> Option<(Vec<Line>, usize, usize)> {
    let begins = |at: usize, lines: &[Line]| {
        let Event::Copy { engine, transfer, phase: Phase::Begin, .. } = &lines[at].event else { return None };
        let (after, asked) = lines[..at].iter().enumerate().rev().find_map(|(asked, line)| match &line.event {
            Event::Input { engine: of, effects, .. } if of == engine => {
                effects.iter().find_map(|effect| match effect {
                    Effect::Copy(op) if op.transfer == *transfer => Some((op.after.clone(), asked)),
                    _ => None,
                })
            }
            _ => None,
        })?;
        let step = after.iter().find_map(|fence| match fence.on {
            kvweft_core::FenceOn::Step(step) => Some(step),
            _ => None,
        })?;
        let write = lines[..at].iter().rposition(|line| {
            matches!(&line.event, Event::Write { engine: of, step: s, phase: Phase::End, .. } if of == engine && *s == step)
        })?;
        let first = lines[asked..at].iter().all(
            |line| !matches!(&line.event, Event::Copy { engine: of, transfer: t, .. } if of == engine && t == transfer),
        );
        (first && asked < write).then_some(write)
    };
    let at = (from..lines.len()).chain((0..from).rev()).find(|&at| begins(at, &lines).is_some())?;
    let write = begins(at, &lines)?;
    let line = lines.remove(at);
    lines.insert(write, line);
    Some((lines, write, write))
}

/// Moves the read of a layer in front of the reload event that it waits for.
fn early_read(mut lines: Vec<Line>, from: usize) -> Option<(Vec<Line>, usize, usize)> {
    let waits = |at: usize, lines: &[Line]| {
        let Event::Read { engine, step, layer, .. } = &lines[at].event else { return None };
        let waited = lines[..at].iter().rev().find_map(|line| match &line.event {
            Event::Input { engine: of, effects, .. } if of == engine => {
                effects.iter().find_map(|effect| match effect {
                    Effect::RunStep(op) if op.step == *step => Some(op.items.iter().any(|item| !item.waits.is_empty())),
                    _ => None,
                })
            }
            _ => None,
        })?;
        // The event must be the line right before on that engine, or another line would be the one that is early.
        let record = lines[..at].iter().rposition(|line| {
            matches!(&line.event, Event::Record { engine: of, layer: Some(l), .. } if of == engine && l == layer)
        })?;
        let between = lines[record..at].iter().any(|line| {
            matches!(&line.event, Event::Read { engine: of, .. } | Event::Write { engine: of, .. } if of == engine)
        });
        (waited && !between).then_some(record)
    };
    let at = (from..lines.len()).chain((0..from).rev()).find(|&at| waits(at, &lines).is_some())?;
    let record = waits(at, &lines)?;
    let line = lines.remove(at);
    lines.insert(record, line);
    Some((lines, record, record))
}

#[test]
fn tampered_logs_are_rejected_at_the_right_line_or_are_harmless_reorderings() {
    let mut workload = Workload::new(4, 3, Geometry::uniform(2, 64, Some(Dtype::Bf16)));
    workload.device_pages = workload.session_pages() * 2;
    let pressed = played::lines(&workload);
    let mut workload = Workload::new(3, 2, Geometry::uniform(1, 64, Some(Dtype::Fp8)));
    workload.split = true;
    let split = played::lines(&workload);
    let mut random = Random(7);
    let mut later = 0;
    let mut table: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
    for good in [&pressed, &split] {
        conform(&text(good)).expect("the log is good before it is tampered with");
        for kind in KINDS {
            for _ in 0..EACH {
                let Some((lines, first, last)) = mutant(kind, good, &mut random) else { break };
                let (made, caught) = table.entry(kind).or_default();
                *made += 1;
                match conform(&text(&lines)) {
                    Err(NotConforming { line, what, why }) => {
                        *caught += 1;
                        // Counted from 1 there.
                        let within = (first..=last).contains(&(line - 1));
                        // Two things that can happen in either order (ends of two sends, submissions that wait) are wrong
                        // only where something later follows from their order.
                        let reordered = matches!(kind, Kind::SwapNeighbours | Kind::SwapActors | Kind::Swap);
                        let right = within || (reordered && line > last);
                        later += usize::from(!within);
                        assert!(right, "{kind:?} of {first}..={last} noticed at {}: {what}\n{why}", line - 1);
                    }
                    // What conforms can have happened: it is another order of the same things.
                    Ok(_) => assert!(
                        matches!(kind, Kind::SwapNeighbours | Kind::SwapActors | Kind::Swap),
                        "{kind:?} of {first}..={last} was not noticed: {:?}",
                        lines[first]
                    ),
                }
            }
        }
    }
    let (made, caught) = table.values().fold((0, 0), |(a, b), (made, caught)| (a + made, b + caught));
    println!("{made} mutants, {caught} rejected, {later} of them at a line that follows from their order;");
    println!("the others are reorderings that can have happened:");
    for (kind, (made, caught)) in &table {
        println!("  {kind:?}: {caught} of {made}");
    }
    assert!(later * 20 < caught, "{later} of {caught}");
    assert!(made >= 600 && table.len() == KINDS.len(), "{table:?}");
}

#[test]
fn a_log_that_says_all_is_settled_while_something_is_under_way_is_rejected() {
    let mut workload = Workload::new(2, 2, Geometry::uniform(2, 64, Some(Dtype::Bf16)));
    workload.device_pages = workload.session_pages();
    let good = played::lines(&workload);
    let begun = |line: &Line| matches!(line.event, Event::Copy { phase: Phase::Begin, .. });
    let at = good.iter().position(begun).expect("it copies");
    let cut = [&good[..=at], &good[good.len() - 1..]].concat();
    let wrong = conform(&text(&cut)).expect_err("a copy is under way");
    assert!(wrong.why.starts_with("the run is said to have settled, and something is left: "), "{}", wrong.why);
}
