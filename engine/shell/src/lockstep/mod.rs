//! A world and real threads, step by step side by side.
//!
//! Gates hold every thread, message, loss and timer before its named step. [`Lockstep::take`] takes one action of a world
//! in both: the threads make the same operations on real memory, and every effect of every manager, and the bytes of every
//! cell that the world says has changed, are compared.

mod controlled;
mod oracle;
mod trust;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvweft_core::{Effect, Ending, Manager, RequestId, RuleSite};
use kvweft_trace::Content;
use kvweft_trace::event::{Event, Line};
use kvweft_world::{Action, CellView, Found, LogEntry, Machine, Operation, World};

pub use controlled::{Controlled, Granted};
pub use oracle::Oracle;

use trust::Trust;

use crate::log::{Log, Sink};
use crate::platform::Platform;
use crate::recall::{RecallModel, ShapeError, text};
use crate::shell::{Setting, Shell, Stop};
use crate::std_platform::Std;

/// Lines that somebody reads while they are written.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<Line>>>);

impl Lines {
    /// What has come since the last call.
    pub fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Lines {
    fn line(&mut self, line: Line) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// A world and the threads that follow it.
pub struct Lockstep<'a, P: Platform = Std> {
    machine: &'a Machine,
    /// The world as it stands.
    pub world: World<Manager>,
    shell: Shell<P, Arc<RecallModel>>,
    gate: Arc<Controlled>,
    lines: Lines,
    oracle: Oracle,
    seen: Vec<Vec<CellView>>,
    trust: Trust,
    /// Whether something has gone wrong in the world: what is computed from wrong bytes is wrong from there on.
    tainted: bool,
}

/// How the threads differ from the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The manager of an engine asked for something else.
    Effects {
        /// Which engine.
        engine: u8,
        /// What the world's manager asked for.
        world: Vec<Effect>,
        /// What the threads' manager asked for.
        threads: Vec<Effect>,
    },
    /// A cell does not hold the bytes that the world says.
    Bytes {
        /// The cell.
        cell: CellView,
        /// Which engine.
        engine: usize,
        /// The first byte that differs.
        at: usize,
    },
    /// An operation that the world allows did not happen.
    Operation {
        /// Which.
        operation: Operation,
        /// What came in its place.
        granted: Granted,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Effects { engine, world, threads } => {
                write!(
                    f,
                    "engine {engine}: the world's manager asks for {world:?}, that of the threads for {threads:?}"
                )
            }
            Mismatch::Bytes { cell, engine, at } => write!(
                f,
                "engine {engine}: byte {at} of {:?} of layer {} of page {:?} is not what {:?} is",
                cell.component, cell.layer, cell.block, cell.content
            ),
            Mismatch::Operation { operation, granted } => {
                write!(f, "the world allows {operation:?}, and on the threads: {granted:?}")
            }
        }
    }
}

impl std::error::Error for Mismatch {}

/// How a request of the threads came out once everything had run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which.
    pub request: RequestId,
    /// How it ended; `None` if nothing is left to do and it still waits.
    pub ending: Option<Ending>,
    /// The right answer.
    pub expected: Vec<u8>,
    /// The answer that the model gave, if it gave one.
    pub answer: Option<Vec<u8>>,
}

impl Outcome {
    /// Whether the answer is there and wrong.
    pub fn is_garbled(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| *answer != self.expected)
    }
}

impl<'a, P: Platform> Lockstep<'a, P> {
    /// A world at its beginning, and threads that wait at their gates.
    ///
    /// # Errors
    /// If the recall model cannot be served from the layouts of the world.
    pub fn new(machine: &'a Machine, managers: Vec<Manager>) -> Result<Lockstep<'a, P>, ShapeError> {
        let configs: Vec<_> = managers.iter().map(|manager| manager.config().clone()).collect();
        let models = configs.iter().map(|config| RecallModel::new(&config.geometry, 1, 0).map(Arc::new));
        let models: Vec<Arc<RecallModel>> = models.collect::<Result<_, _>>()?;
        let (gate, lines) = (Arc::new(Controlled::default()), Lines::default());
        let setting = Setting {
            log: Arc::new(Log::to(Box::new(lines.clone()))),
            gate: gate.clone() as Arc<dyn crate::gate::Gate>,
            poison: true,
            prompt_token_us: 0,
        };
        let served = models.iter().map(|model| Arc::new(Arc::clone(model))).collect();
        let mut shell = Shell::new(configs, served, setting);
        shell.start();
        let world = World::new(machine, managers);
        let seen = (0..machine.engines.len()).map(|engine| world.cells(machine, engine)).collect();
        Ok(Lockstep {
            machine,
            oracle: Oracle::new(machine, models),
            world,
            shell,
            gate,
            lines,
            seen,
            trust: Trust::default(),
            tainted: false,
        })
    }

    /// Takes an action that the world allows, in the world and on the threads.
    ///
    /// # Errors
    /// The first difference.
    pub fn take(&mut self, action: Action) -> Result<Found, Mismatch> {
        let operations = self.world.operations(self.machine, action);
        let timer = self.world.timer_of(action);
        let mut found = Found::logging();
        self.world.step(self.machine, action, &mut found);
        for entry in found.log.iter().flatten() {
            if let LogEntry::Effect(engine, effect) = entry {
                self.trust.effect(*engine, effect);
            }
        }
        for operation in operations {
            self.trust.operation(&self.world, operation);
            let granted = self.grant(operation);
            if granted != Granted::Done {
                return Err(Mismatch::Operation { operation, granted });
            }
        }
        self.outside(action, timer);
        self.compare_effects(&found)?;
        self.tainted |= !found.violations.is_empty();
        if !self.tainted {
            self.compare_cells()?;
        }
        Ok(found)
    }

    /// Lets an operation happen that the world does not allow: which fence keeps the thread back, if one does.
    pub fn held(&self, operation: Operation) -> Option<RuleSite> {
        match self.grant(operation) {
            Granted::Held(owed_to) => Some(owed_to),
            Granted::Done | Granted::Nobody => None,
        }
    }

    fn grant(&self, operation: Operation) -> Granted {
        if let Operation::SendFail { transfer, part } = operation {
            self.shell.engines()[0].fail_send(transfer, part);
        }
        self.gate.grant(operation, || self.shell.engines().iter().for_each(|engine| engine.poke()))
    }

    /// What clients, timers and faults do.
    fn outside(&self, action: Action, timer: Option<(u8, kvweft_core::Timer)>) {
        let engines = self.shell.engines();
        let links = self.shell.links();
        let budget = &self.machine.budget;
        // Refusals are in the log, and are compared there.
        match action {
            Action::Submit { request } => {
                let room = self.world.room_of(RequestId(request.into()));
                let submission = self.oracle.submission(self.machine, usize::from(request), room);
                for engine in engines.iter().rev() {
                    let _ = engine.submit(&submission);
                }
            }
            Action::Abort { fault } => {
                let abort = budget.aborts[usize::from(fault)];
                let _ = engines[usize::from(abort.engine)].abort(RequestId(abort.request as u32));
            }
            Action::Preempt { fault } => {
                let preempt = budget.preempts[usize::from(fault)];
                let _ = engines[usize::from(preempt.engine)].preempt(RequestId(preempt.request as u32));
            }
            Action::Flush { engine } => engines[usize::from(engine)].flush(),
            Action::Fire { .. } => {
                let (engine, timer) = timer.expect("it was armed");
                engines[usize::from(engine)].fire(timer);
            }
            Action::Lose { link } => drop(links[usize::from(link)].take()),
            Action::Duplicate { link } => links[usize::from(link)].duplicate(),
            Action::Reorder { link } => links[usize::from(link)].reorder(),
            Action::DuplicateReport => engines[0].duplicate_report(),
            Action::Stream { .. }
            | Action::Nic { .. }
            | Action::Report { .. }
            | Action::Deliver { .. }
            | Action::FailPart { .. } => {}
        }
    }

    fn compare_effects(&self, found: &Found) -> Result<(), Mismatch> {
        let lines = self.lines.take();
        for engine in 0..self.machine.engines.len() as u8 {
            let world = found.log.iter().flatten().filter_map(|entry| match entry {
                LogEntry::Effect(at, effect) if *at == engine => Some(effect.clone()),
                _ => None,
            });
            let threads = lines.iter().flat_map(|line| match &line.event {
                Event::Input { engine: at, effects, .. } if *at == engine => effects.clone(),
                _ => Vec::new(),
            });
            let (world, threads): (Vec<Effect>, Vec<Effect>) = (world.collect(), threads.collect());
            if world != threads {
                return Err(Mismatch::Effects { engine, world, threads });
            }
        }
        Ok(())
    }

    /// Compares the cells that have changed in the world and hold the right bytes of a block.
    fn compare_cells(&mut self) -> Result<(), Mismatch> {
        for engine in 0..self.machine.engines.len() {
            let cells = self.world.cells(self.machine, engine);
            for (cell, before) in cells.iter().zip(&self.seen[engine]) {
                let Content::Block(content) = cell.content else { continue };
                if cell == before || cell.under_write || !cell.owned || !self.trust.of(engine, cell) {
                    continue;
                }
                let expected = self.oracle.cell(engine, content, cell.layer, cell.component);
                let bytes = self.bytes(engine, cell);
                if let Some(at) = (0..expected.len()).find(|&at| bytes.get(at) != Some(&expected[at])) {
                    return Err(Mismatch::Bytes { cell: *cell, engine, at });
                }
            }
            self.seen[engine] = cells;
        }
        Ok(())
    }

    fn bytes(&self, engine: usize, cell: &CellView) -> Vec<u8> {
        let pools = self.shell.engines()[engine].pools();
        let unit = pools.unit(cell.layer, cell.component).expect("the world has this cell");
        pools.bytes(cell.block, unit)
    }

    /// Opens every gate, lets the threads run until nothing is left to do, and tells how each request came out.
    ///
    /// # Errors
    /// What threads panicked with.
    pub fn finish(mut self, patience: Duration) -> Result<Vec<Outcome>, Vec<String>> {
        self.gate.release();
        self.shell.engines().iter().for_each(|engine| engine.poke());
        let until = Instant::now() + patience;
        let submitted: Vec<RequestId> = (0..self.machine.scripts.len() as u32)
            .map(RequestId)
            .filter(|&request| self.world.submissions(request) > 0)
            .collect();
        let over = |shell: &Shell<P, _>| submitted.iter().all(|&request| shell.front().ended(request).is_some());
        while !(over(&self.shell) && self.shell.is_idle()) && Instant::now() < until && !self.stuck() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let outcome = |&request: &RequestId| {
            let ended = self.shell.front().ended(request);
            // An engine that only sends has drafted the answer, whether or not the other has received it.
            let drafts = self.shell.engines().iter().rev().filter_map(|engine| engine.draft(request));
            let ending = ended.map(|ended| ended.ending);
            Outcome {
                request,
                ending,
                expected: self.oracle.answer(self.machine, request.0 as usize),
                answer: drafts
                    .into_iter()
                    .find(|draft| !draft.is_empty() && ending == Some(Ending::Finished))
                    .map(|draft| text(&draft).to_vec()),
            }
        };
        let outcomes = submitted.iter().map(outcome).collect();
        self.shell.stop(Stop::Now)?;
        Ok(outcomes)
    }

    /// Whether nothing has been left to do for a while.
    fn stuck(&self) -> bool {
        self.shell.is_idle() && {
            std::thread::sleep(Duration::from_millis(20));
            self.shell.is_idle()
        }
    }
}

impl<P: Platform> Drop for Lockstep<'_, P> {
    fn drop(&mut self) {
        self.gate.release();
        // Whoever drops it early has seen what was wrong.
        let _ = self.shell.stop(Stop::Now);
    }
}
