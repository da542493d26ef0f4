//! At real size, in steady state, no input allocates: neither `handle`, nor draining its effects, nor giving them back.
#![allow(unsafe_code, reason = "an allocator that counts can be written no other way")]
#![allow(unreachable_pub, reason = "the driver is shared with the benchmark")]

#[path = "../benches/driver/mod.rs"]
mod driver;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use driver::{Class, Driver, Probe, Sizes};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator; counts what each thread asks for.
struct Counting;

// SAFETY: every call goes to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Counts inputs and allocations by class.
#[derive(Debug, Default)]
struct Count {
    by_class: BTreeMap<Class, (u64, u64)>,
}

impl Probe for Count {
    type Mark = u64;

    fn start(&mut self) -> u64 {
        ALLOCATIONS.get()
    }

    fn stop(&mut self, mark: u64) -> u64 {
        ALLOCATIONS.get() - mark
    }

    fn record(&mut self, class: Class, _n: u32, allocations: u64) {
        let entry = self.by_class.entry(class).or_default();
        entry.0 += 1;
        entry.1 += allocations;
    }
}

#[test]
fn no_input_allocates_in_steady_state() {
    let mut driver = Driver::new(Sizes::REAL);
    // The host tier is full after 60,000 ticks; after twice that every size of list has seen its high tide. A higher one
    // may come much later; then the lists of one size grow by a quarter, once.
    let mut warm_up = Count::default();
    for _ in 0..120_000 {
        driver.tick(&mut warm_up);
    }
    let mut steady = Count::default();
    for _ in 0..40_000 {
        driver.tick(&mut steady);
    }
    let inputs: u64 = steady.by_class.values().map(|&(inputs, _)| inputs).sum();
    let allocating: Vec<_> = steady.by_class.iter().filter(|(_, (_, allocations))| *allocations > 0).collect();
    assert!(inputs > 300_000 && steady.by_class.len() >= 10, "the mix has dried up: {:?}", steady.by_class);
    assert!(allocating.is_empty(), "class: (inputs, allocations) {allocating:?}");
}
