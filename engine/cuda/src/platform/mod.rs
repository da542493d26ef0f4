//! The shell's platform with the page memory of GPUs: device pages in their memory, host pages in pinned memory.
//!
//! Threads and locks are those of the host. What a thread does with pages are launches on a stream of its own, and it waits
//! for their results. A copy between tiers is handed over as a whole, on a stream of its own: layers become events, which
//! other streams wait for, and gates become waits of the stream for a word of the host.
//!
//! | file | what it holds |
//! |---|---|
//! | `pages` | cells in pools, and how they are read, written and copied |
//! | `desk` | the stream and the scratch memory of a thread |
//! | `queue` | copies that the device has in its order: by the copy engine and by the ring kernel |
//! | `runs` | which of many copies lie side by side |
//! | `search`, `add` | scores and selections, and sums of rows, over pools |
//! | `table` | pages as kernels number them |

mod add;
mod desk;
mod pages;
mod queue;
mod runs;
mod search;
mod table;

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use kvweft_shell::platform::{Guard, Move};
use kvweft_shell::{Platform, Std};

use crate::calibrate::{Calibration, CopyPlan};
use crate::error::CudaError;
use crate::gpu::Gpu;
use desk::Desk;
use queue::Lane;

pub use pages::Pages;
pub use queue::{Copied, Mark, Queue};

/// The platform of real threads with the memory of GPUs.
#[derive(Debug)]
pub struct Cuda;

/// Who makes the copies of reloads and offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CopyBy {
    /// For each run of contiguous pages, who was faster when that was measured, at the start.
    #[default]
    Auto,
    /// The ring kernel.
    Ring,
    /// The copy engine, run by run.
    Engine,
}

/// How the GPUs of a process work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Setup {
    /// Who copies between the tiers.
    pub copy_by: CopyBy,
    /// Bytes between GPUs go through the host, also where these address each other's memory.
    pub through_host: bool,
}

/// The GPUs of this process, and what threads have given back.
struct Home {
    gpus: Vec<Gpu>,
    /// For each GPU.
    calibrations: Vec<Option<Calibration>>,
    plans: Vec<CopyPlan>,
    /// Whether every GPU addresses the memory of every other one.
    peers: bool,
    /// For each GPU.
    desks: Vec<Mutex<Vec<Desk>>>,
    lanes: Vec<Mutex<Vec<Lane>>>,
}

static HOME: OnceLock<Home> = OnceLock::new();

fn home() -> &'static Home {
    HOME.get().expect("`Cuda::open` comes before the first cell")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver has refused what it had accepted before: there is nothing to go on with.
fn working<T, E: Into<CudaError>>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("the GPU stopped working: {}", error.into()))
}

/// Bytes of a page of fp8 index keys, the most frequent of small pages.
pub(crate) const CALIBRATED_PAGE: u64 = 8448;

/// Desks and lanes that are made at the start: enough for the threads of two engines, so that none is made while a gate
/// holds the device, because an allocation may wait for it.
const READY_DESKS: usize = 12;
const READY_LANES: usize = 4;

impl Cuda {
    /// Opens the GPUs that all engines of this process use: the first one for a single engine or for prefill, the last one
    /// for decode. Where there are several, each is let into the memory of the others if that is possible; else bytes
    /// between them go through the host. One GPU may be named twice, as two with one memory. To be called before there are
    /// threads that read the environment. A second call changes nothing.
    ///
    /// # Errors
    /// What is missing; or [`CudaError`] of the driver.
    ///
    /// # Panics
    /// If no GPU is named.
    pub fn open(ordinals: &[usize], setup: Setup) -> Result<&'static [Gpu], CudaError> {
        assert!(!ordinals.is_empty(), "at least one GPU");
        separate_streams();
        if HOME.get().is_none() {
            let gpus: Vec<Gpu> = ordinals.iter().map(|ordinal| Gpu::open(*ordinal)).collect::<Result<_, _>>()?;
            let peers = !setup.through_host && let_in(&gpus);
            let measured = |gpu| match setup.copy_by {
                CopyBy::Auto => Calibration::measure(gpu, CALIBRATED_PAGE).map(Some),
                CopyBy::Ring | CopyBy::Engine => Ok(None),
            };
            let calibrations: Vec<_> = gpus.iter().map(measured).collect::<Result<_, _>>()?;
            let fixed = if setup.copy_by == CopyBy::Engine { CopyPlan::ENGINE } else { CopyPlan::RING };
            let plan = |measured: &Option<Calibration>| measured.as_ref().map_or(fixed, CopyPlan::fastest);
            let plans = calibrations.iter().map(plan).collect();
            let (mut desks, mut lanes) = (Vec::new(), Vec::new());
            for gpu in &gpus {
                let ready: Vec<Desk> = (0..READY_DESKS).map(|_| Desk::new(gpu)).collect::<Result<_, _>>()?;
                desks.push(Mutex::new(ready));
                let ready: Vec<Lane> = (0..READY_LANES).map(|_| Lane::new(gpu)).collect::<Result<_, _>>()?;
                lanes.push(Mutex::new(ready));
            }
            // Another thread may have been first; then its GPUs stay.
            let _ = HOME.set(Home { gpus, calibrations, plans, peers, desks, lanes });
        }
        Ok(&home().gpus)
    }

    /// Whether the GPUs that are open address each other's memory.
    ///
    /// # Panics
    /// Before [`Cuda::open`].
    pub fn peers() -> bool {
        home().peers
    }

    /// What was measured of each GPU that is open, if who copies was to be found out.
    ///
    /// # Panics
    /// Before [`Cuda::open`].
    pub fn calibrations() -> impl Iterator<Item = (&'static Gpu, &'static Calibration)> {
        let Home { gpus, calibrations, .. } = home();
        gpus.iter().zip(calibrations).filter_map(|(gpu, measured)| Some((gpu, measured.as_ref()?)))
    }
}

/// Asks the driver for as many queues as it has. With the usual eight, streams share some, and one that a gate holds would
/// hold others with it. Heard only before the driver is initialised.
#[allow(unsafe_code)]
fn separate_streams() {
    const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    if std::env::var_os(CONNECTIONS).is_none() {
        // SAFETY: `Cuda::open` asks for being called before there are other threads.
        unsafe { std::env::set_var(CONNECTIONS, "32") };
    }
}

/// Lets every GPU into the memory of every other one; whether that is possible.
fn let_in(gpus: &[Gpu]) -> bool {
    let pairs = gpus.iter().flat_map(|one| gpus.iter().map(move |other| (one, other)));
    let mut others = pairs.filter(|(one, other)| one.info().ordinal != other.info().ordinal);
    others.all(|(one, other)| one.can_access(other) == Ok(true) && one.enable_access(other).is_ok())
}

impl Platform for Cuda {
    const DEVICE: &'static str = "cuda";
    type Mutex<T: Send + 'static> = Mutex<T>;
    type Condvar = Condvar;
    type Cell = Pages;
    type Join = JoinHandle<()>;
    type Queued = Queue;

    fn wait<'a, T: Send + 'static>(condvar: &Condvar, guard: Guard<'a, Cuda, T>) -> Guard<'a, Cuda, T> {
        Std::wait(condvar, guard)
    }

    fn notify_all(condvar: &Condvar) {
        condvar.notify_all();
    }

    fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        Std::spawn(name, work)
    }

    fn join(thread: JoinHandle<()>) -> Result<(), String> {
        Std::join(thread)
    }

    fn queue<'a>(batches: impl FnOnce() -> Vec<Vec<Move<'a, Pages>>>, held: bool) -> Option<Queue> {
        Queue::new(&batches(), held, None)
    }

    fn pause_us(duration: u64) {
        Std::pause_us(duration);
    }

    fn now_us() -> u64 {
        Std::now_us()
    }
}
