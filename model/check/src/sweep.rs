//! Many small checks, split into numbered shards whose results add up to the same whatever ran where.

use kvweft_core::{RuleSet, RuleSite};

use crate::bounded::{Bound, bounded};
use crate::build::{dropped, scenario_drops};
use crate::explore::Verdict;
use crate::scenario::Scenario;
use crate::verdict::{Run, Settings};
use crate::walk::Walks;

/// Which rules are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drops {
    /// Those that each scenario drops.
    AsWritten,
    /// First none, then each rule at each of its sites alone.
    Each,
    /// Each of these alone, as `rule` or `rule@site`.
    Listed(Vec<String>),
}

/// Everything that is checked: every scenario with every choice of rules and, if it is walked, with every seed.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
    /// The choices of rules.
    pub drops: Drops,
    /// How to search, or to walk. Its own choice of rules is not looked at.
    pub settings: Settings,
    /// What to walk in place of a search; the seed is the first.
    pub walks: Option<Walks>,
    /// How many seeds; 1 for a search.
    pub seeds: u64,
}

/// One check of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its number, from 0: scenarios first, then rules, then seeds.
    pub number: u64,
    /// The scenario's name.
    pub scenario: String,
    /// The rules dropped.
    pub drops: Vec<String>,
    /// The seed, if it was walked.
    pub seed: Option<u64>,
    /// What came of it. Walks that found nothing are inconclusive.
    pub answer: Answer,
    /// The properties broken, by name.
    pub violates: Vec<String>,
    /// Distinct states.
    pub states: u64,
    /// Steps taken.
    pub steps: u64,
    /// Whether it breaks something with every rule on, or other than its file expects.
    pub unexpected: bool,
}

/// What came of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything holds, in every interleaving.
    Holds,
    /// Something is broken.
    Violated,
    /// A limit came first, or walks found nothing.
    Inconclusive,
}

/// One of several parts: the cells whose number is `index` modulo `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: u64,
    /// How many there are.
    pub count: u64,
}

impl Sweep {
    /// How many cells there are.
    pub fn cells(&self) -> u64 {
        self.choices().len() as u64 * self.seeds * self.scenarios.len() as u64
    }

    /// Checks the cells of a shard, in order.
    ///
    /// # Panics
    /// If a listed rule does not exist: look them up first.
    pub fn run(&self, shard: Shard, done: &mut dyn FnMut(Cell)) {
        let choices = self.choices();
        let per_scenario = choices.len() as u64 * self.seeds;
        for number in (shard.index..self.cells()).step_by(shard.count as usize) {
            let scenario = &self.scenarios[(number / per_scenario) as usize];
            let choice = &choices[(number % per_scenario / self.seeds) as usize];
            done(self.cell(number, scenario, choice.as_ref(), number % self.seeds));
        }
    }

    /// `None` stands for the scenario's own rules.
    fn choices(&self) -> Vec<Option<Vec<String>>> {
        match &self.drops {
            Drops::AsWritten => vec![None],
            Drops::Each => {
                let each = RuleSite::all().map(|site| Some(vec![site.to_string()]));
                std::iter::once(Some(Vec::new())).chain(each).collect()
            }
            Drops::Listed(rules) => rules.iter().map(|rule| Some(vec![rule.clone()])).collect(),
        }
    }

    fn cell(&self, number: u64, scenario: &Scenario, choice: Option<&Vec<String>>, seed: u64) -> Cell {
        let own = || scenario.drop.iter().map(ToString::to_string).collect();
        let drops: Vec<String> = choice.cloned().unwrap_or_else(own);
        let set: RuleSet = match choice {
            Some(rules) => dropped(rules.iter().map(String::as_str)).expect("the rules exist"),
            None => scenario_drops(scenario),
        };
        let settings = Settings { drop: Some((drops.clone(), set)), ..self.settings.clone() };
        let seed = self.walks.map(|walks| walks.seed.wrapping_add(seed));
        let (answer, violates, states, steps) = match self.walks.zip(seed) {
            Some((walks, seed)) => {
                let found = bounded(scenario, &settings, Bound::Walks(Walks { seed, ..walks }), &|_| ());
                let violates: Vec<String> = found.causes.into_iter().map(|cause| cause.file.violates).collect();
                let answer = if violates.is_empty() { Answer::Inconclusive } else { Answer::Violated };
                (answer, violates, found.states, found.steps)
            }
            None => {
                let outcome = Run { scenario, settings: &settings, progress: &|_| () }.explore(set);
                let answer = match outcome.verdict {
                    Verdict::Holds => Answer::Holds,
                    Verdict::Violated => Answer::Violated,
                    Verdict::Inconclusive { .. } => Answer::Inconclusive,
                };
                let violates = outcome.traces.iter().map(|trace| trace.violation.property.to_owned()).collect();
                (answer, violates, outcome.counts.states, outcome.counts.transitions)
            }
        };
        let expected = |property: &String| match (choice, &scenario.expect) {
            (Some(_), _) => !set.is_empty(),
            (None, Some(expect)) => expect.violates.contains(property),
            (None, None) => !set.is_empty(),
        };
        let unexpected = !violates.iter().all(expected);
        Cell { number, scenario: scenario.name.clone(), drops, seed, answer, violates, states, steps, unexpected }
    }
}
