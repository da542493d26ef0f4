//! Workload files: every mistake with its line, and the nearest valid name.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use kvweft_check::scenario::{Code, Dtype, Error, Errors, SourceFile, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Kind, layer_count, layer_kinds, page_count, share};
use super::{Said, Told};

/// A larger file is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a workload, built in or from a file.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn read(name: &str) -> Result<(SourceFile, Said), Errors> {
    let source = match kvweft_scenarios::workload(name) {
        Some(text) => SourceFile::new(&format!("<built in>/workloads/{name}.toml"), text),
        None => SourceFile::new(name, &text(Path::new(name))?),
    };
    let (tree, errors) = DeTable::parse_recoverable(source.text());
    if let Some(errors) = Errors::new(errors.iter().map(|error| syntax(&source, error)).collect()) {
        return Err(errors);
    }
    let mut reader = Reader { source: &source, errors: Vec::new() };
    let said = reader.said(tree.get_ref());
    match Errors::new(reader.errors) {
        Some(errors) => Err(errors),
        None => Ok((source, said)),
    }
}

fn text(path: &Path) -> Result<String, Errors> {
    let name = path.display().to_string();
    let unreadable = |what: String, help: &str| Error::whole(&name, Code::Unreadable, what).help(help);
    if path.is_dir() {
        return Err(unreadable("a folder stands where a file was expected".to_owned(), "name a file in it").into());
    }
    let failed = |error: std::io::Error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => return Errors::from(missing(&name)),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        Errors::from(unreadable(format!("the file cannot be read: {reason}"), "check the path and its permissions"))
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let error = Error::whole(&name, Code::TooLarge, "the file is too large to be a workload");
        return Err(error.expected(format!("at most {FILE_BYTES_MAX} bytes")).help("check the path").into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let shown = SourceFile::new(&name, &String::from_utf8_lossy(error.as_bytes()));
        let error = Error::at(&shown, at..at + 1, Code::NotUtf8, "the file is not UTF-8");
        error.expected("UTF-8 text").help("save the file as UTF-8").into()
    })
}

/// Neither a file nor built in.
fn missing(name: &str) -> Error {
    let built_in = || kvweft_scenarios::WORKLOADS.iter().map(|file| file.name);
    let help = match nearest(name, built_in()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "check the path".to_owned(),
    };
    let what = "there is no such workload file, and none of this name is built in";
    let expected = format!("a file, or one of {}", built_in().collect::<Vec<_>>().join(", "));
    Error::whole(name, Code::Unreadable, what).expected(expected).help(help)
}

fn syntax(source: &SourceFile, error: &toml::de::Error) -> Error {
    let (what, expected) = error.message().split_once(", expected ").unwrap_or((error.message(), ""));
    let (code, help) = match what {
        "duplicate key" => (Code::Duplicate, "keep one of them"),
        _ => (Code::Syntax, "check quotes, brackets and `=` here; the format is TOML 1.0"),
    };
    Error::at(source, error.span().unwrap_or(0..0), code, what).expected(expected).help(help)
}

struct Reader<'s> {
    source: &'s SourceFile,
    errors: Vec<Error>,
}

impl Reader<'_> {
    fn said(&mut self, entries: &DeTable<'_>) -> Said {
        let mut said = Said::default();
        let names = || KEYS.iter().map(|(name, _)| *name);
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            let Some((_, kind)) = KEYS.iter().find(|(known, _)| *known == name) else {
                let help = match nearest(name, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "remove it; docs/workloads.md lists every key".to_owned(),
                };
                let expected = format!("one of {}", names().collect::<Vec<_>>().join(", "));
                let what = format!("unknown key `{}`", shortened(name));
                self.errors
                    .push(Error::at(self.source, key.span(), Code::UnknownKey, what).expected(expected).help(help));
                continue;
            };
            self.entry(&mut said, name, kind, value);
        }
        said
    }

    fn entry(&mut self, said: &mut Said, name: &str, kind: &Kind, value: &Spanned<DeValue<'_>>) {
        let spot = Spot { name, kind, value };
        match name {
            "format" => self.format(&spot),
            "title" => self.title(&spot),
            "sessions" => said.sessions = self.integer(&spot),
            "rounds" => said.rounds = self.integer(&spot),
            "model" => said.model = self.text(&spot).map(|text| spot.told(text)),
            "layers" => said.layers = self.layers(&spot),
            "index_k" => said.index_k = self.dtype(&spot),
            "cache" => said.cache = self.flag(&spot),
            "split" => said.split = self.flag(&spot),
            "drop" => said.drop = self.texts(&spot),
            "device_pages" => said.device_pages = self.pool(&spot),
            "host_pages" => said.host_pages = self.pool(&spot),
            "decode_pages" => said.decode_pages = self.pool(&spot),
            "chunk_pages" => said.chunk_pages = self.integer(&spot),
            "seed" => said.seed = self.integer(&spot),
            "heads" => said.heads = self.integer(&spot),
            "system_tokens" => said.system_tokens = self.integer(&spot),
            "first_tokens" => said.first_tokens = self.integer(&spot),
            "round_tokens" => said.round_tokens = self.integer(&spot),
            "prompt_token_us" => said.prompt_token_us = self.integer(&spot),
            "timeout_ms" => said.timeout_ms = self.integer(&spot),
            "deadline_ms" => said.deadline_ms = self.integer(&spot),
            _ => unreachable!("`{name}` is in the list of keys"),
        }
    }

    fn note(&mut self, spot: &Spot<'_>, span: Range<usize>, code: Code) {
        let what = match code {
            Code::WrongType => format!("`{}` has the wrong type", spot.name),
            _ => format!("`{}` is out of bounds", spot.name),
        };
        let help = match code {
            Code::WrongType => format!("write it as `{} = {}`", spot.name, spot.kind.example()),
            _ => "choose a value within the bounds".to_owned(),
        };
        let found = shortened(self.source.text().get(span.clone()).unwrap_or_default());
        self.errors.push(Error::at(self.source, span, code, what).expected(spot.kind.wanted()).found(found).help(help));
    }

    fn wrong_type(&mut self, spot: &Spot<'_>) {
        self.note(spot, spot.value.span(), Code::WrongType);
    }

    fn out_of_bounds(&mut self, spot: &Spot<'_>) {
        self.note(spot, spot.value.span(), Code::OutOfBounds);
    }

    fn format(&mut self, spot: &Spot<'_>) {
        if spot.number().is_some_and(|format| format > 1) {
            let error =
                Error::at(self.source, spot.value.span(), Code::NewerFormat, "the file is written for a later kvweft");
            let found = format!("format {}", spot.number().unwrap_or_default());
            self.errors.push(error.expected("format 1").found(found).help("use a later kvweft for this file"));
        } else {
            self.integer(spot);
        }
    }

    fn title(&mut self, spot: &Spot<'_>) {
        let fits = |text: &str| (1..=120).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if self.text(spot).is_some_and(|text| !fits(&text)) {
            self.out_of_bounds(spot);
        }
    }

    fn integer(&mut self, spot: &Spot<'_>) -> Option<Told<u64>> {
        let (DeValue::Integer(_), Kind::Integer(bounds)) = (spot.value.get_ref(), spot.kind) else {
            self.wrong_type(spot);
            return None;
        };
        let number = spot.number().filter(|number| bounds.contains(number));
        if number.is_none() {
            self.out_of_bounds(spot);
        }
        number.map(|number| spot.told(number))
    }

    fn flag(&mut self, spot: &Spot<'_>) -> Option<Told<bool>> {
        let DeValue::Boolean(flag) = spot.value.get_ref() else {
            self.wrong_type(spot);
            return None;
        };
        Some(spot.told(*flag))
    }

    fn text(&mut self, spot: &Spot<'_>) -> Option<String> {
        let DeValue::String(text) = spot.value.get_ref() else {
            self.wrong_type(spot);
            return None;
        };
        Some(text.clone().into_owned())
    }

    fn texts(&mut self, spot: &Spot<'_>) -> Option<Vec<Told<String>>> {
        let DeValue::Array(list) = spot.value.get_ref() else {
            self.wrong_type(spot);
            return None;
        };
        let mut texts = Vec::new();
        for element in list.iter() {
            match element.get_ref() {
                DeValue::String(text) => {
                    texts.push(Told { value: text.clone().into_owned(), span: Some(element.span()) });
                }
                _ => {
                    self.note(spot, element.span(), Code::WrongType);
                    return None;
                }
            }
        }
        Some(texts)
    }

    fn dtype(&mut self, spot: &Spot<'_>) -> Option<Told<Dtype>> {
        let text = self.text(spot)?;
        let found = Dtype::from_name(&text);
        if found.is_none() {
            let what = "`index_k` has no value of this name";
            let help = match nearest(&text, Dtype::NAMES.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "take one of these".to_owned(),
            };
            let error = Error::at(self.source, spot.value.span(), Code::UnknownName, what);
            let found = format!("\"{}\"", shortened(&text));
            self.errors.push(error.expected(spot.kind.wanted()).found(found).help(help));
        }
        found.map(|dtype| spot.told(dtype))
    }

    fn layers(&mut self, spot: &Spot<'_>) -> Option<Told<super::Layers>> {
        let layers = match spot.value.get_ref() {
            DeValue::Integer(_) => spot.number().and_then(layer_count),
            DeValue::Array(_) => layer_kinds(self.texts(spot)?.into_iter().map(|kind| kind.value).collect()),
            _ => {
                self.wrong_type(spot);
                return None;
            }
        };
        if layers.is_none() {
            self.out_of_bounds(spot);
        }
        layers.map(|layers| spot.told(layers))
    }

    fn pool(&mut self, spot: &Spot<'_>) -> Option<Told<super::Pool>> {
        let pool = match spot.value.get_ref() {
            DeValue::Integer(_) => spot.number().and_then(page_count),
            DeValue::String(text) => share(text),
            _ => {
                self.wrong_type(spot);
                return None;
            }
        };
        if pool.is_none() {
            self.out_of_bounds(spot);
        }
        pool.map(|pool| spot.told(pool))
    }
}

/// One key with its value.
struct Spot<'v> {
    name: &'v str,
    kind: &'v Kind,
    value: &'v Spanned<DeValue<'v>>,
}

impl Spot<'_> {
    fn told<T>(&self, value: T) -> Told<T> {
        Told { value, span: Some(self.value.span()) }
    }

    /// An integer that is not negative.
    fn number(&self) -> Option<u64> {
        let DeValue::Integer(integer) = self.value.get_ref() else { return None };
        u64::from_str_radix(integer.as_str(), integer.radix()).ok()
    }
}

/// The first characters of a text, on one line.
fn shortened(text: &str) -> String {
    let line: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > 40 { format!("{line}..") } else { line }
}
