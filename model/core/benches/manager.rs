//! What one input costs the manager at real size: 100,000 device pages, 300,000 host pages, 80 sessions.
//!
//! `cargo bench -p kvweft-core`. An input is `handle`, every effect polled, every effect recycled. The first argument
//! that is a number is the number of ticks that are measured, the second the number before.
#![allow(missing_docs, unreachable_pub, reason = "a program")]

mod driver;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use driver::{Class, Driver, Probe, Sizes};
use kvweft_core::{BlockRef, Generation, Group, PageId, Tier};

/// Keeps the time of every input.
#[derive(Default)]
struct Clock {
    on: bool,
    costs: BTreeMap<Class, Vec<(u32, u64)>>,
}

impl Probe for Clock {
    type Mark = Option<Instant>;

    fn start(&mut self) -> Option<Instant> {
        self.on.then(Instant::now)
    }

    fn stop(&mut self, mark: Option<Instant>) -> u64 {
        mark.map_or(0, |mark| mark.elapsed().as_nanos() as u64)
    }

    fn record(&mut self, class: Class, n: u32, cost: u64) {
        if self.on {
            self.costs.entry(class).or_default().push((n, cost));
        }
    }
}

fn quantile(sorted: &[u64], per_mille: usize) -> u64 {
    sorted[(sorted.len() - 1) * per_mille / 1000]
}

/// Nanoseconds that an input of `n` may take, where the issue says so.
fn budget(class: Class, n: u32) -> Option<u64> {
    let n = u64::from(n);
    match class {
        Class::LayerReady => Some(300),
        Class::Reloaded | Class::Offloaded => Some(500 + 10 * n),
        Class::SubmitHit | Class::SubmitReload => Some(1_000 + 20 * n),
        _ => None,
    }
}

/// Rows are cut at these sizes.
const CUTS: [u32; 12] = [0, 2, 8, 16, 64, 128, 256, 512, 1_024, 1_536, 2_048, u32::MAX];

/// The time of copying `n` page references: what cannot be saved where an effect lists them.
fn copy_ns(n: u32) -> u64 {
    let page = BlockRef { group: Group(0), tier: Tier::DEVICE, page: PageId(7), generation: Generation(1) };
    let from = vec![page; n as usize];
    let mut to = Vec::with_capacity(n as usize);
    let mut times: Vec<u64> = (0..201)
        .map(|_| {
            let start = Instant::now();
            to.clear();
            to.extend_from_slice(black_box(&from));
            black_box(&to);
            start.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    quantile(&times, 500)
}

fn print_rows(clock: &Clock) {
    println!(
        "{:18} {:>6} {:>8} {:>9} {:>9} {:>9} {:>6} {:>10}",
        "input", "n", "inputs", "median ns", "p99 ns", "budget", "ratio", "copy of n"
    );
    for (class, costs) in &clock.costs {
        for cut in CUTS.windows(2).map(|w| (w[0], w[1])) {
            let within: Vec<(u32, u64)> = costs.iter().copied().filter(|&(n, _)| cut.0 <= n && n < cut.1).collect();
            if within.len() < 20 {
                continue;
            }
            let mut times: Vec<u64> = within.iter().map(|&(_, t)| t).collect();
            let mut sizes: Vec<u64> = within.iter().map(|&(n, _)| u64::from(n)).collect();
            times.sort_unstable();
            sizes.sort_unstable();
            let (n, median) = (quantile(&sizes, 500) as u32, quantile(&times, 500));
            let budget = budget(*class, n);
            println!(
                "{:18} {:>6} {:>8} {:>9} {:>9} {:>9} {:>6} {:>10}",
                format!("{class:?}"),
                n,
                within.len(),
                median,
                quantile(&times, 990),
                budget.map_or("-".into(), |b| b.to_string()),
                budget.map_or("-".into(), |b| format!("{:.2}", median as f64 / b as f64)),
                copy_ns(n),
            );
        }
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let measured = numbers.next().unwrap_or(40_000);
    let warm_up = numbers.next().unwrap_or(60_000);
    let mut driver = Driver::new(Sizes::REAL);
    let mut clock = Clock::default();
    for _ in 0..warm_up {
        driver.tick(&mut clock);
    }
    clock.on = true;
    let start = Instant::now();
    for _ in 0..measured {
        driver.tick(&mut clock);
    }
    let inputs: usize = clock.costs.values().map(Vec::len).sum();
    println!("{} ticks, {inputs} inputs measured in {:.1} s", measured, start.elapsed().as_secs_f64());
    println!("{:?}", Sizes::REAL);
    println!("{:?}\n", driver.manager.accounts());
    print_rows(&clock);
}
