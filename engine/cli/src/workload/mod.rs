//! What a run plays, from a file and from the command line, which has the last word.

mod build;
mod file;
pub(crate) mod keys;

use std::ops::Range;
use std::path::{Path, PathBuf};

use kvweft_check::scenario::{Code, Dtype, Error, ModelFile, SourceFile};
use kvweft_shell::run::Workload;

use crate::args::{IndexK, Played, Switch};
use crate::failure::Failure;

pub(crate) use build::page_bytes;

/// Which layers of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layers {
    /// So many, from the first.
    First(usize),
    /// One layer of each kind, each behind the one before.
    Kinds(Vec<String>),
}

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// In pages.
    Pages(u32),
    /// As a share of the pages of all sessions at their longest.
    Percent(u32),
}

/// A value, and where in the file it stands; `None` for the command line.
#[derive(Clone, Debug)]
pub(crate) struct Told<T> {
    pub(crate) value: T,
    pub(crate) span: Option<Range<usize>>,
}

/// Everything that was said about a workload; what was not said has its default.
#[derive(Debug, Default)]
struct Said {
    sessions: Option<Told<u64>>,
    rounds: Option<Told<u64>>,
    model: Option<Told<String>>,
    layers: Option<Told<Layers>>,
    index_k: Option<Told<Dtype>>,
    cache: Option<Told<bool>>,
    split: Option<Told<bool>>,
    drop: Option<Vec<Told<String>>>,
    device_pages: Option<Told<Pool>>,
    host_pages: Option<Told<Pool>>,
    decode_pages: Option<Told<Pool>>,
    chunk_pages: Option<Told<u64>>,
    seed: Option<Told<u64>>,
    heads: Option<Told<u64>>,
    system_tokens: Option<Told<u64>>,
    first_tokens: Option<Told<u64>>,
    round_tokens: Option<Told<u64>>,
    prompt_token_us: Option<Told<u64>>,
    timeout_ms: Option<Told<u64>>,
    deadline_ms: Option<Told<u64>>,
}

/// What a run plays, and what people call it.
pub(crate) struct Chosen {
    pub(crate) workload: Workload,
    pub(crate) model: ModelFile,
    /// The layers taken from the model.
    pub(crate) layers: Vec<usize>,
}

/// The workload of a file, if there is one, and of the command line.
///
/// # Errors
/// The first thing that is wrong with the command line, or everything that is wrong with the file.
pub(crate) fn choose(file: Option<&str>, played: &Played) -> Result<Chosen, Failure> {
    let (source, mut said) = match file {
        Some(name) => {
            let (source, said) = file::read(name)?;
            (Some(source), said)
        }
        None => (None, Said::default()),
    };
    said.overridden_by(played);
    let folder = file.and_then(|name| Path::new(name).parent()).map_or_else(PathBuf::new, Path::to_path_buf);
    build::build(said, source.as_ref(), &folder)
}

impl Said {
    fn overridden_by(&mut self, played: &Played) {
        fn over<T: Clone>(said: &mut Option<Told<T>>, value: Option<T>) {
            if let Some(value) = value {
                *said = Some(Told { value, span: None });
            }
        }
        over(&mut self.sessions, played.sessions);
        over(&mut self.rounds, played.rounds);
        over(&mut self.model, played.model.clone());
        over(&mut self.layers, played.layers.clone());
        over(
            &mut self.index_k,
            played.index_k.map(|dtype| match dtype {
                IndexK::Fp8 => Dtype::Fp8,
                IndexK::Bf16 => Dtype::Bf16,
                IndexK::Fp4 => Dtype::Fp4,
            }),
        );
        over(&mut self.cache, played.cache.map(|cache| cache == Switch::On));
        over(&mut self.split, played.split.then_some(true));
        if !played.drop.is_empty() {
            self.drop = Some(played.drop.iter().map(|rule| Told { value: rule.clone(), span: None }).collect());
        }
        over(&mut self.device_pages, played.device_pages);
        over(&mut self.host_pages, played.host_pages);
        over(&mut self.decode_pages, played.decode_pages);
        over(&mut self.chunk_pages, played.chunk_pages);
        over(&mut self.seed, played.seed);
        over(&mut self.heads, played.heads);
        over(&mut self.system_tokens, played.system_tokens);
        over(&mut self.first_tokens, played.first_tokens);
        over(&mut self.round_tokens, played.round_tokens);
        over(&mut self.prompt_token_us, played.prompt_token_us);
        over(&mut self.timeout_ms, played.timeout_ms);
        over(&mut self.deadline_ms, played.deadline_ms);
    }
}

/// What is wrong with a value, wherever it was said.
struct Wrong<'a> {
    code: Code,
    what: &'a str,
    expected: String,
    help: String,
}

impl Wrong<'_> {
    /// As an error of the file, or of the command line's option.
    fn with<T>(self, key: &str, told: Option<&Told<T>>, source: Option<&SourceFile>) -> Failure {
        if let (Some(source), Some(span)) = (source, told.and_then(|told| told.span.clone())) {
            let found = source.text().get(span.clone()).unwrap_or_default().to_owned();
            let error = Error::at(source, span, self.code, self.what);
            let error = error.expected(self.expected).found(found).help(self.help);
            return Failure::from(kvweft_check::scenario::Errors::from(error));
        }
        let mut why = self.what.to_owned();
        for (label, text) in [("expected", self.expected), ("help", self.help)] {
            if !text.is_empty() {
                why += &format!("\n{label}: {text}");
            }
        }
        Failure::Option { option: key.replace('_', "-"), why }
    }
}
