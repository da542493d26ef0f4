//! For every rule at every site, a scenario that fails when exactly that is dropped.

use kvweft_check::build::{build, scenario_drops, with_names};
use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::scenario::{self, Scenario};
use kvweft_core::{RULES, RuleSet, RuleSite};

/// The scenarios in the order in which they are tried for a site: those made for it, then the small ones.
fn candidates(scenarios: &[Scenario], at: RuleSite) -> Vec<&Scenario> {
    let mut ordered: Vec<&Scenario> = scenarios.iter().filter(|scenario| !scenario.reduce).collect();
    ordered.sort_by_key(|scenario| {
        let drops = scenario_drops(scenario);
        let states = scenario.expect.as_ref().and_then(|expect| expect.states_all_rules);
        let made_for = drops.has(at);
        (!made_for, if made_for { drops.iter().count() } else { 0 }, states, scenario.name.clone())
    });
    ordered
}

#[test]
fn every_rule_at_every_site_has_a_scenario_that_fails_without_it() {
    let scenarios = with_names(scenario::load_embedded).expect("the built-in scenarios are right");
    let options = Options { stop_at_first: true, ..Options::default() };
    let mut table = String::new();
    let mut unprotected = Vec::new();
    for at in RuleSite::all() {
        let failing = candidates(&scenarios, at).into_iter().find_map(|scenario| {
            let outcome = explore(&build(scenario, RuleSet::EMPTY.with(at)), &options);
            (outcome.verdict == Verdict::Violated).then_some((scenario, outcome))
        });
        match failing {
            Some((scenario, outcome)) => {
                let trace = &outcome.traces[0];
                let property = trace.violation.property;
                table +=
                    &format!("{:<42} {:<30} {property:<33} {}\n", at.to_string(), scenario.name, trace.steps.len());
            }
            None => unprotected.push(at.to_string()),
        }
    }
    assert_eq!(unprotected, Vec::<String>::new(), "no scenario notices that these are dropped");
    let implemented = RULES.iter().filter(|info| !info.sites.is_empty()).count();
    assert!(implemented >= 30, "{implemented} rules");
    insta::assert_snapshot!(format!("{implemented} rules at {} sites\n\n{table}", RuleSite::all().count()));
}
