//! `kvweft step`: a world walked by hand.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use kvweft_check::build::{build, scenario_drops};
use kvweft_check::record::Walk;
use kvweft_core::{Manager, RuleSet};
use kvweft_world::Action;

use crate::args;
use crate::failure::Failure;
use crate::input;

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
    println!("{}: {}\n{HELP}", scenario.name, scenario.title);
    show(&walk);
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.trim() {
            "" => {}
            "end" | "quit" | "q" => break,
            "help" | "?" => println!("{HELP}"),
            "why" => why(&walk),
            "memory" => walk.memory().into_iter().for_each(|(page, cells)| println!("  {page}: {cells}")),
            "back" => {
                taken.pop();
                walk = Walk::new(&system);
                for &action in &taken {
                    walk.take(action);
                }
                show(&walk);
            }
            word => match choose(&walk, word) {
                Some(action) => {
                    take(&mut walk, action);
                    taken.push(action);
                    show(&walk);
                }
                None => println!("expected a number from the list, or one of: why memory back end; found `{word}`"),
            },
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn choose(walk: &Walk<'_, Manager>, word: &str) -> Option<Action> {
    let number: usize = word.parse().ok()?;
    walk.choices().get(number.checked_sub(1)?).map(|(action, _)| *action)
}

fn take(walk: &mut Walk<'_, Manager>, action: Action) {
    let (described, result, violations) = walk.take(action);
    println!("{} {}", described.actor, described.ops.join("; "));
    if !result.is_empty() {
        println!("  {result}");
    }
    for violation in violations {
        println!("  ! {}: {}", violation.property, violation.detail);
    }
}

fn show(walk: &Walk<'_, Manager>) {
    let choices = walk.choices();
    for (i, (_, described)) in choices.iter().enumerate() {
        println!("{:>3}  {:<10} {}", i + 1, described.actor, described.ops.join("; "));
    }
    if choices.is_empty() {
        println!("nothing more can happen");
        for owed in walk.owed() {
            println!("  ! {}: {}", owed.property, owed.detail);
        }
    }
    if std::io::stdout().is_terminal() {
        print!("> ");
        // A prompt that cannot be shown is no reason to stop.
        let _ = std::io::stdout().flush();
    }
}

fn why(walk: &Walk<'_, Manager>) {
    let blocked = walk.blocked();
    if blocked.is_empty() {
        println!("  no fence keeps anything back");
    }
    for held in blocked {
        println!("  {} {}: waits for {} ({})", held.actor, held.op, held.waits_for, held.owed_to);
    }
}
