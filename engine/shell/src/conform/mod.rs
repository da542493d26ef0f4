//! Whether the log of a run can have happened: line by line, against the manager and the world.
//!
//! A log conforms if, for every line, (a) the manager asks for exactly the effects that the log says, given the inputs,
//! (b) each begin, end and completion is enabled in the world, under the fences of its operation, and breaks no property,
//! and (c) what was read is what the last writer of that memory left there.

mod scripts;
mod sums;

use std::fmt;

use kvweft_core::{Config, Effect, Manager};
use kvweft_trace::event::{Event, Header, InputRecord, Line, Phase, SCHEMA};
use kvweft_world::{Budget, Driven, EngineConfig, Grain, Machine, NotAllowed, Operation};

use scripts::Scripts;
use sums::Sums;

/// What was checked of a log that conforms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The name of the run.
    pub run: String,
    /// Lines, the header and the end among them.
    pub lines: u64,
    /// Inputs, with all their effects.
    pub inputs: u64,
    /// Begins, ends and points of operations.
    pub operations: u64,
    /// Cells whose bytes were compared with what had been written there.
    pub cells: u64,
    /// Whether the log ends without its last line: what there is conforms.
    pub cut_off: bool,
}

/// The first line of a log that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConforming {
    /// Its number, from 1.
    pub line: usize,
    /// What the line says.
    pub what: String,
    /// Why it is not allowed.
    pub why: String,
}

impl fmt::Display for NotConforming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n  not allowed: {}", self.line, self.what, self.why)
    }
}

impl std::error::Error for NotConforming {}

/// Checks a whole log.
///
/// # Errors
/// The first line that is not allowed, or is no line of a log, and why.
pub fn conform(log: &str) -> Result<Checked, NotConforming> {
    let mut lines = log.lines().enumerate().map(|(at, text)| (at + 1, text)).filter(|(_, text)| !text.is_empty());
    let error = |line: usize, text: &str, why: String| NotConforming { line, what: shorten(text), why };
    let Some((number, text)) = lines.next() else {
        return Err(error(1, "", "the log is empty: expected a line with `\"event\":\"run\"`".to_owned()));
    };
    let header = header(text).map_err(|why| error(number, text, why))?;
    let scripts = Scripts::of(&header, log);
    let mut checker = Checker::new(header, scripts).map_err(|why| error(number, text, why))?;
    for (number, text) in lines {
        let last = !log.ends_with('\n') && log.ends_with(text);
        let line = match Line::parse(text) {
            Ok(line) => line,
            // A run that was killed may have left half a line behind.
            Err(_) if last && !checker.ended => break,
            Err(why) => return Err(error(number, text, format!("it cannot be read: {why}"))),
        };
        checker.line(&line).map_err(|why| error(number, text, why))?;
    }
    Ok(checker.end())
}

fn header(text: &str) -> Result<Header, String> {
    let line = Line::parse(text).map_err(|why| format!("it cannot be read: {why}"))?;
    let Event::Run(header) = line.event else {
        return Err("expected the line that begins a run: `\"event\":\"run\"`".to_owned());
    };
    if header.schema != SCHEMA {
        return Err(format!("expected schema {SCHEMA}, got {}: another version of kvweft wrote it", header.schema));
    }
    if !(1..=2).contains(&header.engines.len()) {
        return Err(format!("expected one or two engines, got {}", header.engines.len()));
    }
    header.engines.iter().try_for_each(sensible)?;
    Ok(header)
}

/// Whether a manager can be built from a configuration at all.
fn sensible(config: &Config) -> Result<(), String> {
    let geometry = &config.geometry;
    let layouts = geometry.components.iter().map(|entry| entry.layout);
    let sizes = [
        ("geometry.page_tokens", u64::from(geometry.page_tokens), 1, 1 << 16),
        ("geometry.layers", geometry.layers.into(), 1, 64),
        ("device_pages", config.device_pages.into(), 1, PAGES_MAX),
        ("host_pages", config.host_pages.into(), 0, PAGES_MAX),
        ("metadata_slots", config.metadata_slots.into(), 0, PAGES_MAX),
        ("event_slots", config.event_slots.into(), 1, 255),
        ("max_batch", config.max_batch.into(), 1, u32::MAX.into()),
        ("pipeline_depth", config.pipeline_depth.into(), 1, 255),
    ];
    let entries = layouts.flat_map(|layout| {
        [
            ("tokens_per_entry", u64::from(layout.tokens_per_entry), 1, layout.page_tokens.into()),
            ("bytes_per_entry", layout.bytes_per_entry.into(), 1, 1 << 16),
        ]
    });
    for (name, got, least, most) in sizes.into_iter().chain(entries) {
        if !(least..=most).contains(&got) {
            return Err(format!("expected {name} from {least} to {most}, got {got}"));
        }
    }
    Ok(())
}

/// More pages than any pool that is followed.
const PAGES_MAX: u64 = 10_000_000;

/// A line as an error shows it, without what a terminal would obey.
fn shorten(text: &str) -> String {
    const LENGTH_MAX: usize = 160;
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let text = text.as_str();
    match text.char_indices().nth(LENGTH_MAX) {
        Some((at, _)) => format!("{} ..", &text[..at]),
        None => text.to_owned(),
    }
}

struct Checker {
    driven: Driven<Manager>,
    scripts: Scripts,
    sums: Sums,
    checked: Checked,
    ended: bool,
}

impl Checker {
    fn new(header: Header, scripts: Scripts) -> Result<Checker, String> {
        scripts.check()?;
        let machine = Machine {
            engines: header.engines.iter().map(EngineConfig::of).collect(),
            scripts: Vec::new(),
            blocks: Vec::new(),
            budget: Budget::default(),
            grain: Grain::Default,
            driven: true,
        };
        let managers = header.engines.iter().cloned().map(Manager::new).collect();
        let mut driven = Driven::new(machine, managers);
        for script in scripts.all() {
            driven.add_script(script.clone());
        }
        let run = header.run.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let checked = Checked { run, lines: 1, ..Checked::default() };
        Ok(Checker { driven, scripts, sums: Sums::new(&header.engines), checked, ended: false })
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        if self.ended {
            return Err("the run had ended before".to_owned());
        }
        if line.seq != self.checked.lines {
            return Err(format!(
                "expected line number {}, got {}: lines are missing or moved",
                self.checked.lines, line.seq
            ));
        }
        match &line.event {
            Event::Run(_) => return Err("a second run begins: one log is of one run".to_owned()),
            Event::End { lines, .. } if *lines != self.checked.lines => {
                return Err(format!("expected the end after {} lines, got one after {lines}", self.checked.lines));
            }
            Event::End { settled: true, .. } if self.driven.left_over().is_some() => {
                let left = self.driven.left_over().unwrap_or_default();
                return Err(format!("the run is said to have settled, and something is left: {left}"));
            }
            Event::End { .. } => self.ended = true,
            Event::Lost { link } => self.driven.lost(*link).map_err(|why| why.to_string())?,
            Event::Input { engine, input, rejected, effects } => {
                self.input(*engine, input, rejected.as_deref(), effects)?;
            }
            event => self.operation(event)?,
        }
        self.checked.lines += 1;
        Ok(())
    }

    fn input(
        &mut self,
        engine: u8,
        input: &InputRecord,
        rejected: Option<&str>,
        effects: &[Effect],
    ) -> Result<(), String> {
        let mut violations = Vec::new();
        let numbered = self.scripts.numbered(input)?;
        let asked = self.driven.input(engine, numbered.as_input(), &mut violations).map_err(|why| why.to_string())?;
        match (asked, rejected) {
            (Err(_), Some(_)) => {}
            (Err(why), None) => return Err(format!("the manager refuses it: {why}")),
            (Ok(_), Some(why)) => return Err(format!("the manager takes it; the log says it was refused: {why}")),
            (Ok(asked), None) => {
                let logged: Vec<Effect> = effects.iter().map(|effect| self.scripts.numbered_effect(effect)).collect();
                if let Some(why) = difference(&asked, &logged) {
                    return Err(why);
                }
                for effect in &asked {
                    self.sums.effect(engine, effect);
                }
            }
        }
        self.checked.inputs += 1;
        violated(&violations)
    }

    fn operation(&mut self, event: &Event) -> Result<(), String> {
        let operation = named(event);
        let mut violations = Vec::new();
        self.driven.operation(operation, &mut violations).map_err(|why: NotAllowed| why.to_string())?;
        violated(&violations)?;
        self.checked.cells += self.sums.compare(event, self.driven.world())?;
        self.checked.operations += 1;
        Ok(())
    }

    fn end(mut self) -> Checked {
        self.checked.cut_off = !self.ended;
        self.checked
    }
}

fn violated(violations: &[kvweft_world::Violation]) -> Result<(), String> {
    match violations.first() {
        Some(violation) => Err(format!("it violates {}: {}", violation.property, violation.detail)),
        None => Ok(()),
    }
}

fn difference(asked: &[Effect], logged: &[Effect]) -> Option<String> {
    let at = asked.iter().zip(logged).position(|(a, b)| a != b);
    match at {
        Some(at) => {
            Some(format!("effect {}: expected {}, got {}", at + 1, effect_text(&asked[at]), effect_text(&logged[at])))
        }
        None if asked.len() > logged.len() => {
            Some(format!("an effect is missing: expected {}", effect_text(&asked[logged.len()])))
        }
        None if logged.len() > asked.len() => {
            Some(format!("nobody asked for this effect: {}", effect_text(&logged[asked.len()])))
        }
        None => None,
    }
}

/// An effect as a log has it; blocks stand under the numbers that they have here.
fn effect_text(effect: &Effect) -> String {
    shorten(&serde_json::to_string(effect).unwrap_or_default())
}

/// The operation that an event is.
fn named(event: &Event) -> Operation {
    match *event {
        Event::Copy { engine, transfer, layer, component, phase: Phase::Begin, .. } => {
            Operation::CopyBegin { engine, transfer, layer, component }
        }
        Event::Copy { engine, transfer, layer, component, phase: Phase::End, .. } => {
            Operation::CopyEnd { engine, transfer, layer, component }
        }
        Event::Record { engine, transfer, layer, .. } => Operation::Record { engine, transfer, layer },
        Event::Read { engine, step, layer, component, .. } => Operation::Read { engine, step, layer, component },
        Event::Write { engine, step, layer, phase: Phase::Begin, .. } => Operation::WriteBegin { engine, step, layer },
        Event::Write { engine, step, layer, phase: Phase::End, .. } => Operation::WriteEnd { engine, step, layer },
        Event::Nothing { engine, step } => Operation::Nothing { engine, step },
        Event::Send { transfer, part, phase: Phase::Begin, .. } => Operation::SendBegin { transfer, part },
        Event::Send { transfer, part, phase: Phase::End, .. } => Operation::SendEnd { transfer, part },
        Event::SendFailed { transfer, part } => Operation::SendFail { transfer, part },
        Event::Run(_) | Event::Input { .. } | Event::Lost { .. } | Event::End { .. } => {
            unreachable!("not an operation of the device")
        }
    }
}
