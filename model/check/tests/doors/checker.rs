//! The builder on a system whose every answer is known.

use kvweft_check::builder::{Checked, Checker};
use kvweft_check::explore::{Limit, Options, Verdict};
use kvweft_check::system::{Class, Found, System, encode_hash};

/// A lift: called by the outside world, it goes up floor by floor; a broken one turns back for ever.
#[derive(Clone, Copy)]
pub(crate) struct Lift {
    pub(crate) floors: u8,
    pub(crate) turns_back_at: Option<u8>,
    pub(crate) stops_at: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cabin {
    floor: u8,
    called: bool,
}

impl System for Lift {
    type State = Cabin;
    type Action = &'static str;

    fn initial(&self) -> Vec<Cabin> {
        vec![Cabin { floor: 0, called: false }]
    }

    fn enabled(&self, cabin: &Cabin, out: &mut Vec<&'static str>) {
        if !cabin.called {
            out.push("guest calls");
        } else if Some(cabin.floor) == self.turns_back_at {
            out.push("lift goes down");
        } else if cabin.floor < self.floors && Some(cabin.floor) != self.stops_at {
            out.push("lift goes up");
        }
    }

    fn step(&self, cabin: &mut Cabin, action: &&'static str, _: &mut Found) {
        match *action {
            "guest calls" => cabin.called = true,
            "lift goes down" => cabin.floor -= 1,
            _ => cabin.floor += 1,
        }
    }

    fn class(&self, _: &Cabin, action: &&'static str) -> Class {
        if *action == "guest calls" { Class::Environment } else { Class::System }
    }

    fn done(&self, cabin: &Cabin) -> bool {
        !cabin.called || cabin.floor == self.floors
    }

    fn encode(&self, cabin: &Cabin, out: &mut Vec<u8>) {
        encode_hash(cabin, out);
    }
}

pub(crate) const WHOLE: Lift = Lift { floors: 3, turns_back_at: None, stops_at: None };

pub(crate) fn asked(lift: Lift) -> Checker<Lift> {
    Checker::new(lift)
        .named("lift")
        .kept_in("nowhere")
        .always("below-the-roof", |cabin| cabin.floor <= 3)
        .sometimes("at-the-top", |cabin| cabin.floor == 3)
        .leads_to("a-call-is-answered", |cabin| cabin.called && cabin.floor < 3, |cabin| cabin.floor == 3)
}

fn steps(checked: &Checked, property: &str) -> Vec<String> {
    let failure = checked.failures.iter().find(|failure| failure.property == property);
    let failure = failure.unwrap_or_else(|| panic!("{property} is not broken:\n{}", checked.report()));
    failure
        .file
        .steps
        .iter()
        .map(|step| format!("{}{}", step.action, if step.mark.is_empty() { "" } else { "!" }))
        .collect()
}

#[test]
fn a_system_that_keeps_everything_holds() {
    let checked = asked(WHOLE).check();
    assert!(checked.holds(), "{}", checked.report());
    checked.assert_holds();
    let covers =
        "every interleaving: 5 states, 4 steps deep; liveness judged; probability that a state was missed < 2^-123";
    assert_eq!(checked.coverage, covers);
}

#[test]
fn a_state_that_breaks_always_is_reached_by_the_shortest_way_and_at_the_start_by_none() {
    let checked = asked(Lift { floors: 5, ..WHOLE }).check();
    assert_eq!(checked.verdict, Verdict::Violated);
    let up = "goes up";
    assert_eq!(steps(&checked, "below-the-roof"), ["calls", up, up, up, "goes up!"]);
    let never =
        Checker::new(WHOLE).named("lift").kept_in("nowhere").always("not-at-the-ground", |cabin| cabin.floor > 0);
    let checked = never.check();
    assert_eq!(steps(&checked, "not-at-the-ground"), Vec::<String>::new());
    assert!(checked.report().starts_with("lift violates not-at-the-ground\n"), "{}", checked.report());
}

#[test]
fn a_goal_is_missed_by_standing_still_and_by_going_round() {
    let stuck = asked(Lift { stops_at: Some(1), ..WHOLE }).check();
    assert_eq!(steps(&stuck, "a-call-is-answered"), ["calls!", "goes up"]);
    assert_eq!(stuck.unreached, ["at-the-top"]);
    let round = asked(Lift { turns_back_at: Some(1), ..WHOLE }).check();
    assert_eq!(steps(&round, "a-call-is-answered"), ["calls!", "goes up!", "goes down"]);
    assert!(round.report().contains("repeats for ever"), "{}", round.report());
}

#[test]
fn what_never_happens_is_told_where_it_should() {
    let checked = asked(WHOLE).sometimes("on-the-moon", |cabin| cabin.floor == 200).check();
    assert_eq!((checked.verdict, checked.holds()), (Verdict::Holds, false));
    assert!(checked.report().contains("`on-the-moon` is expected of some state, and true of none"));
}

#[test]
fn a_search_that_gives_up_claims_nothing() {
    let checked = asked(WHOLE).options(Options { states_max: 3, ..Options::default() }).check();
    assert_eq!(checked.verdict, Verdict::Inconclusive { ran_out_of: Limit::States });
    assert!(!checked.holds());
    assert_eq!(checked.unreached, Vec::<&str>::new());
    assert!(checked.report().contains("not every interleaving"), "{}", checked.report());
}

#[test]
fn an_end_that_is_no_good_end_is_a_deadlock() {
    let checked = asked(WHOLE).done(|cabin| cabin.floor == 2).check();
    assert_eq!(checked.verdict, Verdict::Violated);
    assert_eq!(checked.failures[0].property, "no-deadlock");
}

#[test]
fn a_search_for_a_goal_that_gives_up_claims_nothing() {
    // Three states in all; a fourth where the goal is owed, which the limit cuts off.
    let round = Lift { turns_back_at: Some(1), ..WHOLE };
    let checked = Checker::new(round)
        .named("lift")
        .kept_in("nowhere")
        .done(|_| true)
        .leads_to("goes-on-up", |cabin| cabin.floor == 1, |cabin| cabin.floor == 2)
        .options(Options { states_max: 3, ..Options::default() })
        .check();
    assert_eq!(checked.verdict, Verdict::Inconclusive { ran_out_of: Limit::States });
    assert!(!checked.holds());
}
