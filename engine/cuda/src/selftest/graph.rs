//! Work that is recorded once and then replayed, so that the cost of launching is not in its time.
#![allow(unsafe_code)]

use cudarc::driver::sys;

use super::lab::Fault;
use crate::driver::call;
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::stream::Stream;

/// Launches in their order, ready to be replayed on a stream of the device.
pub(super) struct Graph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

impl Graph {
    /// Records what `work` puts into the stream, without running it. Memory that it names must outlive the graph.
    pub(super) fn record(
        gpu: &Gpu,
        stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), Fault>,
    ) -> Result<Graph, Fault> {
        gpu.bind()?;
        let handle = stream.raw().handle();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives and belongs to the current context.
        unsafe { call!(cuStreamBeginCapture_v2(handle, mode))? };
        let worked = work();
        let mut graph = Graph { graph: core::ptr::null_mut(), executable: core::ptr::null_mut() };
        // SAFETY: recording began above, and must end whatever happened since.
        unsafe { call!(cuStreamEndCapture(handle, &mut graph.graph))? };
        worked?;
        // SAFETY: the graph was recorded above.
        unsafe { call!(cuGraphInstantiateWithFlags(&mut graph.executable, graph.graph, 0))? };
        Ok(graph)
    }

    /// Replays it once, in the order of the stream.
    pub(super) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live, and the maker of the graph vouched for its memory.
        unsafe { call!(cuGraphLaunch(self.executable, stream.raw().handle())) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the driver keeps what still runs. Errors have nobody to hear them.
        unsafe {
            if !self.executable.is_null() {
                let _ = sys::cuGraphExecDestroy(self.executable);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}
