//! How many cases, from which seed, and how a failure is shown.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

use crate::operation::Case;
use crate::shadow::Checked;

/// The settings of a run: `cases` of a fixed seed, so that two runs of the suite judge the same. `PROPTEST_CASES` asks for
/// another number of cases, `PROPTEST_RNG_SEED` for another seed.
pub fn settings(cases: u32) -> Config {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    Config {
        cases: asked("PROPTEST_CASES").map_or(cases, |asked| asked as u32),
        rng_seed: RngSeed::Fixed(asked("PROPTEST_RNG_SEED").unwrap_or(1)),
        failure_persistence: None,
        max_shrink_iters: 40_000,
        ..Config::default()
    }
}

/// Judges cases of a strategy; panics with the shortest list of operations that fails.
///
/// # Panics
/// If a case fails.
pub fn judge(cases: u32, strategy: &impl Strategy<Value = Case>, test: impl Fn(&Case) -> Checked) {
    let mut runner = TestRunner::new(settings(cases));
    let outcome = runner.run(strategy, |case| test(&case).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => panic!("{why}\n{case:?}"),
        Err(TestError::Abort(why)) => panic!("gave up: {why}"),
    }
}

/// The first of `cases` cases of a strategy that shows what is looked for, and what it shows.
pub fn find<T>(
    cases: u32,
    strategy: &impl Strategy<Value = Case>,
    shows: impl Fn(&Case) -> Option<T>,
) -> Option<(u32, T)> {
    let mut runner = TestRunner::new(settings(cases));
    (0..cases).find_map(|at| {
        let tree = strategy.new_tree(&mut runner).expect("no case is rejected");
        Some((at, shows(&tree.current())?))
    })
}
