//! What the shell costs: operations of the manager under one and more threads, copies against `memcpy`, and the event log.
//!
//! `cargo bench -p kvweft-shell`. Every ratio is of figures taken in this one run; times are the best of several.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use kvweft_core::{
    BlockHash, BlockRef, Component, Config, Dtype, Generation, Geometry, Group, LayerSet, MovedPart, PageId, RequestId,
    Role, Tier,
};
use kvweft_shell::lockstep::Lines;
use kvweft_shell::log::Sink;
use kvweft_shell::platform::Cell;
use kvweft_shell::pool::{Half, Pools, moved_words};
use kvweft_shell::recall::RecallModel;
use kvweft_shell::run::{Call, Workload, run};
use kvweft_shell::{Engine, Parts, Std, Submission, Words};
use kvweft_trace::event::Line;

const REPEATS: usize = 5;

fn main() {
    println!("manager operations: submit a prompt of 4 blocks, and abort it");
    operations();
    println!("\nhost copies: one pool to another, pages in scattered order");
    copies();
    println!("\nevent log: 16 sessions of 4 rounds with little room on the device");
    logs();
}

fn best(mut measured: impl FnMut() -> Duration) -> Duration {
    (0..REPEATS).map(|_| measured()).min().expect("at least one")
}

// ---- The lock

const OPERATIONS: u32 = 200_000;

fn operations() {
    let alone = rate(1);
    let seconds_alone = 1.0 / alone;
    for threads in [1, 2, 8] {
        let rate = if threads == 1 { alone } else { rate(threads) };
        // The lock is held for as long as an operation takes alone; more than all of the time is noise.
        let in_lock = (100.0 * rate * seconds_alone).min(100.0);
        println!(
            "  {threads} thread(s): {:>6.0} k operations/s, {:.2} of one thread, lock held {in_lock:.0} % of the time",
            rate / 1e3,
            rate / alone
        );
    }
}

/// Operations a second of all threads together.
fn rate(threads: u32) -> f64 {
    let each = OPERATIONS / threads / 2;
    let elapsed = best(|| {
        let geometry = Geometry::uniform(2, 64, Some(Dtype::Fp8));
        let model = Arc::new(Arc::new(RecallModel::new(&geometry, 1, 0).expect("it is served")));
        let engine: Engine<Std, Arc<RecallModel>> =
            Engine::new(Config::new(Role::Together, geometry, 64, 0), Parts::new(model));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let engine = &engine;
                scope.spawn(move || {
                    let blocks = (0..4).map(|block| BlockHash(u128::from(thread) << 64 | block)).collect();
                    let submission = Submission {
                        request: RequestId(thread),
                        room: None,
                        prompt: vec![0; 4 * 64],
                        blocks,
                        forced: None,
                        output_tokens: 8,
                        priority: 0,
                    };
                    for _ in 0..each {
                        // The one whose step was launched drains for ever, since nobody runs it, and is refused.
                        black_box(engine.submit(&submission).is_ok());
                        black_box(engine.abort(submission.request).is_ok());
                    }
                });
            }
        });
        began.elapsed()
    });
    f64::from(each * threads * 2) / elapsed.as_secs_f64()
}

// ---- Copies

fn copies() {
    let pages: u32 = 512;
    let geometry = Geometry::uniform(1, 64, Some(Dtype::Bf16));
    let pools: Pools<Words> = Pools::new(&Config::new(Role::Together, geometry.clone(), pages, pages));
    for (name, component) in [("kv, 41,984 bytes", Component::Kv), ("index-k, 16,384 bytes", Component::IndexK)] {
        let layout = geometry.layout(0, component).expect("the layer has it");
        let unit = pools.unit(0, component).expect("the layer has it");
        let moved = MovedPart { component, layers: LayerSet::first(1), from: layout, moved: layout, to: layout };
        let bytes = layout.page_bytes() as usize;
        // Any odd factor visits every page once.
        let order: Vec<(u32, u32)> = (0..pages).map(|at| (at * 181 % pages, at * 77 % pages)).collect();
        let block = |tier, page| BlockRef { group: Group(0), tier, page: PageId(page), generation: Generation(0) };
        let ours = best(|| {
            let began = Instant::now();
            for &(from, to) in &order {
                let (from, to) = (block(Tier::HOST, from), block(Tier::DEVICE, to));
                for half in [Half::First, Half::Second] {
                    let (from, to) = (pools.cell_of(from, unit), pools.cell_of(to, unit));
                    to.copy_from(from, moved_words(from, to, &moved, half));
                }
            }
            began.elapsed()
        });
        let (source, mut target) = (vec![1u8; bytes * pages as usize], vec![2u8; bytes * pages as usize]);
        let memcpy = best(|| {
            let began = Instant::now();
            for &(from, to) in &order {
                let (from, to) = (from as usize * bytes, to as usize * bytes);
                target[to..to + bytes].copy_from_slice(black_box(&source[from..from + bytes]));
            }
            black_box(&mut target);
            began.elapsed()
        });
        let rate = |elapsed: Duration| (bytes * pages as usize) as f64 / elapsed.as_secs_f64() / 1e9;
        println!(
            "  {name}: {:.1} GB/s, memcpy {:.1} GB/s, {:.0} %",
            rate(ours),
            rate(memcpy),
            100.0 * rate(ours) / rate(memcpy)
        );
    }
}

// ---- The log

/// Writes lines as a file would be written, and keeps none.
struct Text(u64);

impl Sink for Text {
    fn line(&mut self, line: Line) {
        self.0 += line.to_json().len() as u64;
    }
}

fn logs() {
    let mut workload = Workload::new(16, 4, Geometry::uniform(2, 64, Some(Dtype::Bf16)));
    workload.device_pages = workload.pages_peak() * 2 / 5;
    let play = |log: Option<Box<dyn Sink>>| {
        let call = Call {
            name: "bench".to_owned(),
            tool: "bench".to_owned(),
            log,
            interrupted: &AtomicBool::new(false),
            progress: &mut |_| {},
        };
        let report = run::<Std>(&workload, call).expect("the run ends well");
        assert_eq!(report.sessions.ok, workload.sessions);
        Duration::from_micros(report.elapsed_us)
    };
    let off = (0..3).map(|_| play(None)).min().expect("three");
    let kept = (0..3).map(|_| play(Some(Box::new(Lines::default())))).min().expect("three");
    let text = (0..3).map(|_| play(Some(Box::new(Text(0))))).min().expect("three");
    let times = |elapsed: Duration| elapsed.as_secs_f64() / off.as_secs_f64();
    println!(
        "  off {:.2} s; kept in memory {:.2} times as long; as text {:.2} times",
        off.as_secs_f64(),
        times(kept),
        times(text)
    );
}
