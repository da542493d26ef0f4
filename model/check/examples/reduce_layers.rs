//! A built-in scenario with its layers repeated, in a reduced search: how little the number of layers matters to it.
//!
//! `cargo run --release -p kvweft-check --example reduce_layers SCENARIO LAYERS`

use kvweft_check::build::{build, with_names};
use kvweft_check::explore::{Options, explore};
use kvweft_check::scenario;
use kvweft_core::RuleSet;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("the name of a built-in scenario");
    let layers: usize = arguments.next().and_then(|text| text.parse().ok()).expect("a number of layers, at most 64");
    let found = with_names(|names| scenario::load_embedded_one(&name, names)).expect("a built-in scenario");
    let mut scenario = found.expect("the built-in scenarios are right");
    scenario.model.layers = scenario.model.layers.iter().cycle().take(layers).cloned().collect();
    let outcome = explore(&build(&scenario, RuleSet::EMPTY), &Options { reduce: true, ..Options::default() });
    println!("{name} with {layers} layers: {:?}, {:?}", outcome.verdict, outcome.reduction);
    println!("{} states, {} transitions", outcome.counts.states, outcome.counts.transitions);
}
