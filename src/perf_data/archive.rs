//! The archive that the original perfcollect makes: the recording, and beside it what processes have written of the code they
//! made at run time (`perf-PID.map`, `jit-PID.dump`).

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;
use zip::ZipArchive;
use zip::result::ZipError;

/// Files beside the recording that are unpacked.
const MAX_FILES: usize = 4096;
/// Their bytes.
const MAX_BYTES: u64 = 4 << 30;

/// An archive that is open.
pub(super) struct Archive(ZipArchive<BufReader<File>>);

impl Archive {
    pub(super) fn open(file: File) -> Result<Self, ZipError> {
        ZipArchive::new(BufReader::new(file)).map(Self)
    }

    /// Unpacks the recording to a file without a name in a directory, as it must be sought in. `None`: there is none.
    pub(super) fn recording(&mut self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name == "perf.data")
    }

    /// The same of what `perf script` has made of the recording.
    pub(super) fn text(&mut self, directory: &Path) -> io::Result<Option<File>> {
        self.unpack(directory, |name| name.ends_with(".data.txt"))
    }

    /// Whether perfcollect has made it.
    pub(super) fn is_trace(&self) -> bool {
        self.names()
            .iter()
            .any(|name| file_name(name) == "summary.json")
    }

    pub(super) fn has_recording(&self) -> bool {
        let is_recording = |name: &String| file_name(name) == "perf.data";
        self.names().iter().any(is_recording)
    }

    /// What is in it instead of samples and what reads that, in words.
    pub(super) fn instead(&self) -> &'static str {
        let has = |part: &str| self.names().iter().any(|name| name.contains(part));
        match () {
            // What perfcollect writes has this too, but also the text.
            () if has("lttngTrace/") => {
                ": it holds LTTng events of .NET runtimes only, which PerfView (Events, GCStats, JITStats) and babeltrace open"
            }
            () => "",
        }
    }

    fn unpack(
        &mut self,
        directory: &Path,
        is_wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Option<File>> {
        let names = self.names();
        let Some(name) = names.iter().find(|name| is_wanted(file_name(name))) else {
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

    /// Unpacks what is beside it, if anything is, to a folder that goes with the value.
    pub(super) fn beside(&mut self) -> io::Result<Option<TempDir>> {
        let mut names = self.names();
        names.retain(|name| is_of_jit(file_name(name)));
        if names.is_empty() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let mut room = MAX_BYTES;
        for name in names.iter().take(MAX_FILES) {
            let entry = self.0.by_name(name).map_err(io::Error::other)?;
            let mut file = match File::create_new(folder.path().join(file_name(name))) {
                // Two folders of the archive have one of this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            room -= io::copy(&mut entry.take(room), &mut file)?;
        }
        Ok(Some(folder))
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.file_names().filter_map(Result::ok);
        names.map(|name| name.into_owned()).collect()
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
