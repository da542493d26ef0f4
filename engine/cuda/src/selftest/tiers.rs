//! Copies between tiers and between engines, as the platform makes them.

use std::ops::Range;

use kvweft_core::Tier;
use kvweft_shell::platform::{Cell, Move, Queued};

use super::lab::{Fault, Lab, Random, ensure, equal};
use crate::calibrate::CopyPlan;
use crate::error::CudaError;
use crate::platform::{Copied, CopyBy, Cuda, Pages, Queue, Setup};

/// Pages of each pool.
const COUNT: usize = 64;
/// Words of a page of fp8 index keys.
const WORDS: usize = 8448 / 8;

/// This GPU twice, as two that do not reach each other's memory.
pub(super) fn open(lab: &Lab) -> Result<(), CudaError> {
    let ordinal = lab.gpu.info().ordinal;
    Cuda::open(&[ordinal, ordinal], Setup { copy_by: CopyBy::Ring, through_host: true })?;
    Ok(())
}

/// A page of the first pool, and where it goes in the second one: a run of twenty, one of eight, pages that go up on one side
/// and down on the other, and single ones.
fn pairs() -> Vec<(usize, usize)> {
    let long = (0..20).map(|at| (at, at + 10));
    let crossed = (20..40).map(|at| (at, 69 - at));
    let short = (40..48).map(|at| (at, at + 12));
    long.chain(crossed).chain(short).chain([(50, 63), (52, 61), (63, 0)]).collect()
}

/// The same bytes land whoever copies, as a whole and in halves behind gates.
pub(super) fn both_paths(lab: &Lab) -> Result<String, Fault> {
    open(lab)?;
    let pool = |tier| Pages::pool(0, tier, WORDS, COUNT);
    let (host, device, back) = (pool(Tier::HOST), pool(Tier::DEVICE), pool(Tier::HOST));
    let contents = fill(&host, 31);
    let long = CopyPlan::with_engine_from(10 * WORDS as u64 * 8);
    // Pages that the copy engine is to copy, in how many runs.
    for (plan, runs, pages) in [(CopyPlan::RING, 0, 0), (CopyPlan::ENGINE, 25, 51), (long, 1, 20)] {
        for held in [false, true] {
            for pool in [&device, &back] {
                Pages::store_all(&pool.iter().map(|page| (page, 0, vec![u64::MAX; WORDS])).collect::<Vec<_>>());
            }
            let before = Copied::so_far();
            queue(&moves(&host, &device, pairs()), plan, held)?;
            let after = Copied::so_far();
            if !held {
                let made = (after.engine_runs - before.engine_runs, after.engine_pages - before.engine_pages);
                ensure!(made == (runs, pages), "expected {pages} pages in {runs} runs, got (runs, pages) {made:?}");
            }
            queue(&moves(&device, &back, pairs().into_iter().map(|(_, to)| (to, to))), plan, held)?;
            for (what, pool) in [("on the device", &device), ("back on the host", &back)] {
                let mut expected = vec![vec![u64::MAX; WORDS]; COUNT];
                pairs().into_iter().for_each(|(from, to)| expected[to].clone_from(&contents[from]));
                equal(&format!("{plan:?}, held {held}, pages {what}"), &read(pool, 0..WORDS), &expected)?;
            }
        }
    }
    Ok("51 pages there and back: ring kernel, copy engine, both; with gates and without".to_owned())
}

/// Pages of one engine come to another one whose GPU cannot be reached.
pub(super) fn through_host(lab: &Lab) -> Result<String, Fault> {
    open(lab)?;
    ensure!(!Cuda::peers(), "GPUs address each other's memory although bytes are to go through the host");
    let (ours, theirs) = (Pages::pool(0, Tier::DEVICE, WORDS, COUNT), Pages::pool(1, Tier::DEVICE, WORDS, COUNT));
    let contents = fill(&ours, 32);
    // Whole vectors, and what begins and ends between two.
    for words in [0..WORDS, 1..WORDS - 2] {
        Pages::store_all(&theirs.iter().map(|page| (page, 0, vec![u64::MAX; WORDS])).collect::<Vec<_>>());
        let moves: Vec<Move<'_, Pages>> =
            pairs().into_iter().map(|(from, to)| (&ours[from], &theirs[to], words.clone())).collect();
        Pages::copy_all(&moves);
        let mut expected = vec![vec![u64::MAX; WORDS]; COUNT];
        pairs().into_iter().for_each(|(from, to)| {
            expected[to][words.clone()].copy_from_slice(&contents[from][words.clone()]);
        });
        equal("pages of the other engine", &read(&theirs, 0..WORDS), &expected)?;
    }
    Ok("51 pages of one engine in the pool of another one, whole and in part".to_owned())
}

fn fill(pool: &[Pages], seed: u64) -> Vec<Vec<u64>> {
    let random = Random::new(seed);
    let contents: Vec<Vec<u64>> = pool.iter().map(|_| (0..WORDS).map(|_| random.next()).collect()).collect();
    let parts: Vec<_> = pool.iter().zip(&contents).map(|(page, words)| (page, 0, words.clone())).collect();
    Pages::store_all(&parts);
    contents
}

fn read(pool: &[Pages], words: Range<usize>) -> Vec<Vec<u64>> {
    Pages::load_all(&pool.iter().map(|page| (page, words.clone())).collect::<Vec<_>>())
}

fn moves<'a>(
    from: &'a [Pages],
    to: &'a [Pages],
    pairs: impl IntoIterator<Item = (usize, usize)>,
) -> Vec<Move<'a, Pages>> {
    pairs.into_iter().map(|(source, target)| (&from[source], &to[target], 0..WORDS)).collect()
}

/// All of it at once, or one half behind the other with a gate before each.
fn queue(moves: &[Move<'_, Pages>], plan: CopyPlan, held: bool) -> Result<(), Fault> {
    let half = |begin: usize, end: usize| moves.iter().map(|(from, to, _)| (*from, *to, begin..end)).collect();
    let cut = WORDS / 4 * 2;
    let batches = if held { vec![half(0, cut), half(cut, WORDS)] } else { vec![moves.to_vec()] };
    let queue = Queue::new(&batches, held, Some(plan));
    let queue = queue.ok_or_else(|| Fault::Wrong("the platform does not take copies between tiers".to_owned()))?;
    (0..batches.len()).for_each(|batch| queue.settle(batch));
    Ok(())
}
