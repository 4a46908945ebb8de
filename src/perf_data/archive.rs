//! Archive of the perfcollect script: the recording and the JIT symbol files of its processes.
//!
//! JIT symbol files are perf maps (`perf-PID.map`) and jitdumps (`jit-PID.dump`).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use crate::zip::Zip;

/// Maximum number of JIT symbol files to unpack.
const MAX_FILES: usize = 4096;
/// Maximum total size of the unpacked JIT symbol files.
const MAX_BYTES: u64 = 4 << 30;

/// An open archive.
pub(super) struct Archive(Zip);

impl Archive {
    pub(super) fn open(file: File) -> Result<Self, rawzip::Error> {
        Zip::open(file).map(Self)
    }

    /// Unpacks the recording to an anonymous file in a directory, because its reader must seek.
    ///
    /// Returns `None` if the archive contains no recording.
    pub(super) fn recording(&self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name == "perf.data")
    }

    /// Unpacks the output of `perf script` to an anonymous file in a directory.
    ///
    /// Returns `None` if the archive contains no such file.
    pub(super) fn perf_text(&self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name.ends_with(".data.txt"))
    }

    /// Whether the archive is a trace of perfcollect.
    pub(super) fn is_trace(&self) -> bool {
        self.names().any(|name| file_name(name) == "summary.json")
    }

    pub(super) fn has_recording(&self) -> bool {
        self.names().any(|name| file_name(name) == "perf.data")
    }

    /// Describes other content of an archive without samples, and the programs that open it.
    pub(super) fn content_hint(&self) -> &'static str {
        let has = |part: &str| self.names().any(|name| name.contains(part));
        match () {
            // A trace of perfcollect has this directory too, but also the output of `perf script`.
            () if has("lttngTrace/") => {
                "; it contains only LTTng events of .NET runtimes, which PerfView (Events, GCStats, JITStats) and \
                 babeltrace open"
            }
            () => "",
        }
    }

    fn unpack(
        &self,
        directory: &Path,
        is_match: impl Fn(&str) -> bool,
    ) -> io::Result<Option<File>> {
        let mut entries = self.0.entries().iter();
        let Some(entry) = entries.find(|entry| is_match(file_name(&entry.name))) else {
            return Ok(None);
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(rustix::fs::open(directory, flags, private)?);
        io::copy(&mut self.0.unpack(entry)?, &mut file)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Some(file))
    }

    /// Unpacks the JIT symbol files to a temporary directory.
    ///
    /// Returns `None` if the archive contains none.
    pub(super) fn unpack_jit_files(&self) -> io::Result<Option<TempDir>> {
        let entries = self.0.entries().iter();
        let mut entries = entries
            .filter(|entry| is_jit_file(file_name(&entry.name)))
            .take(MAX_FILES)
            .peekable();
        if entries.peek().is_none() {
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        let mut remaining = MAX_BYTES;
        for entry in entries {
            let unpacked = self.0.unpack(entry)?;
            let mut file = match File::create_new(directory.path().join(file_name(&entry.name))) {
                // Two directories of the archive contain a file of this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            remaining -= io::copy(&mut unpacked.take(remaining), &mut file)?;
        }
        Ok(Some(directory))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.entries().iter().map(|entry| &*entry.name)
    }
}

fn file_name(entry: &str) -> &str {
    entry.rsplit('/').next().unwrap_or(entry)
}

fn is_jit_file(name: &str) -> bool {
    let pid = |prefix, suffix| name.strip_prefix(prefix)?.strip_suffix(suffix);
    let pid = pid("perf-", ".map").or_else(|| pid("jit-", ".dump"));
    pid.is_some_and(|pid: &str| pid.parse::<i32>().is_ok())
}
