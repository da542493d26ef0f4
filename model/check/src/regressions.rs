//! Counterexamples that are kept beside a test, and replayed first the next time.

use std::panic::Location;
use std::path::{Path, PathBuf};

use kvweft_trace::TraceFile;

/// Where the counterexamples of one check lie.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// The test that runs, where its harness says so.
    test: Option<String>,
}

/// One that lies there.
pub(crate) struct Stored {
    pub(crate) path: PathBuf,
    pub(crate) file: TraceFile,
}

impl Home {
    /// Named after the test, which gives its thread its name; else after the source file.
    pub(crate) fn of_caller(caller: &Location<'_>) -> Self {
        let thread = std::thread::current();
        let test = thread.name().filter(|name| *name != "main").map(str::to_owned);
        let source = Path::new(caller.file()).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = test.clone().or(source).unwrap_or_else(|| "system".to_owned());
        // Cargo says where the package of a test lies, also at run time.
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        Self { name, folder: package.join("kvweft-regressions"), test }
    }

    /// The traces kept under this name that can be read, by file name.
    pub(crate) fn stored(&self) -> Vec<Stored> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let prefix = format!("{}.", file_name(&self.name));
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_prefix(&prefix).is_some_and(|rest| rest.ends_with(".trace"))
        };
        let read = |path: PathBuf| {
            let file = TraceFile::parse(&std::fs::read_to_string(&path).ok()?).ok()?;
            (file.scenario == file_name(&self.name)).then_some(Stored { path, file })
        };
        paths.into_iter().filter(ours).filter_map(read).collect()
    }

    /// Writes a trace; gives its file.
    pub(crate) fn keep(&self, file: &TraceFile) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(&self.folder)?;
        let name = file_name(&self.name);
        let path = self.folder.join(format!("{name}.{}.trace", file.violates));
        let file = TraceFile { scenario: name, ..file.clone() };
        std::fs::write(&path, file.to_string())?;
        Ok(path)
    }

    /// What to type in order to see the counterexample again.
    pub(crate) fn command(&self) -> String {
        let package = std::env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let test = self.test.as_ref().map(|name| format!(" -- --exact {name}")).unwrap_or_default();
        format!("replay it with: cargo test{package}{test}")
    }
}

/// A name as part of a file's: what stands between modules becomes one dot.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    name.replace("::", ".").chars().map(plain).collect()
}
