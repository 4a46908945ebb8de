//! The archive that the original perfcollect makes: the recording, and beside it what processes have written of the code they
//! made at run time (`perf-PID.map`, `jit-PID.dump`).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use crate::zip::Zip;

/// Files beside the recording that are unpacked.
const MAX_FILES: usize = 4096;
/// Their bytes.
const MAX_BYTES: u64 = 4 << 30;

/// An archive that is open.
pub(super) struct Archive(Zip);

impl Archive {
    pub(super) fn open(file: File) -> Result<Self, rawzip::Error> {
        Zip::open(file).map(Self)
    }

    /// Unpacks the recording to a file without a name in a directory, as it must be sought in. `None`: there is none.
    pub(super) fn recording(&self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name == "perf.data")
    }

    /// The same of what `perf script` has made of the recording.
    pub(super) fn text(&self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name.ends_with(".data.txt"))
    }

    /// Whether perfcollect has made it.
    pub(super) fn is_trace(&self) -> bool {
        self.names().any(|name| file_name(name) == "summary.json")
    }

    pub(super) fn has_recording(&self) -> bool {
        self.names().any(|name| file_name(name) == "perf.data")
    }

    /// What is in it instead of samples and what reads that, in words.
    pub(super) fn instead(&self) -> &'static str {
        let has = |part: &str| self.names().any(|name| name.contains(part));
        match () {
            // What perfcollect writes has this too, but also the text.
            () if has("lttngTrace/") => {
                ": it holds LTTng events of .NET runtimes only, which PerfView (Events, GCStats, JITStats) and babeltrace open"
            }
            () => "",
        }
    }

    fn unpack(
        &self,
        directory: &Path,
        is_wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Option<File>> {
        let mut entries = self.0.entries().iter();
        let Some(entry) = entries.find(|entry| is_wanted(file_name(&entry.name))) else {
            return Ok(None);
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(rustix::fs::open(directory, flags, private)?);
        io::copy(&mut self.0.unpack(entry)?, &mut file)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Some(file))
    }

    /// Unpacks what is beside it, if anything is, to a folder that goes with the value.
    pub(super) fn beside(&self) -> io::Result<Option<TempDir>> {
        let entries = self.0.entries().iter();
        let mut entries = entries
            .filter(|entry| is_of_jit(file_name(&entry.name)))
            .take(MAX_FILES)
            .peekable();
        if entries.peek().is_none() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let mut room = MAX_BYTES;
        for entry in entries {
            let unpacked = self.0.unpack(entry)?;
            let mut file = match File::create_new(folder.path().join(file_name(&entry.name))) {
                // Two folders of the archive have one of this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            room -= io::copy(&mut unpacked.take(room), &mut file)?;
        }
        Ok(Some(folder))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.entries().iter().map(|entry| &*entry.name)
    }
}

fn file_name(entry: &str) -> &str {
    entry.rsplit('/').next().unwrap_or(entry)
}

fn is_of_jit(name: &str) -> bool {
    let pid = |prefix, suffix| name.strip_prefix(prefix)?.strip_suffix(suffix);
    let pid = pid("perf-", ".map").or_else(|| pid("jit-", ".dump"));
    pid.is_some_and(|pid: &str| pid.parse::<i32>().is_ok())
}
