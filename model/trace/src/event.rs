//! The event log of a run: JSON Lines, schema version 1.
//!
//! The first line is a [`Header`], the last an [`Event::End`] that counts the lines before it, so that a log that was cut
//! off is known for what it is. Between them stands everything that happened, in an order in which it can have happened:
//! an input of a manager together with every effect that it had is one line, and so is each begin and each end of an
//! operation of the device. `docs/schemas/event-log.schema.json` has the same in JSON Schema.

mod input;

pub use input::InputRecord;

use std::fmt;

use kvweft_core::{Component, Config, Effect, Part, StepId, Stream, TransferId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of the schema that this crate writes, and the newest it reads.
pub const SCHEMA: u32 = 1;

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Counts from 0.
    pub seq: u64,
    /// Microseconds since the run began. For the reader: nothing is derived from it.
    pub at_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run begins.
    Run(Header),
    /// A manager took an input, or refused it.
    Input {
        /// Which engine.
        engine: u8,
        /// What came in.
        input: InputRecord,
        /// Why it was refused; nothing has changed then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rejected: Option<String>,
        /// Everything that the manager asked for, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        effects: Vec<Effect>,
    },
    /// A copy between tiers moves one component of one layer.
    Copy {
        /// Which engine.
        engine: u8,
        /// The stream it runs on.
        stream: Stream,
        /// The copy.
        transfer: TransferId,
        /// The layer.
        layer: u8,
        /// The component.
        component: Component,
        /// Begin or end.
        phase: Phase,
        /// At the end, one sum for each page written, in the order of the copy's pairs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sums: Vec<Sum>,
    },
    /// The event of a layer of a reload is recorded; without a layer, the completion of a copy on another stream.
    Record {
        /// Which engine.
        engine: u8,
        /// The stream it is recorded on.
        stream: Stream,
        /// The copy.
        transfer: TransferId,
        /// The layer.
        layer: Option<u8>,
    },
    /// A forward step reads one component of one layer.
    Read {
        /// Which engine.
        engine: u8,
        /// The step.
        step: StepId,
        /// The layer.
        layer: u8,
        /// The component.
        component: Component,
        /// One sum for each page read, item by item; empty where only single rows were read.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sums: Vec<Sum>,
    },
    /// A forward step writes the new tokens of one layer.
    Write {
        /// Which engine.
        engine: u8,
        /// The step.
        step: StepId,
        /// The layer.
        layer: u8,
        /// Begin or end.
        phase: Phase,
        /// At the end, for each page written, item by item, the sum of its index keys (where the layer has them) and of
        /// its KV entries.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sums: Vec<Sum>,
    },
    /// The prefill engine writes a part of a transfer into the pages of the decode engine.
    Send {
        /// The transfer.
        transfer: TransferId,
        /// The part.
        part: Part,
        /// Begin or end; metadata has an end alone.
        phase: Phase,
        /// At the end, one sum for each page written: part by part, layer by layer, in the order of the pairs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sums: Vec<Sum>,
    },
    /// A part of a send has stopped half way; what it has written is unknown.
    SendFailed {
        /// The transfer.
        transfer: TransferId,
        /// The part.
        part: Part,
    },
    /// A forward step that neither reads nor writes has passed.
    Nothing {
        /// Which engine.
        engine: u8,
        /// The step.
        step: StepId,
    },
    /// A control message was lost.
    Lost {
        /// 0 towards prefill, 1 towards decode.
        link: u8,
    },
    /// The run is over.
    End {
        /// Lines before this one.
        lines: u64,
        /// Whether nothing was left to do: no operation queued, no report untaken, no message under way.
        settled: bool,
    },
}

/// What is fixed about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the schema: [`SCHEMA`].
    pub schema: u32,
    /// The program that wrote the log, with its version.
    pub tool: String,
    /// The name of the run.
    pub run: String,
    /// The device: `host` or `cuda`.
    pub device: String,
    /// The configuration of each manager: one engine, or prefill and decode.
    pub engines: Vec<Config>,
}

/// Begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing has been touched yet.
    Begin,
    /// Nothing will be touched any more.
    End,
}

/// A checksum of the bytes of one cell: one component of one layer of one page. Moving the cell does not change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(pub u64);

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let sum = (text.len() == 16).then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        sum.map(Sum).ok_or_else(|| D::Error::custom(format!("expected a sum of 16 hexadecimal digits, got `{text}`")))
    }
}

impl Line {
    /// The line as it stands in a log, without a line break.
    ///
    /// # Panics
    /// Never: every field has a form in JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every field has a form in JSON")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What was expected and what came, with the column.
    pub fn parse(text: &str) -> Result<Line, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}
