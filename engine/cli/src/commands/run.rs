//! `kvweft run`.

use std::io::IsTerminal;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use kvweft_core::RuleSite;
use kvweft_cuda::Cuda;
use kvweft_shell::log::Sink;
use kvweft_shell::run::{Call, FORMAT, Percentiles, Report, RunError, State, Workload, run as play};
use kvweft_shell::{Platform, Std};

use super::gpus;
use crate::args::{self, Device, Format, Peer};
use crate::failure::Failure;
use crate::out::{self, LogWriter, Out};
use crate::workload::{self, Chosen, page_bytes};
use crate::{input, output, table};

/// Set by the first Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

const EXIT_INTERRUPTED: u8 = 130;

/// Behind a message: the workload had been checked, so nothing else can be wrong with a run.
const PANICKED: &str =
    "\nhelp: with every rule kept this is a defect of kvweft; else a dropped rule may have led to it";

/// Runs the command.
pub(crate) fn run(args: &args::Run) -> Result<ExitCode, Failure> {
    let chosen = workload::choose(args.workload.as_deref(), &args.played)?;
    open_gpus(args, &chosen.workload)?;
    let other = args.beside.as_deref().map(input::report).transpose()?;
    let run = fresh_name();
    let tool = format!("kvweft {}", env!("CARGO_PKG_VERSION"));
    let first = nothing_yet(&run, &tool, args.on, &chosen.workload);
    let mut out = args.out.as_deref().map(|folder| Out::open(folder, args.force, &first)).transpose()?;
    let (log, writer) = match out.as_ref().filter(|_| !args.no_log).map(Out::log).transpose()? {
        Some((sink, writer)) => (Some(Box::new(sink) as Box<dyn Sink>), Some(writer)),
        None => (None, None),
    };
    watch_signals();
    output::note(&parameters(&run, args.on, &chosen));
    let shown = Shown::new();
    let mut progress = |report: &Report| {
        shown.show(report);
        if let Some(out) = &mut out {
            out.refresh(report);
        }
    };
    let call = Call { name: run, tool, log, interrupted: &INTERRUPTED, progress: &mut progress };
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| match args.on {
        Device::Host => play::<Std>(&chosen.workload, call),
        Device::Cuda => play::<Cuda>(&chosen.workload, call),
    }));
    shown.clear();
    let Ok(played) = played else {
        // Threads of the engine are left, and hold the log: what they have said is on its way to the disk.
        std::thread::sleep(out::FLUSH_EVERY * 3);
        return Err(Failure::Run(format!("the engine panicked{PANICKED}")));
    };
    if args.on == Device::Cuda {
        gpus::say_copied();
    }
    let logged = writer.map_or(Ok(()), LogWriter::close);
    let mut failures: Vec<Failure> = Vec::new();
    let report = match played {
        Ok(report) => report,
        Err(why) => {
            failures.push(Failure::Run(format!("{why}{PANICKED}")));
            match why {
                RunError::Panicked { report, .. } => *report,
                RunError::Shape(_) | RunError::Pool { .. } => return Err(failures.remove(0)),
            }
        }
    };
    let reported = out.map_or(Ok(()), |out| out.close(&report));
    match args.format {
        Format::Text => {
            let beside = other.as_ref().map(|other| beside(&report, other)).unwrap_or_default();
            output::result(&(text(&report) + &beside))?;
        }
        Format::Json => output::result(&out::json(&report))?,
    }
    // The run was measured all the same: what could not be written is said behind its results.
    failures.extend([logged, reported].into_iter().filter_map(Result::err));
    for failure in &failures {
        output::note(&failure.to_string());
    }
    Ok(ExitCode::from(match exit_code(&report) {
        0 | 1 if !failures.is_empty() => 2,
        code => code,
    }))
}

/// Opens what `--device` names, if the run is on GPUs.
fn open_gpus(args: &args::Run, workload: &Workload) -> Result<(), Failure> {
    let wrong = |why: &str| Failure::Option { option: "device".to_owned(), why: why.to_owned() };
    match args.device.as_slice() {
        [gpu] if *gpu != 0 && args.on == Device::Host => return Err(wrong("it names a GPU\nhelp: add `--on cuda`")),
        [_] => {}
        [a, b] if a == b && args.peer == Peer::Auto => {
            return Err(wrong("expected two different GPUs, got one twice\nhelp: add --peer through-host"));
        }
        [_, _] if workload.split => {}
        [_, _] => return Err(wrong("two GPUs are for two engines, and there is one\nhelp: add --split")),
        _ => return Err(wrong("expected one GPU or two")),
    }
    if args.on == Device::Cuda {
        gpus::open(&args.device, args.copy_by, args.peer)?;
    }
    Ok(())
}

/// How this run stands to another one, as ratios.
fn beside(report: &Report, other: &Report) -> String {
    let ratio = |a: u64, b: u64| if b == 0 { "-".to_owned() } else { format!("{:.2}", a as f64 / b as f64) };
    let (first, then) = (&report.first_token_us, &other.first_token_us);
    let (token, before) = (&report.per_token_us, &other.per_token_us);
    let row = |name: &str, a: &Percentiles, b: &Percentiles| {
        vec![name.to_owned(), ratio(a.p50, b.p50), ratio(a.p90, b.p90), ratio(a.p99, b.p99)]
    };
    let rows = [row("to the first token", first, then), row("per token", token, before)];
    let differs = differences(&report.workload, &other.workload);
    let differs = if differs.is_empty() { "nothing".to_owned() } else { differs.join(", ") };
    format!(
        "\nbeside {}, which differs in: {differs}\nelapsed {} times as long\n{}",
        other.run,
        ratio(report.elapsed_us, other.elapsed_us),
        table::table(&["beside it, times", "p50", "p90", "p99"], &rows)
    )
}

/// The settings in which two workloads differ, by their keys in `run.json`.
fn differences(a: &Workload, b: &Workload) -> Vec<String> {
    let fields = |workload: &Workload| match serde_json::to_value(workload) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (a, b) = (fields(a), fields(b));
    a.into_iter().filter(|(key, value)| b.get(key) != Some(value)).map(|(key, _)| key).collect()
}

fn exit_code(report: &Report) -> u8 {
    match report.state {
        State::Interrupted => EXIT_INTERRUPTED,
        State::Complete | State::Running => u8::from(report.sessions.ok != report.workload.sessions),
    }
}

/// The first signal winds the run down, the second ends the program.
fn watch_signals() {
    let watching = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
        output::note("interrupted: the run winds down; once more ends it at once");
    });
    if let Err(error) = watching {
        output::note(&format!("warning: signals are not watched, so Ctrl-C ends the run at once: {error}"));
    }
}

/// `run-` with date and time in UTC, and six digits that tell apart what begins in the same second.
fn fresh_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since.as_secs() / 86_400);
    let second = since.as_secs() % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mixed = (since.as_nanos() as u64 ^ u64::from(std::process::id()) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("run-{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{:06x}", mixed >> 40)
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March and come in eras of 400, so that the day that leap years add is the last of a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

fn device(on: Device) -> &'static str {
    match on {
        Device::Host => Std::DEVICE,
        Device::Cuda => Cuda::DEVICE,
    }
}

/// What run.json says before anything has happened.
fn nothing_yet(run: &str, tool: &str, on: Device, workload: &Workload) -> Report {
    let mut report = Report {
        format: FORMAT,
        tool: tool.to_owned(),
        run: run.to_owned(),
        device: device(on).to_owned(),
        state: State::Running,
        workload: workload.clone(),
        sessions: Default::default(),
        requests: Default::default(),
        tokens: Default::default(),
        pages: Default::default(),
        first_token_us: Percentiles::default(),
        per_token_us: Percentiles::default(),
        elapsed_us: 0,
    };
    report.sessions.open = workload.sessions;
    report
}

/// What the run is about to do, for standard error.
fn parameters(run: &str, on: Device, chosen: &Chosen) -> String {
    let workload = &chosen.workload;
    let bytes = page_bytes(&workload.geometry);
    let pool = |pages: u32| format!("{pages} pages ({:.1} MB)", u64::from(pages) as f64 * bytes as f64 / 1e6);
    let kinds: Vec<&str> = chosen.layers.iter().map(|layer| chosen.model.layers[*layer].as_str()).collect();
    let dtype = workload.geometry.components.iter().find(|c| c.component == kvweft_core::Component::IndexK);
    let dtype = dtype.map_or("none".to_owned(), |c| format!("{:?}", c.layout.dtype).to_lowercase());
    let host = if workload.cache { pool(workload.host_pages) } else { "none, the cache is off".to_owned() };
    let engines = match workload.split {
        false => format!("one engine: device {}, host {host}", pool(workload.device_pages)),
        true => format!(
            "prefill engine: device {}, host {host}; decode engine: {}",
            pool(workload.device_pages),
            pool(workload.decode_pages)
        ),
    };
    let dropped: Vec<String> = RuleSite::all().filter(|at| !workload.rules.has(*at)).map(|at| at.to_string()).collect();
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(" ") };
    let chunks = match workload.chunk_pages {
        0 => String::new(),
        pages => format!(", at most {pages} pages a step"),
    };
    format!(
        "{run} on {}\n\
         {} sessions of {} rounds, seed {}: {} + {} tokens at first, {} more a round; at most {} pages a session\n\
         {}, {} layers ({}), index keys {dtype}, {} heads; pages of {} tokens and {bytes} bytes{chunks}\n\
         {engines}\n\
         each prompt token takes {} us beside what is computed (assumed)\n\
         clients wait {} ms, engines {} ms for their peer\n\
         rules dropped: {dropped}",
        device(on),
        workload.sessions,
        workload.rounds,
        workload.seed,
        workload.system_tokens,
        workload.first_tokens,
        workload.round_tokens,
        workload.session_pages(),
        chosen.model.name,
        kinds.len(),
        kinds.join(" "),
        workload.heads,
        workload.geometry.page_tokens,
        workload.prompt_token_us,
        workload.timeout_ms,
        workload.deadline_ms,
    )
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// The results as tables.
fn text(report: &Report) -> String {
    let state = match report.state {
        State::Running => "running",
        State::Complete => "complete",
        State::Interrupted => "interrupted",
    };
    let seconds = report.elapsed_us as f64 / 1e6;
    let sessions = &report.sessions;
    let mut header = vec!["sessions", "ok", "leak", "no_tool", "wrong", "error", "timeout"];
    let mut counts = vec![report.workload.sessions, sessions.ok, sessions.leak, sessions.no_tool, sessions.wrong];
    counts.extend([sessions.error, sessions.timeout]);
    if sessions.open > 0 {
        header.push("open");
        counts.push(sessions.open);
    }
    header.push("corrupt");
    let mut row: Vec<String> = counts.iter().map(u32::to_string).collect();
    row.push(share(sessions.corrupt().into(), report.workload.sessions.into()));
    let mut out = format!("{} on {}: {state} after {seconds:.1} s\n\n", report.run, report.device);
    out += &table::table(&header, &[row]);
    out.push('\n');
    out += &measured(report, seconds);
    out.push('\n');
    let times = [("to the first token, ms", &report.first_token_us), ("per token, ms", &report.per_token_us)];
    let times = times.map(|(name, times)| {
        let ms = |us: u64| format!("{:.2}", us as f64 / 1e3);
        vec![name.to_owned(), ms(times.p50), ms(times.p90), ms(times.p99), ms(times.max)]
    });
    out + &table::table(&["time", "p50", "p90", "p99", "max"], &times)
}

fn measured(report: &Report, seconds: f64) -> String {
    let Report { requests, tokens, pages, .. } = report;
    let rate = |count: u64| format!("{:.0}", count as f64 / seconds.max(1e-9));
    let reused = format!("{} of {}, {}", tokens.reused, tokens.reusable, share(tokens.reused, tokens.reusable));
    let rows = [
        ("requests that ended with an answer", format!("{} of {}", requests.finished, requests.submitted)),
        ("decodes running at the peak", requests.decodes_peak.to_string()),
        ("requests seen waiting for input", requests.waiting_for_input.to_string()),
        ("requests aborted by their clients", requests.aborted.to_string()),
        ("requests past a deadline", requests.past_deadline.to_string()),
        ("stuck transfers", requests.stuck_transfers.to_string()),
        ("reusable tokens reused", reused),
        ("pages reloaded", pages.reloaded.to_string()),
        ("pages offloaded", pages.offloaded.to_string()),
        ("pages sent", pages.sent.to_string()),
        ("answer tokens a second", rate(tokens.generated)),
        ("prompt tokens computed a second", rate(tokens.computed)),
    ];
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// Progress on standard error, where somebody is looking.
struct Shown(Option<ProgressBar>);

impl Shown {
    fn new() -> Shown {
        Shown(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("the template is fixed"));
            bar
        }))
    }

    fn show(&self, report: &Report) {
        let Some(bar) = &self.0 else { return };
        let sessions = &report.sessions;
        let rate = report.requests.finished as f64 / (report.elapsed_us as f64 / 1e6).max(1e-9);
        bar.set_message(format!(
            "{} of {} sessions over: {} ok, {} corrupt, {} errors, {} timeouts; {rate:.1} requests/s",
            report.workload.sessions - sessions.open,
            report.workload.sessions,
            sessions.ok,
            sessions.corrupt(),
            sessions.error,
            sessions.timeout
        ));
        bar.tick();
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        let table = [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_787, (2026, 11, 30)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ];
        for (days, date) in table {
            assert_eq!(civil(days), date, "day {days}");
        }
    }
}
