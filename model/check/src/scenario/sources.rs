//! Where model files and request logs come from.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{Code, Error, Errors, SourceFile};

/// Request logs may be large, but not without end.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// A text and the name that diagnostics show for it.
#[derive(Clone, Debug)]
pub struct Text {
    /// The name.
    pub name: String,
    /// The whole text.
    pub text: Cow<'static, str>,
}

/// Gives the files that a scenario names.
pub trait ModelSource {
    /// The model file of that name; `None` when there is none.
    ///
    /// # Errors
    /// When there is one and it cannot be read.
    fn model(&self, name: &str) -> Result<Option<Text>, Errors>;
    /// The request log of that name; `None` when there is none.
    ///
    /// # Errors
    /// When there is one and it cannot be read.
    fn data(&self, name: &str) -> Result<Option<Text>, Errors>;
    /// The names of all model files that need no path, sorted.
    fn model_names(&self) -> Vec<String>;
    /// The names of all request logs that need no path, sorted.
    fn data_names(&self) -> Vec<String>;
}

/// The files that are built in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Embedded;

impl ModelSource for Embedded {
    fn model(&self, name: &str) -> Result<Option<Text>, Errors> {
        let text = |text| Text { name: format!("<built in>/models/{name}.toml"), text: Cow::Borrowed(text) };
        Ok(kvweft_scenarios::model(name).map(text))
    }

    fn data(&self, name: &str) -> Result<Option<Text>, Errors> {
        let text = |text| Text { name: format!("<built in>/data/{name}"), text: Cow::Borrowed(text) };
        Ok(kvweft_scenarios::data(name).map(text))
    }

    fn model_names(&self) -> Vec<String> {
        kvweft_scenarios::MODELS.iter().map(|file| file.name.to_owned()).collect()
    }

    fn data_names(&self) -> Vec<String> {
        kvweft_scenarios::DATA.iter().map(|file| file.name.to_owned()).collect()
    }
}

/// Files beside a scenario file, and the built-in ones.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The folder of the scenario file.
    pub folder: PathBuf,
}

impl ModelSource for Beside {
    fn model(&self, name: &str) -> Result<Option<Text>, Errors> {
        if !name.ends_with(".toml") {
            return Embedded.model(name);
        }
        let path = self.folder.join(name);
        read(&path, super::document::FILE_BYTES_MAX as u64).map(Some)
    }

    fn data(&self, name: &str) -> Result<Option<Text>, Errors> {
        let path = self.folder.join(name);
        if path.is_file() {
            return read(&path, LOG_BYTES_MAX).map(Some);
        }
        Embedded.data(name)
    }

    fn model_names(&self) -> Vec<String> {
        Embedded.model_names()
    }

    fn data_names(&self) -> Vec<String> {
        Embedded.data_names()
    }
}

/// The whole text of a file of at most `bytes_max` bytes.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Text, Errors> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        Error::whole(&name, Code::Unreadable, format!("the file cannot be read: {}", reason(&error)))
            .help("check the path and its permissions")
    };
    let about = std::fs::metadata(path).map_err(|error| Errors::from(unreadable(error)))?;
    if about.is_dir() {
        let error = Error::whole(&name, Code::Unreadable, "a folder stands where a file was expected");
        return Err(error.help("name a file in it").into());
    }
    if about.len() > bytes_max {
        let error =
            Error::whole(&name, Code::TooLarge, "the file is too large").expected(format!("at most {bytes_max} bytes"));
        return Err(error.found(format!("{} bytes", about.len())).help("check the path").into());
    }
    // Not every file knows its length in advance: read no more than allowed.
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| Errors::from(unreadable(error)))?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| Errors::from(unreadable(error)))?;
    if bytes.len() as u64 > bytes_max {
        let error =
            Error::whole(&name, Code::TooLarge, "the file is too large").expected(format!("at most {bytes_max} bytes"));
        return Err(error.found("more").help("check the path").into());
    }
    Ok(Text { text: Cow::Owned(utf8(&name, bytes)?), name })
}

/// The bytes as a text.
pub(super) fn utf8(name: &str, bytes: Vec<u8>) -> Result<String, Errors> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        // Replacement characters stand behind `at` alone, so that positions before it stay what they are.
        let shown = SourceFile::new(name, &String::from_utf8_lossy(error.as_bytes()));
        Error::at(&shown, at..at + 1, Code::NotUtf8, "the file is not UTF-8")
            .expected("UTF-8 text")
            .found(format!("the byte 0x{byte:02x}"))
            .help("save the file as UTF-8")
            .into()
    })
}

/// The reason in words that do not differ between systems.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
