//! `kvweft step`: a world walked by hand.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use kvweft_check::build::{build, scenario_drops};
use kvweft_check::record::Walk;
use kvweft_core::{Manager, RuleSet};
use kvweft_world::Action;

use crate::args;
use crate::failure::Failure;
use crate::{input, output};

const HELP: &str =
    "a number takes that action; `why` says what fences keep back; `memory` shows the pages; `back` takes the
last step back; `end` stops";

/// Runs the command: reads one command a line from standard input.
pub(crate) fn run(args: &args::Step) -> Result<ExitCode, Failure> {
    let scenario = input::one_scenario(&args.scenario)?;
    let drops = match (args.drop.is_empty(), args.all_rules) {
        (true, false) => scenario_drops(&scenario),
        (true, true) => RuleSet::EMPTY,
        (false, _) => input::rules(&args.drop)?,
    };
    let system = build(&scenario, drops);
    let mut taken: Vec<Action> = Vec::new();
    let mut walk = Walk::new(&system);
    output::result(&format!("{}: {}\n{HELP}\n{}", scenario.name, scenario.title, choices(&walk)))?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        prompt()?;
        line.clear();
        let read = input.read_until(b'\n', &mut line).map_err(|error| Failure::Input(error.to_string()))?;
        // Bytes that are no text are answered like any other word that is no command.
        let word = String::from_utf8_lossy(&line);
        match word.trim() {
            _ if read == 0 => break,
            "" => {}
            "end" | "quit" | "q" => break,
            "help" | "?" => output::result(&format!("{HELP}\n"))?,
            "why" => output::result(&why(&walk))?,
            "memory" => output::result(&memory(&mut walk))?,
            "back" => {
                taken.pop();
                walk = Walk::new(&system);
                for &action in &taken {
                    walk.take(action);
                }
                output::result(&choices(&walk))?;
            }
            word => match choose(&walk, word) {
                Some(action) => {
                    taken.push(action);
                    output::result(&(take(&mut walk, action) + &choices(&walk)))?;
                }
                None => output::result(&format!(
                    "expected a number from the list, or one of: why memory back end; found `{word}`\n"
                ))?,
            },
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for the next command, where somebody is looking.
fn prompt() -> Result<(), Failure> {
    if std::io::stdout().is_terminal() { output::result("> ") } else { Ok(()) }
}

fn choose(walk: &Walk<'_, Manager>, word: &str) -> Option<Action> {
    let number: usize = word.parse().ok()?;
    walk.choices().get(number.checked_sub(1)?).map(|(action, _)| *action)
}

fn take(walk: &mut Walk<'_, Manager>, action: Action) -> String {
    let (described, result, violations) = walk.take(action);
    let mut out = format!("{} {}\n", described.actor, described.ops.join("; "));
    if !result.is_empty() {
        out += &format!("  {result}\n");
    }
    for violation in violations {
        out += &format!("  ! {}: {}\n", violation.property, violation.detail);
    }
    out
}

fn choices(walk: &Walk<'_, Manager>) -> String {
    let mut out = String::new();
    let choices = walk.choices();
    for (i, (_, described)) in choices.iter().enumerate() {
        out += &format!("{:>3}  {:<10} {}\n", i + 1, described.actor, described.ops.join("; "));
    }
    if choices.is_empty() {
        out += "nothing more can happen\n";
        for owed in walk.owed() {
            out += &format!("  ! {}: {}\n", owed.property, owed.detail);
        }
    }
    out
}

fn why(walk: &Walk<'_, Manager>) -> String {
    let blocked = walk.blocked();
    if blocked.is_empty() {
        return "  no fence keeps anything back\n".to_owned();
    }
    let line = |held: kvweft_world::Blocked| {
        format!("  {} {}: waits for {} ({})\n", held.actor, held.op, held.waits_for, held.owed_to)
    };
    blocked.into_iter().map(line).collect()
}

fn memory(walk: &mut Walk<'_, Manager>) -> String {
    let pages = walk.memory();
    if pages.is_empty() {
        return "  no page has an owner\n".to_owned();
    }
    pages.into_iter().map(|(page, cells)| format!("  {page}: {cells}\n")).collect()
}
