//! `kvweft replay`.

use std::process::ExitCode;
use std::time::Duration;

use kvweft_check::build::CacheSystem;
use kvweft_check::record::{Impossible, Replayed, ReplayedStep, replay};
use kvweft_check::trace;
use kvweft_core::{Ending, RuleSet, RuleSite};
use kvweft_cuda::Cuda;
use kvweft_shell::lockstep::{Lockstep, Outcome};
use kvweft_shell::{Platform, Std};
use kvweft_trace::TraceFile;
use kvweft_world::{Action, Machine};

use super::gpus;
use crate::args::{self, Format, On};
use crate::failure::Failure;
use crate::{input, json, output};

/// How long the threads may take to run to their end behind the last step of a trace.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came of a trace on threads.
pub(crate) struct OnThreads {
    /// The fence that keeps the next step back, as its thread says.
    pub(crate) held: Option<RuleSite>,
    /// Whether every step was taken.
    pub(crate) to_the_end: bool,
    /// How each request came out once the gates were opened.
    pub(crate) requests: Vec<(String, Outcome)>,
    /// How often the trace was replayed.
    pub(crate) times: u32,
    /// How often an answer was garbled.
    pub(crate) garbled_times: u32,
    /// How often a fence held the next step back.
    pub(crate) held_times: u32,
}

/// Runs the command.
pub(crate) fn run(args: &args::Replay) -> Result<ExitCode, Failure> {
    if args.on == On::Model && args.times != 1 {
        let why = "the model does the same each time\nhelp: add `--on host` or `--on cuda`".to_owned();
        return Err(Failure::Option { option: "times".to_owned(), why });
    }
    let traced = input::trace(&args.trace, args.scenario.as_ref())?;
    let drops = if args.all_rules { RuleSet::EMPTY } else { traced.drops };
    let world = traced.world(drops);
    let result = replay(&world, &traced.file);
    let threads = match args.on {
        On::Model => None,
        On::Host => Some(many::<Std>(args.times, &world, &result)?),
        On::Cuda => {
            gpus::open(&[args.device], args.copy_by, args::Peer::Auto)?;
            let threads = many::<Cuda>(args.times, &world, &result)?;
            gpus::say_copied();
            Some(threads)
        }
    };
    let violated = matches!(&result, Ok(replayed) if replayed.violation.is_some());
    match args.format {
        Format::Text => {
            let threads = threads.map(|threads| threads_text(&threads)).unwrap_or_default();
            output::result(&(text(&traced.file, &result) + &threads))?;
        }
        Format::Json => output::result(&json::replay(&traced.file, &result, threads.as_ref()))?,
    }
    Ok(ExitCode::from(u8::from(!violated)))
}

/// Takes the same steps on threads, then opens every gate; or asks the thread of the step that cannot happen.
fn on_threads<P: Platform>(
    world: &CacheSystem,
    result: &Result<Replayed, Box<Impossible>>,
) -> Result<OnThreads, String> {
    if world.machine.grain != kvweft_world::Grain::Default {
        return Err("threads follow traces of the default grain only".to_owned());
    }
    let actions: &[Action] = match result {
        Ok(replayed) => &replayed.actions,
        Err(impossible) => &impossible.actions,
    };
    let mut lockstep: Lockstep<'_, P> = Lockstep::new(&world.machine, world.managers.clone())
        .map_err(|why| format!("no model can be served: {why}"))?;
    for (at, &action) in actions.iter().enumerate() {
        lockstep.take(action).map_err(|mismatch| format!("action {}, {action}: {mismatch}", at + 1))?;
    }
    let blocked = result.as_ref().err().and_then(|impossible| impossible.blocked.as_ref());
    let held = blocked.and_then(|blocked| lockstep.held(blocked.operation));
    let outcomes = lockstep.finish(PATIENCE).map_err(|panics| panics.join("; "))?;
    let garbled = outcomes.iter().any(Outcome::is_garbled);
    let requests = outcomes.into_iter().map(|outcome| (name(&world.machine, &outcome), outcome)).collect();
    let (times, held_times) = (1, u32::from(held.is_some()));
    Ok(OnThreads { held, to_the_end: result.is_ok(), requests, times, garbled_times: garbled.into(), held_times })
}

/// The same, so many times; what came of the last one is shown, and the others are counted.
fn many<P: Platform>(
    times: u32,
    world: &CacheSystem,
    result: &Result<Replayed, Box<Impossible>>,
) -> Result<OnThreads, Failure> {
    let mut all = on_threads::<P>(world, result).map_err(Failure::Threads)?;
    for _ in 1..times {
        let more = on_threads::<P>(world, result).map_err(Failure::Threads)?;
        all.times += more.times;
        all.garbled_times += more.garbled_times;
        all.held_times += more.held_times;
        (all.held, all.requests) = (more.held, more.requests);
    }
    Ok(all)
}

fn name(machine: &Machine, outcome: &Outcome) -> String {
    machine.scripts[outcome.request.0 as usize].name.clone()
}

fn threads_text(threads: &OnThreads) -> String {
    let mut out = match threads.held {
        Some(owed_to) => format!("on threads: the step is held back by its fence: {owed_to}\n"),
        None if threads.to_the_end => "on threads: every step was taken; then all gates were opened\n".to_owned(),
        None => "on threads: nobody comes to take the step; all gates were opened\n".to_owned(),
    };
    for (name, outcome) in &threads.requests {
        let ending = match outcome.ending {
            None => "never ends: nothing is left to do",
            Some(Ending::Finished) => "ends well",
            Some(Ending::Aborted) => "ends aborted",
            Some(Ending::Timeout) => "ends by its deadline",
            Some(Ending::Failed(_)) => "fails",
        };
        let answer = match &outcome.answer {
            None => String::new(),
            Some(answer) if outcome.is_garbled() => {
                let (right, got) = (show(&outcome.expected), show(answer));
                format!(", its answer is garbled\n       right: {right}\n       got:   {got}")
            }
            Some(_) => ", its answer is right".to_owned(),
        };
        out += &format!("  {name} {ending}{answer}\n");
    }
    if threads.times > 1 {
        let (times, garbled, held) = (threads.times, threads.garbled_times, threads.held_times);
        out += &format!("of {times} replays: {garbled} with a garbled answer, {held} held back by the fence\n");
    }
    out
}

/// Bytes of an answer on one line: what is no printable character as a number.
fn show(bytes: &[u8]) -> String {
    let byte = |&byte: &u8| match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(byte).collect()
}

fn text(file: &TraceFile, result: &Result<Replayed, Box<Impossible>>) -> String {
    let mut out = String::new();
    match result {
        Ok(replayed) => {
            out += &steps(file, &replayed.steps);
            out += &match &replayed.violation {
                Some(violation) => {
                    let how = match replayed.failure {
                        None | Some(trace::Failure::Step) => String::new(),
                        Some(failure) => format!("{}: ", failure.name()),
                    };
                    format!("violated, as recorded: {how}{}: {}\n", violation.property, violation.detail)
                }
                None => format!("not violated: every step could be taken, and {} holds\n", file.violates),
            };
        }
        Err(impossible) => {
            out += &steps(file, &impossible.before);
            out += &format!("{impossible}\n");
        }
    }
    out
}

fn steps(file: &TraceFile, steps: &[ReplayedStep]) -> String {
    let mut out = String::new();
    let mut before: &[(String, String)] = &[];
    for (i, (line, step)) in file.steps.iter().zip(steps).enumerate() {
        out += &format!("{:>3}  {:<10} {}\n", i + 1, line.actor, line.action);
        if !step.result.is_empty() {
            out += &format!("       {}\n", step.result);
        }
        for (page, cells) in step.memory.iter().filter(|page| !before.contains(page)) {
            out += &format!("       {page}: {cells}\n");
        }
        for violation in &step.violations {
            out += &format!("       ! {}: {}\n", violation.property, violation.detail);
        }
        before = &step.memory;
    }
    out
}
