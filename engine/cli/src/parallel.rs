//! The same work on many things, on all cores.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many threads the machine runs at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does the work on each thing, on so many threads or on one a core; results in the order of the things.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    things: &[T],
    threads: Option<NonZeroU16>,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.map_or_else(cores, |threads| usize::from(threads.get())).min(things.len());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(thing) = things.get(at) else { return };
                    let result = work(thing);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_things_at_any_number_of_threads() {
        let things: Vec<u64> = (0..100).collect();
        let squares: Vec<u64> = things.iter().map(|n| n * n).collect();
        for threads in [1, 3, 64] {
            assert_eq!(in_parallel(&things, NonZeroU16::new(threads), |n| n * n), squares);
        }
        assert!(in_parallel(&[], None, |n: &u64| *n).is_empty());
    }

    #[test]
    fn a_thing_that_takes_long_keeps_its_place() {
        let second_is_done = std::sync::atomic::AtomicBool::new(false);
        let work = |n: &u32| {
            while *n == 1 && !second_is_done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            second_is_done.store(true, Ordering::Release);
            *n
        };
        assert_eq!(in_parallel(&[1, 2], NonZeroU16::new(2), work), [1, 2]);
    }
}
