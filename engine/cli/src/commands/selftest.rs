//! `kvweft selftest`.

use std::process::ExitCode;

use kvweft_cuda::Gpu;
use kvweft_cuda::selftest::{Part, Report, selftest};

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::output;

/// Runs the command.
pub(crate) fn run(args: &args::Selftest) -> Result<ExitCode, Failure> {
    let args::SelftestOn::Cuda = args.on;
    let gpu = Gpu::open(args.device).map_err(Failure::Gpu)?;
    let text = args.format == Format::Text;
    if text {
        output::result(&header(&gpu))?;
    }
    // What cannot be written any more is noticed with the next line that counts.
    let mut seen = |check: &kvweft_cuda::selftest::Check| {
        if text {
            let _ = output::result(&format!("{check}\n"));
        }
    };
    let part = match (args.small, args.checks_only) {
        (true, _) => Part::Small,
        (false, true) => Part::Checks,
        (false, false) => Part::All,
    };
    let report = selftest(&gpu, part, &args.only, args.max_device_memory, &mut seen);
    let document = json(&report);
    if text {
        let faults = report.faults.iter().map(|fault| format!("{fault}\n"));
        let lines: String =
            faults.chain(report.measurements.iter().map(|measurement| format!("{measurement}\n"))).collect();
        output::result(&lines)?;
    } else {
        output::result(&document)?;
    }
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the folder", &error))?;
        let path = folder.join("selftest.json");
        output::to_file(&path, "the report", &document)?;
        output::note(&format!("the report is in {}", path.display()));
    }
    Ok(ExitCode::from(u8::from(!report.passed())))
}

/// One line on a GPU.
pub(super) fn header(gpu: &Gpu) -> String {
    let info = gpu.info();
    format!(
        "GPU {}: {}, {}, kernels {}, driver {}, {} multiprocessors\n",
        info.ordinal, info.name, info.architecture, info.kernels, info.driver_version, info.multiprocessors
    )
}

fn json(report: &Report) -> String {
    let document = serde_json::json!({
        "format": "kvweft-selftest",
        "version": 1,
        "gpu": report.gpu,
        "checks": report.checks,
        "faults": report.faults,
        "measurements": report.measurements,
        "calibration": report.calibration,
        "passed": report.passed(),
    });
    serde_json::to_string_pretty(&document).expect("it has no keys but texts") + "\n"
}
