//! From arguments to a workload and settings.

use std::path::Path;

use kvweft_check::build::model_geometry;
use kvweft_check::scenario::{
    Beside, Code, Component, Dtype, Error, Errors, ModelFile, ModelSource, SourceFile, nearest,
};
use kvweft_core::RuleSite;
use kvweft_sim::workload::{Form, Synthetic};
use kvweft_sim::{Arrival, Faults, Profile, Settings, Workload};
use siphasher::sip::SipHasher24;

use super::Chosen;
use crate::args::{self, IndexK, Switch};
use crate::failure::Failure;
use crate::{input, typed};

/// Sessions at once, and agents, where nothing is said.
const SESSIONS: u32 = 80;
/// A manager has a bit for each layer.
const LAYERS_MAX: usize = 64;

/// What the arguments say.
pub(crate) fn choose(args: &args::Simulate) -> Result<Chosen, Failure> {
    let profile = profile(&args.profile)?;
    let model = model(&args.engine.model)?;
    let index_k = args.engine.index_k.map(|dtype| match dtype {
        IndexK::Fp8 => Dtype::Fp8,
        IndexK::Bf16 => Dtype::Bf16,
        IndexK::Fp4 => Dtype::Fp4,
    });
    index_fits(&model, index_k)?;
    let layers: Vec<usize> = (0..model.layers.len().min(LAYERS_MAX)).collect();
    let geometry = model_geometry(&model, &layers, index_k);
    let Asked { workload, open, digest } = workload(args, u32::from(geometry.page_tokens))?;
    let dropped = input::rules(&args.engine.drop)?;
    let engine = &args.engine;
    let mut settings = Settings::new(profile, geometry, engine.device_pages, engine.host_pages);
    settings.rules = dropped.iter().fold(settings.rules, |rules, at| rules.without(at));
    settings.split = engine.split;
    settings.decode_pages = engine.decode_pages.unwrap_or(engine.device_pages);
    settings.prefix_cache = engine.cache == Switch::On;
    settings.chunk_pages = engine.chunk_pages;
    settings.batch_max = engine.batch_max;
    settings.queue_max = engine.queue_max;
    settings.deadline_ns = engine.deadline_ms * 1_000_000;
    settings.arrival = match args.clients.concurrency {
        Some(0) => Arrival::Open,
        Some(count) => Arrival::Closed(count),
        None if open => Arrival::Open,
        None => Arrival::Closed(SESSIONS),
    };
    settings.think = args.clients.think == Switch::On;
    settings.timeout_ns = args.clients.timeout_ms * 1_000_000;
    settings.faults = Faults {
        lose_permille: args.faults.lose_permille,
        fail_permille: args.faults.fail_permille,
        leave_permille: args.faults.leave_permille,
        leave_ns: args.faults.leave_ms * 1_000_000,
    };
    settings.seed = args.seed;
    let dropped = RuleSite::all().filter(|at| !settings.rules.has(*at)).map(|at| at.to_string()).collect();
    let mut named = model.name;
    if layers.len() < model.layers.len() {
        named += &format!(", the first {} of its {} layers", layers.len(), model.layers.len());
    }
    if let Some(dtype) = index_k {
        named += &format!(", index keys {dtype}");
    }
    Ok(Chosen { workload, name: args.workload.clone(), digest, settings, model: named, dropped })
}

/// What is asked.
struct Asked {
    workload: Workload,
    /// Whether its sessions have times of their own.
    open: bool,
    digest: u64,
}

fn workload(args: &args::Simulate, page_tokens: u32) -> Result<Asked, Failure> {
    let agents = &args.agents;
    if args.workload == "agents" {
        let synthetic = Synthetic {
            sessions: args.clients.sessions.unwrap_or(SESSIONS),
            rounds: agents.rounds,
            system_tokens: agents.system_tokens,
            first_tokens: agents.first_tokens,
            round_tokens: agents.round_tokens,
            answer_tokens: agents.answer_tokens,
            think_ms: agents.think_ms,
            arrival_ms: agents.arrival_ms,
            seed: args.seed,
            block_tokens: page_tokens,
        };
        let digest = digest(&format!("{synthetic:?}"));
        return Ok(Asked { workload: synthetic.workload(), open: false, digest });
    }
    let Log { form, mut workload, digest } = read_log(&args.workload)?;
    if let Some(sessions) = args.clients.sessions {
        workload.truncate(sessions as usize);
    }
    Ok(Asked { workload, open: form != Form::Sessions, digest })
}

/// A log that was read.
pub(crate) struct Log {
    pub(crate) form: Form,
    pub(crate) workload: Workload,
    digest: u64,
}

/// Reads a log, or a built-in head of one.
pub(crate) fn read_log(name: &str) -> Result<Log, Failure> {
    let path = Path::new(name);
    let text = match kvweft_scenarios::data(name) {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(path).map_err(|error| no_log(name, &error))?,
    };
    let form = Workload::form_of(&text).ok_or_else(|| Failure::File {
        path: path.to_owned(),
        why: "its first line is no request of a known log\nexpected: a line of a Mooncake log, of packed agent sessions, or \
              of AgenticMooncake v2; docs/simulate.md describes them"
            .to_owned(),
    })?;
    let workload = Workload::parse(form, &text).map_err(|bad| Failure::Trace {
        path: path.to_owned(),
        line: bad.line,
        message: bad.what,
    })?;
    Ok(Log { form, workload, digest: digest(&text) })
}

fn digest(text: &str) -> u64 {
    SipHasher24::new().hash(text.as_bytes())
}

fn no_log(name: &str, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::NotFound {
        let known = kvweft_scenarios::DATA.iter().map(|file| file.name).chain(["agents"]);
        if let Some(near) = nearest(name, known) {
            let why = format!("no log and no built-in workload is called that; did you mean `{near}`?");
            return Failure::File { path: name.into(), why };
        }
    }
    Failure::io(Path::new(name), "be read", error)
}

fn profile(name: &str) -> Result<Profile, Failure> {
    let path = Path::new(name);
    let text = match kvweft_scenarios::profile(name) {
        Some(text) => text.to_owned(),
        None if name.ends_with(".toml") || path.exists() => {
            std::fs::read_to_string(path).map_err(|error| Failure::io(path, "be read", &error))?
        }
        None => {
            let names: Vec<&str> = kvweft_scenarios::PROFILES.iter().map(|file| file.name).collect();
            let near = nearest(name, names.iter().copied());
            let meant = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let why = format!(
                "there is no profile `{name}`{meant}\nexpected: one of {}, or a profile file",
                names.join(", ")
            );
            return Err(Failure::Option { option: "profile".to_owned(), why });
        }
    };
    let source = SourceFile::new(name, &text);
    let profile: Profile = typed::read(&source, "docs/simulate.md")?;
    let faults = profile.faults().into_iter().map(|(key, why)| {
        let line = text.split_inclusive('\n').take_while(|line| !line.trim_start_matches('[').starts_with(key));
        let start = line.map(str::len).sum();
        Error::at(&source, start..start + key.len(), Code::OutOfBounds, format!("`{key}`: {why}"))
    });
    match Errors::new(faults.collect()) {
        Some(errors) => Err(errors.into()),
        None => Ok(profile),
    }
}

fn model(name: &str) -> Result<ModelFile, Failure> {
    let models = Beside { folder: Path::new("").to_owned() };
    match models.model(name)? {
        Some(text) => Ok(ModelFile::parse(&text.name, &text.text)?),
        None => {
            let names = models.model_names();
            let near = nearest(name, names.iter().map(String::as_str));
            let meant = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let why =
                format!("there is no model `{name}`{meant}\nexpected: one of {}, or a model file", names.join(", "));
            Err(Failure::Option { option: "model".to_owned(), why })
        }
    }
}

/// The wanted dtype of index keys means something for the model.
fn index_fits(model: &ModelFile, index_k: Option<Dtype>) -> Result<(), Failure> {
    let Some(dtype) = index_k else { return Ok(()) };
    let indexed: Vec<&str> = model.kinds().into_iter().filter(|kind| model.has(kind, Component::IndexK)).collect();
    let why = if indexed.is_empty() {
        format!("{} has no index keys\nhelp: leave the option out", model.name)
    } else {
        let Some(kind) = indexed.iter().find(|kind| model.layout(kind, Component::IndexK, dtype).is_none()) else {
            return Ok(());
        };
        format!("{} has no layout for index keys of kind `{kind}` as {dtype}\nhelp: choose another one", model.name)
    };
    Err(Failure::Option { option: "index-k".to_owned(), why })
}
