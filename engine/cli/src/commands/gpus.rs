//! The GPUs that `--on cuda` opens.

use kvweft_cuda::{Copied, CopyBy, Cuda, Setup};

use crate::args;
use crate::failure::Failure;
use crate::output;

/// Opens GPUs, and says what was found out about their copies.
pub(super) fn open(ordinals: &[usize], copy_by: args::CopyBy, peer: args::Peer) -> Result<(), Failure> {
    let copy_by = match copy_by {
        args::CopyBy::Auto => CopyBy::Auto,
        args::CopyBy::Ring => CopyBy::Ring,
        args::CopyBy::Engine => CopyBy::Engine,
    };
    let through_host = peer == args::Peer::ThroughHost;
    Cuda::open(ordinals, Setup { copy_by, through_host }).map_err(Failure::Gpu)?;
    for (gpu, calibration) in Cuda::calibrations() {
        output::note(&format!("GPU {} copies {calibration}", gpu.info().ordinal));
    }
    if let [prefill, decode] = ordinals {
        let way = match (Cuda::peers(), through_host) {
            (true, _) => "directly",
            (false, true) => "through the host, as asked",
            (false, false) => "through the host: no peer access",
        };
        output::note(&format!("prefill on GPU {prefill}, decode on GPU {decode}; bytes go {way}"));
    }
    Ok(())
}

/// Says who has copied.
pub(super) fn say_copied() {
    let Copied { engine_runs, engine_pages, ring_pages } = Copied::so_far();
    output::note(&format!(
        "reloads and offloads: {engine_pages} pages in {engine_runs} runs by the copy engine, {ring_pages} by the ring kernel"
    ));
}
