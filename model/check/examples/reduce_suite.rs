//! The built-in suite, searched whole and reduced: what reductions save, and that they change no verdict.
//!
//! `cargo run --release -p kvweft-check --example reduce_suite [SCENARIO..]`

use kvweft_check::build::{build, scenario_drops, with_names};
use kvweft_check::explore::{Options, Outcome, WantedProperties, explore};
use kvweft_check::reduce::Reduction;
use kvweft_check::scenario;
use kvweft_core::RuleSet;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let scenarios = with_names(scenario::load_embedded).expect("the built-in scenarios are right");
    let mut logs = [Vec::new(), Vec::new()];
    println!("| scenario | as written | reduced | times | all rules | reduced | times |");
    println!("|---|---|---|---|---|---|---|");
    // The whole search of a scenario that asks for a reduced one would not end.
    let compared =
        |scenario: &&scenario::Scenario| !scenario.reduce && (named.is_empty() || named.contains(&scenario.name));
    for scenario in scenarios.iter().filter(compared) {
        let want = match &scenario.properties[..] {
            [] => WantedProperties::All,
            listed => WantedProperties::Listed(listed.to_vec()),
        };
        let options = Options { threads: 1, states_max: scenario.states_max, want, ..Options::default() };
        let mut row = format!("| `{}` ", scenario.name);
        for (column, drops) in [scenario_drops(scenario), RuleSet::EMPTY].into_iter().enumerate() {
            let system = build(scenario, drops);
            let whole = explore(&system, &options);
            let reduced = explore(&system, &Options { reduce: true, ..options.clone() });
            let broken = |outcome: &Outcome<_>| -> Vec<&str> {
                outcome.traces.iter().map(|trace| trace.violation.property).collect()
            };
            assert_eq!(broken(&whole), broken(&reduced), "{}", scenario.name);
            let times = whole.counts.states as f64 / reduced.counts.states as f64;
            logs[column].push(times.ln());
            let note = match reduced.reduction.expect("it was asked for") {
                Reduction::Applied { refuted: 0 } => String::new(),
                Reduction::Applied { .. } => " (refuted)".to_owned(),
                Reduction::Cyclic => " (cyclic)".to_owned(),
            };
            row += &format!("| {} | {}{note} | {times:.1} ", whole.counts.states, reduced.counts.states);
        }
        println!("{row}|");
    }
    let mean = |logs: &[f64]| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    println!("geometric mean: {:.2} as written, {:.2} with all rules", mean(&logs[0]), mean(&logs[1]));
}
