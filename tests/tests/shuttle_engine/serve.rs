//! One run of the scenario: its engines, their threads, and a client for each request.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kvweft_check::build::{CacheSystem, build, dropped, with_names};
use kvweft_check::scenario::{Scenario, load};
use kvweft_core::{Config, Ending, Failure, Life, RequestId, Timer, Wait};
use kvweft_shell::gate::Open;
use kvweft_shell::log::{Log, Sink};
use kvweft_shell::{Platform, Setting, Shell, Stop};
use kvweft_tests::threads::requests::{complaint, submission};
use kvweft_tests::threads::stamp::tiny;
use kvweft_tests::threads::{ShuttlePlatform, StampModel};
use kvweft_trace::event::Line;
use kvweft_world::SubjectFault;

/// What a run needs and leaves behind. Clones share it.
#[derive(Clone)]
pub(crate) struct Run(Arc<Shared>);

struct Shared {
    scenario: Scenario,
    system: CacheSystem,
    drops: Vec<String>,
    lines: Lines,
    started: AtomicU64,
    /// How requests ended, in any schedule.
    endings: Mutex<BTreeSet<Ending>>,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

impl Sink for Lines {
    fn line(&mut self, line: Line) {
        self.0.lock().expect("nobody panics while it is held").push(line);
    }
}

/// Which requests were submitted, which are over, and who has the next room.
#[derive(Default)]
struct Board {
    submitted: Vec<bool>,
    over: Vec<bool>,
    rooms: u32,
}

type Fault = Box<dyn FnOnce(&Run, &Clients) + Send>;
type Engines = Shell<ShuttlePlatform, StampModel>;

/// What the clients share.
struct Clients {
    board: shuttle::sync::Mutex<Board>,
    changed: shuttle::sync::Condvar,
    shell: Engines,
}

impl Run {
    /// Of one of the scenarios beside this file, without these rules.
    pub(crate) fn new(scenario: &str, drops: &[&str]) -> Run {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shuttle_engine").join(format!("{scenario}.toml"));
        let scenario = with_names(|names| load(&file, names)).expect("the scenario is right");
        let rules = dropped(drops.iter().copied()).expect("the rules exist");
        let system = build(&scenario, rules);
        let drops = drops.iter().map(|&rule| rule.to_owned()).collect();
        Run(Arc::new(Shared {
            scenario,
            system,
            drops,
            lines: Lines::default(),
            started: AtomicU64::new(0),
            endings: Mutex::default(),
        }))
    }

    /// What is printed of it.
    pub(crate) fn name(&self) -> String {
        let rules = if self.0.drops.is_empty() { "all rules" } else { &*self.0.drops.join(", ") };
        let without = if self.0.drops.is_empty() { "" } else { "without " };
        format!("{}, {without}{rules}", self.0.scenario.name)
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.0.scenario
    }

    /// The world of the same scenario, without the same rules.
    pub(crate) fn system(&self) -> &CacheSystem {
        &self.0.system
    }

    pub(crate) fn drops(&self) -> &[String] {
        &self.0.drops
    }

    /// The log of the last schedule.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lines.0.lock().expect("nobody panics while it is held").clone()
    }

    /// How requests have ended so far, whatever the schedule.
    pub(crate) fn endings(&self) -> Vec<Ending> {
        self.0.endings.lock().expect("nobody panics while it is held").iter().copied().collect()
    }

    /// Schedules that were begun since the last [`Run::restart`].
    pub(crate) fn started(&self) -> u64 {
        self.0.started.load(Ordering::Relaxed)
    }

    /// Counts from zero again.
    pub(crate) fn restart(&self) {
        self.0.started.store(0, Ordering::Relaxed);
    }

    /// Serves every request of the scenario, once.
    pub(crate) fn serve(&self) {
        self.0.started.fetch_add(1, Ordering::Relaxed);
        self.0.lines.0.lock().expect("nobody panics while it is held").clear();
        let tiny = |config: &Config| Config { geometry: tiny(config.geometry.clone()), ..config.clone() };
        let configs: Vec<Config> = self.0.system.managers.iter().map(|manager| tiny(manager.config())).collect();
        let models = configs.iter().map(|_| Arc::new(StampModel)).collect();
        let log = Arc::new(Log::to(Box::new(self.0.lines.clone())));
        let mut shell =
            Shell::new(configs, models, Setting { log, gate: Arc::new(Open), poison: true, prompt_token_us: 0 });
        shell.start();
        let count = self.0.system.machine.scripts.len();
        let board = Board { submitted: vec![false; count], over: vec![false; count], rooms: 0 };
        let clients = Arc::new(Clients {
            board: shuttle::sync::Mutex::new(board),
            changed: shuttle::sync::Condvar::new(),
            shell,
        });
        let start = |name: String, work: Fault| {
            let (run, clients) = (self.clone(), Arc::clone(&clients));
            ShuttlePlatform::spawn(name, move || work(&run, &clients))
        };
        let client =
            |request| start(format!("client-{request}"), Box::new(move |run, clients| run.client(clients, request)));
        let mut threads: Vec<_> = (0..count).map(client).collect();
        let faults = self.faults().into_iter().enumerate();
        threads.extend(faults.map(|(at, fault)| start(format!("fault-{at}"), fault)));
        for thread in threads {
            ShuttlePlatform::join(thread).expect("no client panics");
        }
        // An aborted request is over for its client before the peer has said that it stopped writing.
        while clients.shell.engines().iter().any(|engine| engine.accounts().requests > 0) {
            shuttle::thread::yield_now();
        }
        let Ok(mut clients) = Arc::try_unwrap(clients) else { panic!("every client has let go") };
        clients.shell.stop(Stop::WhenIdle).expect("no thread panics");
        clients.shell.engines().iter().for_each(|engine| assert_nothing_left(&engine.accounts()));
    }

    /// The faults of the scenario, each at whatever time its thread is scheduled.
    fn faults(&self) -> Vec<Fault> {
        let budget = &self.0.system.machine.budget;
        let mut faults: Vec<Fault> = Vec::new();
        for abort in budget.aborts.clone() {
            faults.push(Box::new(move |_, clients| {
                clients.wait_until(|board| board.submitted[abort.request]);
                let engine = &clients.shell.engines()[usize::from(abort.engine)];
                engine.abort(RequestId(abort.request as u32)).expect("it is known");
            }));
        }
        for (engine, times) in budget.flushes.into_iter().enumerate() {
            for _ in 0..times {
                faults.push(Box::new(move |_, clients| {
                    clients.wait_until(|board| board.submitted.contains(&true));
                    clients.shell.engines()[engine].flush();
                }));
            }
        }
        for _ in 0..budget.slow {
            faults.push(Box::new(|run, clients| {
                clients.wait_until(|board| board.submitted.contains(&true));
                let timer =
                    |request: usize| Timer { request: RequestId(request as u32), life: Life(1), wait: Wait::Receive };
                let _ = (0..run.0.system.machine.scripts.len()).any(|at| clients.shell.front().fire(timer(at)));
            }));
        }
        faults
    }

    /// Waits for those before it, submits its request, and waits for the answer.
    fn client(&self, clients: &Clients, request: usize) {
        let script = &self.0.system.machine.scripts[request];
        let mut board = clients.board.lock().expect("no client panics while it holds it");
        while !script.after.iter().all(|&other| board.over[other]) {
            board = clients.changed.wait(board).expect("as above");
        }
        // Rooms are numbered in the order of submission, as in the world.
        board.rooms += 1;
        let submission = submission(request as u32, Some(board.rooms), &script.prompt, &script.output);
        clients.shell.submit(&submission).expect("it fits");
        board.submitted[request] = true;
        drop(board);
        clients.changed.notify_all();
        let id = RequestId(request as u32);
        let answer = clients.shell.front().wait_for(id);
        self.0.endings.lock().expect("nobody panics while it is held").insert(answer.ending);
        // Where faults are injected a request may end in other ways, and what it answers must still be right.
        if self.faults().is_empty() || answer.ending == Ending::Finished {
            assert_eq!(complaint(&answer), None, "request {}", script.name);
        }
        let gone_at_prefill = |abort: &SubjectFault| abort.request == request && abort.engine == 0;
        let budget = &self.0.system.machine.budget;
        let told = budget.flushes[0] > 0 || budget.aborts.iter().any(gone_at_prefill);
        assert!(told || answer.ending != Ending::Failed(Failure::Peer), "prefill lost request {}", script.name);
        for engine in clients.shell.engines() {
            engine.wait_for(id);
        }
        clients.board.lock().expect("as above").over[request] = true;
        clients.changed.notify_all();
    }
}

impl Clients {
    fn wait_until(&self, holds: impl Fn(&Board) -> bool) {
        let mut board = self.board.lock().expect("no client panics while it holds it");
        while !holds(&board) {
            board = self.changed.wait(board).expect("as above");
        }
    }
}

/// Every page is free or cached, and nothing belongs to a request that is over.
fn assert_nothing_left(accounts: &kvweft_core::Accounts) {
    let kvweft_core::Accounts { pages, cached, transfers, metadata_rows, event_slots, leases, requests, .. } = accounts;
    assert_eq!([transfers, metadata_rows, event_slots, leases, requests], [&0; 5], "{accounts:?}");
    for (states, cached) in pages.iter().zip(cached) {
        assert_eq!(states[0] + cached, states.iter().sum::<u32>(), "{accounts:?}");
    }
}
