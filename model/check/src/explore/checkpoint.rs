//! Checkpoints: a search as a file, from which it goes on as if it had never stopped.
//!
//! A checkpoint is taken between two levels and holds the tables of the search, not its states: those of the level to be
//! expanded next are made again by taking the steps that led to them. So it works for every system, and takes about what
//! the report calls bytes a state.
//!
//! The file is written beside its final name and renamed when it is complete. Whatever happens to the process or the
//! machine, what stands under the name is a whole checkpoint, or none.
//!
//! Layout, little-endian: 16 bytes of magic, the version, the identity of the search, the tables, and a 128-bit checksum
//! over all of it.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::fingerprint::Lanes;

const MAGIC: &[u8; 16] = b"kvweft search\r\n\n";
/// Grows with every change of the layout, of fingerprints, and of the order in which states are numbered.
const VERSION: u32 = 1;
const CHECKSUM_BYTES: u64 = 16;
/// A checkpoint is not begun before the search has run so many times as long as the last one took to write.
const SEARCH_PER_WRITE: u32 = 20;

/// Where a search keeps its checkpoint, and how often it takes one.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The file. If it is there, the search goes on from it.
    pub path: PathBuf,
    /// Which search this is, in one line of words: system, faults, program. A file of another search is refused.
    pub identity: String,
    /// The least time between two checkpoints. One more is taken at the end, so that a finished search is not repeated.
    pub every: Duration,
}

/// Why a checkpoint cannot be written, or a search cannot go on from one.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read or written, for instance because the disk is full. A former checkpoint is still whole.
    #[error("{}: cannot {doing} the checkpoint: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// `read` or `write`.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It is no checkpoint.
    #[error("{}: expected a checkpoint of kvweft, got another file", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
    /// It was written by another version of the program.
    #[error("{}: expected a checkpoint of format {VERSION}, got format {found}: start again without it", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It is a checkpoint of another search.
    #[error(
        "{}: this is the checkpoint of another search: start again without it\nexpected: {expected}\ngot: {found}",
        path.display()
    )]
    OtherSearch {
        /// Which file.
        path: PathBuf,
        /// The search that is run.
        expected: String,
        /// The search that it is of.
        found: String,
    },
    /// It is cut short, or bytes in it have changed.
    #[error("{}: the checkpoint is damaged: {why}; start again without it", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What shows it.
        why: String,
    },
}

/// Writes checkpoints when it is time.
pub(super) struct Keeper<'a> {
    checkpoint: &'a Checkpoint,
    last: Instant,
    took: Duration,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, last: Instant::now(), took: Duration::ZERO }
    }

    pub(super) fn is_due(&self) -> bool {
        let every = self.checkpoint.every;
        every.is_zero() || self.last.elapsed() >= every.max(self.took * SEARCH_PER_WRITE)
    }

    /// Writes what `save` says.
    pub(super) fn write(&mut self, save: impl FnOnce(&mut Saver) -> io::Result<()>) -> Result<(), CheckpointError> {
        let begun = Instant::now();
        let path = &self.checkpoint.path;
        let beside = path.with_extension("unfinished");
        let written = write_whole(&beside, path, &self.checkpoint.identity, save);
        if let Err(source) = written {
            // It is of no use to anybody, and may be what fills the disk.
            let _ = fs::remove_file(&beside);
            return Err(CheckpointError::Io { path: path.clone(), doing: "write", source });
        }
        self.took = begun.elapsed();
        self.last = Instant::now();
        Ok(())
    }
}

fn write_whole(
    beside: &Path,
    path: &Path,
    identity: &str,
    save: impl FnOnce(&mut Saver) -> io::Result<()>,
) -> io::Result<()> {
    let mut saver = Saver { file: BufWriter::with_capacity(1 << 20, File::create(beside)?), sum: Sum::default() };
    saver.bytes(MAGIC)?;
    saver.put(VERSION)?;
    saver.text(identity)?;
    save(&mut saver)?;
    let Saver { mut file, sum } = saver;
    file.write_all(&sum.finish().to_le_bytes())?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    // So that the new name is on the disk as well.
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Reads the checkpoint of this search, if there is one.
pub(super) fn read<T>(
    checkpoint: &Checkpoint,
    load: impl FnOnce(&mut Loader) -> io::Result<T>,
) -> Result<Option<T>, CheckpointError> {
    let path = &checkpoint.path;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            CheckpointError::Damaged { path: path.clone(), why: "a table does not fit".to_owned() }
        }
        _ => CheckpointError::Io { path: path.clone(), doing: "read", source },
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let length = file.metadata().map_err(failed)?.len();
    let mut loader = Loader { file: BufReader::with_capacity(1 << 20, file), left: length };
    let mut magic = [0; MAGIC.len()];
    match loader.fill(&mut magic) {
        Ok(()) if magic == *MAGIC => {}
        Ok(()) => return Err(CheckpointError::Foreign { path: path.clone() }),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(CheckpointError::Foreign { path: path.clone() });
        }
        Err(error) => return Err(failed(error)),
    }
    let found = loader.take().map_err(failed)?;
    if found != VERSION {
        return Err(CheckpointError::Version { path: path.clone(), found });
    }
    // Nothing in it is believed before the whole of it is known to be as it was written.
    verify(path, length)?;
    let found = loader.text().map_err(failed)?;
    if found != checkpoint.identity {
        return Err(CheckpointError::OtherSearch { path: path.clone(), expected: checkpoint.identity.clone(), found });
    }
    let loaded = load(&mut loader).map_err(failed)?;
    if loader.left != CHECKSUM_BYTES {
        return Err(failed(io::ErrorKind::InvalidData.into()));
    }
    Ok(Some(loaded))
}

fn verify(path: &Path, length: u64) -> Result<(), CheckpointError> {
    let damaged = |why: &str| CheckpointError::Damaged { path: path.to_owned(), why: why.to_owned() };
    let io = |source| CheckpointError::Io { path: path.to_owned(), doing: "read", source };
    let body = length.checked_sub(CHECKSUM_BYTES).ok_or_else(|| damaged("it is cut short"))?;
    let mut file = File::open(path).map_err(io)?;
    let mut sum = Sum::default();
    let mut left = body;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let some = left.min(buffer.len() as u64) as usize;
        file.read_exact(&mut buffer[..some]).map_err(io)?;
        sum.add(&buffer[..some]);
        left -= some as u64;
    }
    let mut expected = [0; CHECKSUM_BYTES as usize];
    file.read_exact(&mut expected).map_err(io)?;
    if sum.finish().to_le_bytes() == expected {
        Ok(())
    } else {
        Err(damaged("its checksum does not fit, so it is cut short or has changed"))
    }
}

/// A checksum over bytes, whatever the pieces in which they come.
#[derive(Default)]
struct Sum {
    lanes: Lanes,
    rest: Vec<u8>,
    length: u64,
}

impl Sum {
    fn add(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if !self.rest.is_empty() {
            let (head, tail) = bytes.split_at(bytes.len().min(16 - self.rest.len()));
            self.rest.extend_from_slice(head);
            bytes = tail;
            if let Ok(block) = self.rest.as_slice().try_into() {
                self.lanes.absorb(u128::from_le_bytes(block));
                self.rest.clear();
            }
        }
        let (blocks, rest) = bytes.as_chunks::<16>();
        blocks.iter().for_each(|block| self.lanes.absorb(u128::from_le_bytes(*block)));
        self.rest.extend_from_slice(rest);
    }

    fn finish(mut self) -> u128 {
        self.rest.resize(16, 0);
        let last = self.rest.as_slice().try_into().expect("just made so long");
        self.lanes.absorb(u128::from_le_bytes(last));
        self.lanes.absorb(u128::from(self.length));
        self.lanes.finish()
    }
}

/// Appends to a checkpoint.
pub(crate) struct Saver {
    file: BufWriter<File>,
    sum: Sum,
}

impl Saver {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.add(bytes);
        self.file.write_all(bytes)
    }

    pub(crate) fn put<W: Word>(&mut self, word: W) -> io::Result<()> {
        self.bytes(word.to_bytes().as_ref())
    }

    /// A list with its length.
    pub(crate) fn list<W: Word>(&mut self, words: impl ExactSizeIterator<Item = W>) -> io::Result<()> {
        self.put(words.len() as u64)?;
        words.into_iter().try_for_each(|word| self.put(word))
    }

    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.put(text.len() as u64)?;
        self.bytes(text.as_bytes())
    }
}

/// Reads a checkpoint on.
pub(crate) struct Loader {
    file: BufReader<File>,
    left: u64,
}

impl Loader {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.read_exact(bytes)
    }

    pub(crate) fn take<W: Word>(&mut self) -> io::Result<W> {
        let mut bytes = W::Bytes::default();
        self.fill(bytes.as_mut())?;
        Ok(W::from_bytes(bytes))
    }

    /// A list, word by word.
    pub(crate) fn list<W: Word>(&mut self, mut each: impl FnMut(W)) -> io::Result<()> {
        let count: u64 = self.take()?;
        for _ in 0..count {
            each(self.take()?);
        }
        Ok(())
    }

    pub(crate) fn text(&mut self) -> io::Result<String> {
        let length: u64 = self.take()?;
        if length > self.left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The name of a property. Properties are named for ever; there are few.
    pub(crate) fn name(&mut self) -> io::Result<&'static str> {
        Ok(self.text()?.leak())
    }
}

/// A number in a checkpoint.
pub(crate) trait Word: Copy {
    type Bytes: AsRef<[u8]> + AsMut<[u8]> + Default;
    fn to_bytes(self) -> Self::Bytes;
    fn from_bytes(bytes: Self::Bytes) -> Self;
}

macro_rules! word {
    ($($word:ty),*) => {$(
        impl Word for $word {
            type Bytes = [u8; size_of::<$word>()];

            fn to_bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }

            fn from_bytes(bytes: Self::Bytes) -> Self {
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}

word!(u8, u16, u32, u64, u128);
