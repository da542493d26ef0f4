//! The built-in suite: every scenario says what it expects, and the explorer finds exactly that.

use kvweft_check::build::{build, build_with, scenario_drops, with_names};
use kvweft_check::explore::{Options, Verdict, explore};
use kvweft_check::scenario::{self, Scenario};
use kvweft_check::system::Marks;
use kvweft_check::verdict::{Settings, check};
use kvweft_check::world_system::marks;
use kvweft_core::machine::Next;
use kvweft_core::machine::request::{self, RequestEvent, RequestState};
use kvweft_core::machine::slot::{self, SlotEvent, SlotState};
use kvweft_core::{AllocationOrder, RuleSet, RuleSite};

fn scenarios() -> Vec<Scenario> {
    with_names(scenario::load_embedded).expect("the built-in scenarios are right")
}

/// Those whose whole search takes fewer states.
fn scenarios_below(states: u64) -> impl Iterator<Item = Scenario> {
    let small = move |scenario: &Scenario| scenario.expect.as_ref().and_then(|expect| expect.states) < Some(states);
    scenarios().into_iter().filter(move |scenario| !scenario.reduce && small(scenario))
}

#[test]
fn every_scenario_gives_exactly_the_verdicts_and_counts_that_it_expects() {
    let settings = Settings { explore: Options::default(), drop: None, only: None, grain: None };
    for scenario in scenarios() {
        let expect = scenario.expect.as_ref().unwrap_or_else(|| panic!("{} expects nothing", scenario.name));
        assert!(expect.states.is_some() && expect.states_all_rules.is_some(), "{} gives no counts", scenario.name);
        let report = check(&scenario, &settings, &|_| ());
        assert_eq!(report.unexpected, Vec::<String>::new(), "{}", scenario.name);
        assert!(!report.inconclusive(), "{}", scenario.name);
    }
}

#[test]
fn with_every_rule_on_the_suite_reaches_every_cell_and_every_rule_holds_something_back() {
    let mut reached = Marks::default();
    for scenario in scenarios() {
        let options = Options { reduce: scenario.reduce, ..Options::default() };
        let outcome = explore(&build(&scenario, RuleSet::EMPTY), &options);
        assert_eq!(outcome.verdict, Verdict::Holds, "{}", scenario.name);
        reached.unite(&outcome.marks);
    }
    for at in RuleSite::all() {
        assert!(reached.contains(marks::held(at)), "{at} never held anything back");
    }
    for state in RequestState::ALL {
        for event in RequestEvent::ALL {
            let reachable = !matches!(request::next(state, event), Next::Never(_));
            let hit = reached.contains(marks::request_cell(state, event));
            assert_eq!(hit, reachable, "request {state:?} {event:?}");
        }
    }
    for state in SlotState::ALL {
        for event in SlotEvent::ALL {
            // A page of a world holds one token and is written by one step; the manager's property tests reach this cell.
            let beyond = (state, event) == (SlotState::Filling, SlotEvent::Fill);
            let reachable = !beyond && !matches!(slot::next(state, event), Next::Never(_));
            assert_eq!(reached.contains(marks::slot_cell(state, event)), reachable, "slot {state:?} {event:?}");
        }
    }
}

#[test]
fn whole_encodings_confirm_the_counts_that_fingerprints_give() {
    let exact = Options { exact: true, ..Options::default() };
    for scenario in scenarios_below(10_000) {
        let system = build(&scenario, scenario_drops(&scenario));
        let (with, without) = (explore(&system, &exact), explore(&system, &Options::default()));
        assert_eq!(with.fingerprint_collisions, 0, "{}", scenario.name);
        assert_eq!((with.verdict, with.counts), (without.verdict, without.counts), "{}", scenario.name);
    }
}

#[test]
fn the_order_in_which_pages_are_handed_out_changes_no_count() {
    for scenario in scenarios_below(10_000) {
        let drops = scenario_drops(&scenario);
        let ascending = explore(&build_with(&scenario, drops, None, AllocationOrder::Ascending), &Options::default());
        let descending = explore(&build_with(&scenario, drops, None, AllocationOrder::Descending), &Options::default());
        assert_eq!(ascending.counts, descending.counts, "{}", scenario.name);
        assert_eq!(ascending.verdict, descending.verdict, "{}", scenario.name);
    }
}

#[test]
fn the_number_of_threads_changes_nothing_that_is_found() {
    for scenario in scenarios_below(10_000) {
        let system = build(&scenario, scenario_drops(&scenario));
        let run = |threads| explore(&system, &Options { threads, ..Options::default() });
        let one = run(1);
        assert!(one == run(2) && one == run(16), "{}", scenario.name);
    }
}

#[test]
fn the_finest_grain_gives_the_same_verdicts() {
    let finest = Some(scenario::Grain::Finest);
    let settings = Settings { explore: Options::default(), drop: None, only: None, grain: finest };
    for scenario in scenarios_below(3_000) {
        let report = check(&scenario, &settings, &|_| ());
        assert_eq!(report.unexpected, Vec::<String>::new(), "{}", scenario.name);
    }
}
