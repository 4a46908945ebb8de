//! Archive of the perfcollect script: the recording and the JIT symbol files of its processes.
//!
//! JIT symbol files are perf maps (`perf-PID.map`) and jitdumps (`jit-PID.dump`).

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;
use zip::ZipArchive;
use zip::result::ZipError;

/// Maximum number of JIT symbol files to unpack.
const MAX_FILES: usize = 4096;
/// Maximum total size of the unpacked JIT symbol files.
const MAX_BYTES: u64 = 4 << 30;

/// An open archive.
pub(super) struct Archive(ZipArchive<BufReader<File>>);

impl Archive {
    pub(super) fn open(file: File) -> Result<Self, ZipError> {
        ZipArchive::new(BufReader::new(file)).map(Self)
    }

    /// Unpacks the recording to an anonymous file in a directory, because its reader must seek.
    ///
    /// Returns `None` if the archive contains no recording.
    pub(super) fn recording(&mut self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name == "perf.data")
    }

    /// Unpacks the output of `perf script` to an anonymous file in a directory.
    ///
    /// Returns `None` if the archive contains no such file.
    pub(super) fn perf_text(&mut self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name.ends_with(".data.txt"))
    }

    /// Whether the archive is a trace of perfcollect.
    pub(super) fn is_trace(&self) -> bool {
        self.names()
            .iter()
            .any(|name| file_name(name) == "summary.json")
    }

    pub(super) fn has_recording(&self) -> bool {
        let is_recording = |name: &String| file_name(name) == "perf.data";
        self.names().iter().any(is_recording)
    }

    /// Describes other content of an archive without samples, and the programs that open it.
    pub(super) fn content_hint(&self) -> &'static str {
        let has = |part: &str| self.names().iter().any(|name| name.contains(part));
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
        &mut self,
        directory: &Path,
        is_match: impl Fn(&str) -> bool,
    ) -> io::Result<Option<File>> {
        let names = self.names();
        let Some(name) = names.iter().find(|name| is_match(file_name(name))) else {
            return Ok(None);
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(rustix::fs::open(directory, flags, private)?);
        let entry = self.0.by_name(name).map_err(io::Error::other)?;
        let size = entry.size();
        io::copy(&mut entry.take(size), &mut file)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Some(file))
    }

    /// Unpacks the JIT symbol files to a temporary directory.
    ///
    /// Returns `None` if the archive contains none.
    pub(super) fn unpack_jit_files(&mut self) -> io::Result<Option<TempDir>> {
        let mut names = self.names();
        names.retain(|name| is_jit_file(file_name(name)));
        if names.is_empty() {
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        let mut remaining = MAX_BYTES;
        for name in names.iter().take(MAX_FILES) {
            let entry = self.0.by_name(name).map_err(io::Error::other)?;
            let mut file = match File::create_new(directory.path().join(file_name(name))) {
                // Two directories of the archive contain a file of this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            remaining -= io::copy(&mut entry.take(remaining), &mut file)?;
        }
        Ok(Some(directory))
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.file_names().filter_map(Result::ok);
        names.map(|name| name.into_owned()).collect()
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
