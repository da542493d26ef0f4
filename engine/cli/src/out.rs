//! The folder of a run: `run.json`, which is whole at any moment, and `events.jsonl`, which is written as it happens.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvweft_shell::log::Sink;
use kvweft_shell::run::{Report, State};
use kvweft_trace::event::Line;

use crate::failure::Failure;
use crate::output;

/// How old a report may grow while a run goes on.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long a line may stay in memory.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// Lines that may wait for the disk before the engine does.
const LINES_MAX: usize = 1 << 14;

/// The folder.
pub(crate) struct Out {
    folder: PathBuf,
    /// Keeps other runs out.
    _claim: Option<File>,
    written: Instant,
    /// The first report that could not be written.
    failed: Option<Failure>,
}

impl Out {
    /// Makes the folder, keeps other runs out of it, and writes the first report into it.
    ///
    /// # Errors
    /// If it holds a complete run, or something else in its place, or cannot be written.
    pub(crate) fn open(folder: &Path, force: bool, first: &Report) -> Result<Out, Failure> {
        let claim = output::claim_folder(folder)?;
        let out = Out { folder: folder.to_owned(), _claim: claim, written: Instant::now(), failed: None };
        if !force {
            out.is_free()?;
        }
        out.write(first)?;
        let log = out.log_path();
        match std::fs::remove_file(&log) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::io(&log, "take away the log of an earlier run", &error))
            }
            _ => Ok(out),
        }
    }

    fn is_free(&self) -> Result<(), Failure> {
        let path = self.report_path();
        let refused = |why: &str| Failure::File {
            path: path.clone(),
            why: format!("{why}\nhelp: name another folder, or write over it with --force"),
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                return Ok(());
            }
            Err(error) => return Err(Failure::io(&path, "read the report of an earlier run", &error)),
        };
        match serde_json::from_slice::<Report>(&text) {
            Ok(report) if report.state == State::Complete => {
                Err(refused(&format!("the folder holds a complete run, {}", report.run)))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(refused("the folder holds something that is no report of this version")),
        }
    }

    fn report_path(&self) -> PathBuf {
        self.folder.join("run.json")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("events.jsonl")
    }

    /// Writes the report, if the last one is old; a failure is remembered, and the run goes on.
    pub(crate) fn refresh(&mut self, report: &Report) {
        if self.written.elapsed() >= REPORT_EVERY {
            self.written = Instant::now();
            if let Err(failure) = self.write(report) {
                self.failed.get_or_insert(failure);
            }
        }
    }

    /// Writes the last report.
    ///
    /// # Errors
    /// If it cannot be written; else the first failure before it, which is mended by then, is nobody's business.
    pub(crate) fn close(self, report: &Report) -> Result<(), Failure> {
        self.write(report).map_err(|last| self.failed.unwrap_or(last))
    }

    /// A reader, and whoever comes after a crash, sees the old report or the new one.
    fn write(&self, report: &Report) -> Result<(), Failure> {
        let path = self.report_path();
        let fresh = self.folder.join("run.json.new");
        let written = File::create(&fresh).and_then(|mut file| {
            file.write_all(json(report).as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)
        });
        written.map_err(|error| Failure::io(&path, "write the report", &error))?;
        // So that the new name survives a crash of the machine; where folders cannot be synced, nothing is lost but that.
        let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Begins the event log.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn log(&self) -> Result<(LogSink, LogWriter), Failure> {
        let path = self.log_path();
        let file = File::create(&path).map_err(|error| Failure::io(&path, "write the event log", &error))?;
        let (lines, taken) = sync_channel(LINES_MAX);
        let thread = std::thread::Builder::new().name("event-log".to_owned()).spawn(move || write_lines(file, &taken));
        let thread = thread.map_err(|error| Failure::io(&path, "start the thread that writes the log", &error))?;
        Ok((LogSink { lines }, LogWriter { path, thread }))
    }
}

/// A report as run.json holds it.
pub(crate) fn json(report: &Report) -> String {
    serde_json::to_string_pretty(report).expect("plain values can be written") + "\n"
}

/// Takes lines from the engine, whose threads wait for nothing but room in memory.
pub(crate) struct LogSink {
    lines: SyncSender<Line>,
}

impl Sink for LogSink {
    fn line(&mut self, line: Line) {
        // The writer goes on to take lines when it cannot write them.
        let _ = self.lines.send(line);
    }
}

/// The thread that writes them.
pub(crate) struct LogWriter {
    path: PathBuf,
    thread: JoinHandle<io::Result<()>>,
}

impl LogWriter {
    /// Waits until every line is written. The sink must be gone.
    ///
    /// # Errors
    /// The first failure; the log ends before it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let written = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        written.map_err(|error| Failure::io(&self.path, "write the event log", &error))
    }
}

fn write_lines(file: File, lines: &Receiver<Line>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, file);
    // The first line is the header: without it there is no log.
    let mut flushed: Option<Instant> = None;
    let mut written = Ok(());
    loop {
        let step = match lines.recv_timeout(FLUSH_EVERY) {
            Err(RecvTimeoutError::Disconnected) => break,
            _ if written.is_err() => continue,
            Ok(line) => writeln!(out, "{}", line.to_json()),
            Err(RecvTimeoutError::Timeout) => Ok(()),
        };
        let late = flushed.is_none_or(|flushed| flushed.elapsed() >= FLUSH_EVERY);
        written = step.and_then(|()| if late { out.flush() } else { Ok(()) });
        if late {
            flushed = Some(Instant::now());
        }
    }
    written?;
    out.flush()?;
    out.get_ref().sync_all()
}
