//! Where the shell and its device write down what they do.

use std::sync::OnceLock;

use kvweft_trace::event::{Event, Line};

use crate::platform::{Lock, Platform};

/// Takes the lines of a log.
pub trait Sink: Send {
    /// One more line.
    fn line(&mut self, line: Line);
}

impl Sink for Vec<Line> {
    fn line(&mut self, line: Line) {
        self.push(line);
    }
}

/// The log of a run, shared by its engines. Lines are numbered in the order in which they are taken.
pub struct Log<P: Platform> {
    taken: Option<P::Mutex<Taken>>,
    began_us: OnceLock<u64>,
}

struct Taken {
    sink: Box<dyn Sink>,
    lines: u64,
}

impl<P: Platform> Log<P> {
    /// A log that forgets everything.
    pub fn off() -> Log<P> {
        Log { taken: None, began_us: OnceLock::new() }
    }

    /// A log into a sink.
    pub fn to(sink: Box<dyn Sink>) -> Log<P> {
        Log { taken: Some(P::Mutex::new(Taken { sink, lines: 0 })), began_us: OnceLock::new() }
    }

    /// Whether anybody reads it: where not, nothing need be computed for it.
    pub fn is_on(&self) -> bool {
        self.taken.is_some()
    }

    /// One more thing that happened.
    pub fn note(&self, event: impl FnOnce() -> Event) {
        let Some(taken) = &self.taken else { return };
        let began_us = *self.began_us.get_or_init(P::now_us);
        let event = event();
        let mut taken = taken.lock();
        let at_us = P::now_us() - began_us;
        let seq = taken.lines;
        taken.lines += 1;
        taken.sink.line(Line { seq, at_us, event });
    }

    /// Writes the last line; `settled` if nothing was left to do.
    pub fn end(&self, settled: bool) {
        if let Some(taken) = &self.taken {
            let lines = taken.lock().lines;
            self.note(|| Event::End { lines, settled });
        }
    }
}
