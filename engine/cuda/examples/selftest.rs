//! Runs the self-test of a GPU, prints it, and writes it as JSON:
//! `cargo run --release -p kvweft-cuda --example selftest -- [JSON] [GPU] [GiB of device memory] [checks]`.
//! With `checks`, it measures nothing, as is best under `compute-sanitizer`.
//!
//! Ends with 0 if nothing failed, 1 if something did, and 2 if there is no GPU to test.

use std::process::ExitCode;

use kvweft_cuda::Gpu;
use kvweft_cuda::selftest::{Part, selftest};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (Ok(ordinal), Ok(gib)) = (number(1, 0), number(2, 6)) else {
        eprintln!("usage: selftest [JSON] [GPU] [GiB of device memory] [checks]");
        return ExitCode::from(2);
    };
    let gpu = match Gpu::open(ordinal as usize) {
        Ok(gpu) => gpu,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let info = gpu.info();
    println!(
        "GPU {}: {}, {}, kernels {}, driver {}, {} multiprocessors",
        info.ordinal, info.name, info.architecture, info.kernels, info.driver_version, info.multiprocessors
    );
    let part = if arguments.get(3).is_some_and(|text| text == "checks") { Part::Checks } else { Part::All };
    let report = selftest(&gpu, part, "", gib << 30, &mut |check| println!("{check}"));
    for measurement in &report.measurements {
        println!("{measurement}");
    }
    if let Some(path) = arguments.first() {
        let text = serde_json::to_string_pretty(&report).expect("a report has no maps with odd keys");
        if let Err(error) = std::fs::write(path, text + "\n") {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    }
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
