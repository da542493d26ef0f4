//! A run: sessions of agents against the real engine on host threads, and what came of it.

mod report;
mod session;
mod workload;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvweft_core::RequestId;
use kvweft_trace::event::{Event, Header, SCHEMA};

pub use report::{FORMAT, Pages, Percentiles, Report, Requests, Sessions, State, Tokens};
pub use workload::Workload;

use crate::engine::Engine;
use crate::gate::Open;
use crate::log::{Log, Sink};
use crate::platform::Platform;
use crate::recall::{RecallModel, ShapeError};
use crate::shell::{Setting, Shell, Stop};

/// How often the run is looked at.
const TICK: Duration = Duration::from_millis(5);
/// For so long nothing may be left to do before open requests are given up.
const STUCK: Duration = Duration::from_millis(500);

/// Why a run cannot begin, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The model cannot be served from these layouts.
    #[error("the recall model cannot be served: {0}")]
    Shape(#[from] ShapeError),
    /// A pool is too small for a single session.
    #[error("{pool} has {got} pages, and one session needs {needed} at its longest")]
    Pool {
        /// Which pool.
        pool: &'static str,
        /// Its pages.
        got: u32,
        /// What a session needs.
        needed: u32,
    },
    /// Threads of the engine panicked: a defect of kvweft, or what comes of a rule that was dropped.
    #[error("threads of the engine panicked:\n  {}", panics.join("\n  "))]
    Panicked {
        /// What they said.
        panics: Vec<String>,
        /// What was measured until then.
        report: Box<Report>,
    },
}

/// What a run is called, and who looks on.
pub struct Call<'a> {
    /// The name of the run.
    pub name: String,
    /// The program, with its version.
    pub tool: String,
    /// Takes the event log, if anybody wants it.
    pub log: Option<Box<dyn Sink>>,
    /// Set from outside to end the run early.
    pub interrupted: &'a AtomicBool,
    /// Told how the run stands, every now and then.
    pub progress: &'a mut dyn FnMut(&Report),
}

/// What sessions have measured so far.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    sessions: Sessions,
    requests: Requests,
    generated: u64,
    first_us: Vec<u64>,
    per_token_us: Vec<u64>,
    /// Requests that have not ended, and since when.
    open: Vec<(RequestId, Instant)>,
    /// Requests that were given up, and are a timeout for their sessions.
    given_up: BTreeSet<u32>,
    seen_waiting: BTreeSet<u32>,
    next_request: u32,
    sessions_over: u32,
}

/// What the threads of a run share.
pub(crate) struct Shared<P: Platform> {
    pub(crate) workload: Workload,
    pub(crate) model: Arc<RecallModel>,
    pub(crate) shell: Shell<P, Arc<RecallModel>>,
    measured: Mutex<Measured>,
    pub(crate) stopping: AtomicBool,
}

impl<P: Platform> Shared<P> {
    pub(crate) fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays a workload to its end, or until it is interrupted.
///
/// # Errors
/// If the engine cannot be built, or its threads panicked.
pub fn run<P: Platform>(workload: &Workload, call: Call<'_>) -> Result<Report, RunError> {
    let model = Arc::new(check(workload)?);
    let configs = workload.configs();
    let log: Arc<Log<P>> = Arc::new(call.log.map_or_else(Log::off, Log::to));
    log.note(|| {
        Event::Run(Header {
            schema: SCHEMA,
            tool: call.tool.clone(),
            run: call.name.clone(),
            device: P::DEVICE.to_owned(),
            engines: configs.clone(),
        })
    });
    let models = configs.iter().map(|_| Arc::new(Arc::clone(&model))).collect();
    let setting = Setting {
        log: Arc::clone(&log),
        gate: Arc::new(Open),
        poison: true,
        prompt_token_us: workload.prompt_token_us,
    };
    let mut shell = Shell::new(configs, models, setting);
    shell.start();
    let shared = Arc::new(Shared {
        workload: workload.clone(),
        model,
        shell,
        measured: Mutex::default(),
        stopping: AtomicBool::new(false),
    });
    let began = Instant::now();
    let sessions = (0..workload.sessions).map(|session| {
        let shared = Arc::clone(&shared);
        P::spawn(format!("session-{session}"), move || session::play(&shared, session))
    });
    let sessions: Vec<_> = sessions.collect();
    let watch = Watch { shared: &shared, name: &call.name, tool: &call.tool, began };
    let interrupted = watch.until_over(call.interrupted, call.progress);
    let mut panicked: Vec<String> = sessions.into_iter().filter_map(|thread| P::join(thread).err()).collect();
    let stuck = if interrupted || shared.shell.is_broken() { 0 } else { shared.settle() };
    let mut report = watch.report(if interrupted { State::Interrupted } else { State::Complete });
    report.requests.stuck_transfers += stuck;
    let mut shared = Arc::into_inner(shared).expect("every session has ended");
    panicked.extend(shared.shell.stop(Stop::Now).err().into_iter().flatten());
    log.end(!interrupted && stuck == 0 && panicked.is_empty());
    if panicked.is_empty() {
        return Ok(report);
    }
    Err(RunError::Panicked { panics: panicked, report: Box::new(report) })
}

/// The model of a workload that can be played: nothing is started, and nothing written.
///
/// # Errors
/// Why it cannot be.
pub fn check(workload: &Workload) -> Result<RecallModel, RunError> {
    let model = RecallModel::new(&workload.geometry, workload.heads as usize, workload.seed)?;
    let needed = workload.session_pages();
    let pools =
        [("the device pool", workload.device_pages, true), ("the decode pool", workload.decode_pages, workload.split)];
    for (pool, got, used) in pools {
        if used && got < needed {
            return Err(RunError::Pool { pool, got, needed });
        }
    }
    Ok(model)
}

impl<P: Platform> Shared<P> {
    /// Waits until nothing is left to do; how many transfers are still under way then.
    fn settle(&self) -> u64 {
        let mut idle_since: Option<Instant> = None;
        let transfers = || self.shell.engines().iter().map(|engine| u64::from(engine.accounts().transfers)).sum();
        loop {
            let left = transfers();
            if !self.shell.is_idle() {
                idle_since = None;
            } else if left == 0 || idle_since.get_or_insert_with(Instant::now).elapsed() > STUCK {
                return left;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Looks at a run from outside.
struct Watch<'a, P: Platform> {
    shared: &'a Shared<P>,
    name: &'a str,
    tool: &'a str,
    began: Instant,
}

impl<P: Platform> Watch<'_, P> {
    /// Returns whether the run was interrupted.
    fn until_over(&self, interrupted: &AtomicBool, progress: &mut dyn FnMut(&Report)) -> bool {
        let mut idle_since: Option<Instant> = None;
        let mut told = Instant::now();
        loop {
            let over = self.shared.measured().sessions_over == self.shared.workload.sessions;
            if over {
                return self.shared.stopping.load(Ordering::Relaxed);
            }
            if self.shared.shell.is_broken() {
                self.shared.stopping.store(true, Ordering::Relaxed);
                self.shared.shell.break_off();
                return true;
            }
            if interrupted.load(Ordering::Relaxed) && !self.shared.stopping.swap(true, Ordering::Relaxed) {
                self.give_up(|_| true);
            }
            self.see_waiting();
            self.pass_deadlines();
            let timeout = Duration::from_millis(self.shared.workload.timeout_ms);
            self.give_up(|since| since.elapsed() > timeout);
            if self.shared.shell.is_idle() && !self.shared.measured().open.is_empty() {
                let since = *idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() > STUCK {
                    self.stuck();
                    idle_since = None;
                }
            } else {
                idle_since = None;
            }
            if told.elapsed() > Duration::from_millis(250) {
                progress(&self.report(State::Running));
                told = Instant::now();
            }
            std::thread::sleep(TICK);
        }
    }

    /// Requests whose cache has not arrived.
    fn see_waiting(&self) {
        if !self.shared.workload.split {
            return;
        }
        let waiting = self.shared.shell.front().waiting();
        let mut measured = self.shared.measured();
        measured.seen_waiting.extend(waiting.iter().map(|request| request.0));
        measured.requests.waiting_for_input = measured.seen_waiting.len() as u64;
    }

    fn pass_deadlines(&self) {
        let deadline_us = self.shared.workload.deadline_ms * 1000;
        let Some(moment) = P::now_us().checked_sub(deadline_us) else { return };
        for engine in self.shared.shell.engines() {
            engine.fire_armed_before(moment);
        }
    }

    /// The clients of open requests go away.
    fn give_up(&self, which: impl Fn(&Instant) -> bool) {
        let late: Vec<RequestId> = {
            let mut measured = self.shared.measured();
            let late: Vec<RequestId> =
                measured.open.iter().filter(|(_, since)| which(since)).map(|(request, _)| *request).collect();
            let fresh: Vec<RequestId> =
                late.into_iter().filter(|request| measured.given_up.insert(request.0)).collect();
            measured.requests.aborted += fresh.len() as u64;
            fresh
        };
        for request in late {
            // It may have ended a moment ago.
            let _ = self.shared.shell.abort(request);
        }
    }

    /// Nothing is left to do, and requests are open: their timers are the last means, then their clients go away.
    fn stuck(&self) {
        let fired: usize = self.shared.shell.engines().iter().map(|engine| engine.fire_armed_before(u64::MAX)).sum();
        if fired == 0 {
            let transfers: u64 =
                self.shared.shell.engines().iter().map(|engine| u64::from(engine.accounts().transfers)).sum();
            self.shared.measured().requests.stuck_transfers += transfers;
            self.give_up(|_| true);
        }
    }

    fn report(&self, state: State) -> Report {
        // Under a lock that a thread has panicked with there is nothing to read.
        let counted = |engine: &Engine<P, Arc<RecallModel>>| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.counts())).unwrap_or_default()
        };
        let counts: Vec<_> = self.shared.shell.engines().iter().map(|engine| counted(engine)).collect();
        let measured = self.shared.measured();
        let mut sessions = measured.sessions;
        // Those that an interruption has ended are over, and of no class.
        sessions.open = self.shared.workload.sessions - sessions.classed();
        let mut requests = measured.requests;
        requests.decodes_peak = counts.iter().map(|counts| counts.decodes_max).max().unwrap_or(0);
        let first = counts[0];
        Report {
            format: FORMAT,
            tool: self.tool.to_owned(),
            run: self.name.to_owned(),
            device: P::DEVICE.to_owned(),
            state,
            workload: self.shared.workload.clone(),
            sessions,
            requests,
            tokens: Tokens {
                reusable: first.tokens_reusable,
                reused: first.tokens_reused,
                computed: first.tokens_computed,
                generated: measured.generated,
            },
            pages: Pages { reloaded: first.pages_reloaded, offloaded: first.pages_offloaded, sent: first.pages_sent },
            first_token_us: Percentiles::of(&measured.first_us),
            per_token_us: Percentiles::of(&measured.per_token_us),
            elapsed_us: self.began.elapsed().as_micros() as u64,
        }
    }
}
