//! Symbols that a process has written for its JIT code: a jitdump, if it has mapped one, and
//! `/tmp/perf-PID.map`.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, SeekFrom, Stat};
use rustix::io::Errno;
use thiserror::Error;

use super::frame::{Evidence, Frame};
use crate::jit_dump::{JitDump, JitDumpError};
use crate::perf_map::{PerfMap, PerfMapError};
use crate::process::{Root, file_owner, namespace_pid};
use crate::table::Symbol;

const BUFFER_BYTES: usize = 1 << 16;
/// Time at which a jitdump has all its functions.
const AT_END: u64 = u64::MAX;

/// The files in which a process names its JIT code.
#[derive(Debug)]
pub struct JitSource {
    /// Root directory of the process.
    pub root: Arc<Root>,
    /// User of the process. Files of other users than this one and root are not used.
    pub uid: u32,
    /// Path of the perf map below `root`.
    pub map: PathBuf,
    /// Path of the jitdump below `root`. A runtime announces it by mapping it.
    pub dump: Option<PathBuf>,
    /// Latest trusted modification time of the files, in seconds since 1970, if the process has
    /// ended: another one may have its id by now.
    pub until: Option<i64>,
}

impl JitSource {
    /// Finds the files of a running process.
    ///
    /// # Errors
    /// The process has ended, or its root directory may not be read.
    pub fn of_process(pid: i32, dump: Option<PathBuf>) -> io::Result<Self> {
        let ended = || io::Error::other("the process has ended");
        let map = Self::map_of(namespace_pid(pid).ok_or_else(ended)?);
        Ok(Self {
            root: Arc::new(Root::of(pid)?),
            uid: file_owner(pid).ok_or_else(ended)?,
            map,
            dump,
            until: None,
        })
    }

    /// Returns the path to which a process writes its perf map. The id is that in its namespace.
    #[must_use]
    pub fn map_of(namespace_pid: i32) -> PathBuf {
        format!("/tmp/perf-{namespace_pid}.map").into()
    }

    /// Opens a file that the process itself, or root, wrote: everybody may write to `/tmp`.
    ///
    /// A link could lead to a file that the process may not read, whose text would be in the trace.
    fn open(&self, path: &Path) -> Result<File, JitError> {
        let mut rejected = None;
        let opened = self.root.open_no_link(path, |found| {
            rejected = self.rejects(path, found);
            match rejected {
                Some(_) => Err(io::ErrorKind::InvalidInput.into()),
                None => Ok(()),
            }
        });
        opened.map_err(|error| rejected.unwrap_or_else(|| JitError::new(path, &error)))
    }

    /// Returns why a file must not be used, by its time and owner.
    fn rejects(&self, path: &Path, found: &Stat) -> Option<JitError> {
        if self.until.is_some_and(|until| found.st_mtime > until) {
            return Some(JitError::Changed(path.to_owned()));
        }
        match found.st_uid {
            owner if owner == self.uid => None,
            0 if is_private(found) => Some(JitError::Private(path.to_owned())),
            0 => None,
            owner => Some(JitError::Owner {
                path: path.to_owned(),
                owner,
                uid: self.uid,
            }),
        }
    }

    fn map(&self, query: &JitQuery<'_>) -> Result<PerfMap, JitError> {
        let file = self.open(&self.map)?;
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| JitError::new(&self.map, &error))?;
        let input = Cancellable {
            is_sparse: metadata.blocks().saturating_mul(512) < metadata.len(),
            ..query.reader(file)
        };
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        let map = match query.addresses {
            Some(addresses) => PerfMap::read_for(input, addresses),
            None => PerfMap::read(input),
        };
        map.map_err(|error| match &error {
            PerfMapError::Read(error) => JitError::new(&self.map, error),
            error => JitError::malformed(&self.map, error),
        })
    }

    /// Opens the jitdump. Returns `None` if the process has mapped none.
    ///
    /// # Errors
    /// The file cannot be opened, or is not that of the process.
    #[must_use]
    pub fn open_dump(&self) -> Option<Result<File, JitError>> {
        Some(self.open(self.dump.as_ref()?))
    }

    /// Returns `None` if the process has mapped no jitdump.
    fn dump(&self, query: &JitQuery<'_>, until: u64) -> Option<Result<JitDump, JitError>> {
        let path = self.dump.as_ref()?;
        Some(self.open_dump()?.and_then(|file| {
            let input = BufReader::with_capacity(BUFFER_BYTES, query.reader(file));
            let dump = JitDump::read(input, until);
            dump.map_err(|error| match &error {
                JitDumpError::Read(error) => JitError::new(path, error),
                error => JitError::malformed(path, error),
            })
        }))
    }
}

/// Returns whether not all users may read a file, or whether it may be a hard link from a directory that
/// they may not search. A process may place such a file of root here by a link or a mount.
fn is_private(file: &Stat) -> bool {
    !Mode::from_raw_mode(file.st_mode).contains(Mode::ROTH) || file.st_nlink > 1
}

/// What to read of the files.
pub struct JitQuery<'a> {
    /// The only addresses that will be looked up. `None`: any.
    pub addresses: Option<&'a [u64]>,
    /// Time (CLOCK_MONOTONIC, in ns) at which the jitdump must have a function.
    pub until: u64,
    /// Whether an address without a function at that time may have one at the jitdump's end.
    pub or_at_end: bool,
    /// Returns whether to give up. Called often.
    pub cancel: &'a dyn Fn() -> bool,
}

impl Default for JitQuery<'_> {
    fn default() -> Self {
        Self {
            addresses: None,
            until: AT_END,
            or_at_end: false,
            cancel: &|| false,
        }
    }
}

impl JitQuery<'_> {
    fn reader(&self, file: File) -> Cancellable<'_> {
        Cancellable {
            file,
            cancel: self.cancel,
            is_sparse: false,
        }
    }
}

/// A file whose reading fails after it is cancelled.
struct Cancellable<'a> {
    file: File,
    cancel: &'a dyn Fn() -> bool,
    /// Whether to read a hole as one NUL: a file may have holes of any size.
    is_sparse: bool,
}

impl Cancellable<'_> {
    /// Moves to the next byte that is not in a hole. Returns whether there was a hole, which may extend to the
    /// end of the file.
    fn skip_hole(&mut self) -> bool {
        let Ok(position) = self.file.stream_position() else {
            return false;
        };
        match rustix::fs::seek(&self.file, SeekFrom::Data(position)) {
            Ok(data) => data > position,
            // There is no more data.
            Err(Errno::NXIO) => self
                .file
                .seek(io::SeekFrom::End(0))
                .is_ok_and(|end| end > position),
            Err(_) => false,
        }
    }
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.cancel)() {
            return Err(io::Error::other("cancelled"));
        }
        match buffer.first_mut() {
            Some(first) if self.is_sparse && self.skip_hole() => {
                *first = 0;
                Ok(1)
            }
            _ => self.file.read(buffer),
        }
    }
}

/// The symbols of the JIT code of a process.
#[derive(Debug, Default)]
pub struct JitSymbols {
    dump: JitDump,
    /// The jitdump at its end.
    last: JitDump,
    map: PerfMap,
    /// Why there is no jitdump although the process has mapped one.
    pub dump_error: Option<JitError>,
    /// Why there is no perf map.
    pub map_error: Option<JitError>,
}

impl JitSymbols {
    /// Reads the files of a process. What cannot be read is in the errors of the result.
    #[must_use]
    pub fn read(source: &JitSource, query: &JitQuery<'_>) -> Self {
        let mut symbols = Self::default();
        match source.dump(query, query.until) {
            Some(Ok(dump)) => symbols.dump = dump,
            Some(Err(error)) => symbols.dump_error = Some(error),
            None => {}
        }
        match source.map(query) {
            Ok(map) => symbols.map = map,
            Err(error) => symbols.map_error = Some(error),
        }
        let is_named = |address: &u64| symbols.dump.lookup(*address).is_some();
        if query.or_at_end
            && query.addresses.is_some_and(|all| !all.iter().all(is_named))
            && let Some(Ok(last)) = source.dump(query, AT_END)
        {
            symbols.last = last;
        }
        symbols
    }

    /// Returns whether neither file could be read.
    #[must_use]
    pub fn is_unreadable(&self, source: &JitSource) -> bool {
        let has_dump = source.dump.is_some() && self.dump_error.is_none();
        !has_dump && self.map_error.is_some()
    }

    /// Returns the perf map, which is empty if it could not be read.
    #[must_use]
    pub fn map(&self) -> &PerfMap {
        &self.map
    }

    /// Returns the function at an address. The jitdump has times, the perf map has stubs, too.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<(Symbol<'_>, Evidence)> {
        let dumps = [&self.dump, &self.last].into_iter();
        let by_dump = dumps.filter_map(|dump| dump.lookup(address)).next();
        let by_dump = by_dump.map(|symbol| (symbol, Evidence::JitDump));
        let by_map = || Some((self.map.lookup(address)?, Evidence::PerfMap));
        by_dump.or_else(by_map)
    }

    /// Returns the function at an address that perf shows: it prefers the perf map, and ignores
    /// lines without a name.
    #[must_use]
    pub fn lookup_as_perf(&self, address: u64) -> Option<Symbol<'_>> {
        let by_map = self.map.lookup(address);
        let by_map = by_map.filter(|symbol| !symbol.name.is_empty());
        by_map.or_else(|| self.dump.lookup(address))
    }

    pub(super) fn frame(&self, address: u64) -> Result<Frame<'_>, JitError> {
        let (symbol, evidence) = self.lookup(address).ok_or_else(|| {
            let error = self.dump_error.as_ref().or(self.map_error.as_ref());
            error.cloned().unwrap_or(JitError::NoSymbol)
        })?;
        Ok(Frame {
            start: Some(symbol.start),
            ..Frame::new(symbol.name, evidence)
        })
    }
}

/// Why a file with the names of JIT code cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JitError {
    /// The process has not written the file.
    #[error("{path} does not exist", path = .0.display())]
    Missing(PathBuf),
    /// The file belongs to another user.
    #[error("{path} belongs to user {owner}, not to {uid} or root", path = path.display())]
    Owner {
        /// Path of the file.
        path: PathBuf,
        /// Owner of the file.
        owner: u32,
        /// User of the process.
        uid: u32,
    },
    /// The file belongs to root, and the process may not be able to read it.
    #[error("{path} belongs to root, and not all users may read it", path = .0.display())]
    Private(PathBuf),
    /// The file was changed after the process had ended.
    #[error("{path} changed after the process had ended", path = .0.display())]
    Changed(PathBuf),
    /// The file may not be opened, or its directory may not be searched.
    #[error("cannot open {path}: {why}", path = path.display())]
    Denied {
        /// Path of the file.
        path: PathBuf,
        /// The error of the kernel.
        why: String,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {why}", path = path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the reader.
        why: String,
    },
    /// The contents of the file cannot be used.
    #[error("{path}: {why}", path = path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The error of the reader.
        why: String,
    },
    /// The files do not have the address.
    #[error("neither perf map nor jitdump has the address")]
    NoSymbol,
}

impl JitError {
    fn new(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        let why = error.to_string();
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::PermissionDenied => Self::Denied { path, why },
            _ => Self::Unreadable { path, why },
        }
    }

    fn malformed(path: &Path, error: &impl ToString) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            why: error.to_string(),
        }
    }
}

#[cfg(test)]
#[path = "jit_tests.rs"]
mod tests;
