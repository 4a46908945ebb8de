//! The directory of event streams: hidden in the directory of its trace, until the trace is
//! complete.
//!
//! It contains one file per session with the stream as received, and one file with the threads of
//! each process in a container.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::directory;
use super::event_threads::{self, EventThreads};
use super::file::{self, FileOwner, OutputError, PathAt};
use super::spool_file;
use crate::dotnet::StreamSink;
use crate::machine;
use crate::trace::{Pid, StreamContent, StreamFiles, StreamName, Tid};

const SUFFIX: &str = ".trace.events";
/// Suffix of a stream's file name.
const STREAM_SUFFIX: &str = ".nettrace.lz4";
/// Suffix in older versions, which did not compress.
const PLAIN_STREAM_SUFFIX: &str = ".nettrace";
/// Suffix of a file with the threads of a process. The process id precedes it.
const THREADS_SUFFIX: &str = ".threads";
/// Maximum number of streams per process id and content. Each exec of a .NET program starts one.
const MAX_LIVES: u32 = 1000;
/// Maximum number of streams to read from a directory.
const MAX_STREAMS: usize = 100_000;

/// A stream of one process.
#[derive(Debug)]
pub struct StoredStream {
    /// File name without its suffix.
    pub name: StreamName,
    /// Thread ids in perfcollect's pid namespace, by the ids in the namespace of the process.
    ///
    /// Contains the threads that were seen during the capture and those that still exist. Empty if
    /// the process has no separate pid namespace.
    pub threads: FxHashMap<Tid, Tid>,
}

/// The directory, which is created with the first stream. Dropping it keeps the files.
#[derive(Debug)]
pub struct EventDirectory {
    place: PathAt,
    dir: Mutex<Option<OwnedFd>>,
    owner: Option<FileOwner>,
    /// Threads of the processes with a separate pid namespace whose streams have not ended.
    threads: Mutex<FxHashMap<Pid, EventThreads>>,
}

/// Returns the path of the directory for the name of a capture or the path of its spool.
fn directory_path(name: &Path) -> PathBuf {
    let capture = spool_file::capture_of(name);
    file::hidden_path(capture.as_deref().unwrap_or(name), SUFFIX)
}

impl EventDirectory {
    /// Prepares the directory of a capture name. The first stream creates the directory.
    ///
    /// Removes the directory of an earlier capture. Create the spool first, which fails if the
    /// streams of an earlier capture are still needed.
    ///
    /// # Errors
    /// Returns an error if an existing file belongs to another user or is not from an earlier capture, or
    /// if the parent directory cannot be used.
    pub fn new(name: &Path) -> Result<Self, OutputError> {
        Self::remove_stale(name)?;
        let path = directory_path(name);
        Ok(Self {
            place: PathAt::open(&path)?,
            dir: Mutex::default(),
            owner: FileOwner::invoking_user(),
            threads: Mutex::default(),
        })
    }

    /// Removes the directory of an earlier capture, if there is one.
    ///
    /// # Errors
    /// As [`EventDirectory::new`].
    pub fn remove_stale(name: &Path) -> Result<(), OutputError> {
        let path = directory_path(name);
        let Some(stale) = Self::open(name)? else {
            return Ok(());
        };
        let is_made = stale
            .dir()
            .as_ref()
            .is_some_and(|dir| directory::is_made(dir, stale.owner));
        match is_made {
            true => stale
                .remove()
                .map_err(|error| file::write_error(&path, error)),
            false => Err(OutputError::NotMade { path }),
        }
    }

    /// Opens the directory of an earlier capture. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the directory belongs to another user or cannot be opened.
    pub fn open(name: &Path) -> Result<Option<Self>, OutputError> {
        let path = directory_path(name);
        let place = PathAt::open(&path)?;
        let owner = FileOwner::invoking_user();
        let failed = |errno: Errno| file::write_error(&path, errno.into());
        match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
            Ok(_) => {}
        }
        let dir = directory::open(&place).map_err(failed)?;
        let stat = rustix::fs::fstat(&dir).map_err(failed)?;
        if !file::is_own(&stat, owner) {
            return Err(OutputError::NotReplaceable { path });
        }
        Ok(Some(Self {
            place,
            dir: Mutex::new(Some(dir)),
            owner,
            threads: Mutex::default(),
        }))
    }

    fn dir(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.dir.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> MutexGuard<'_, FxHashMap<Pid, EventThreads>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to record the threads of a process, if it has a separate pid namespace.
    fn create_threads(&self, process: Pid) {
        if machine::namespace_pid(process).is_none_or(|inside| inside == process) {
            return;
        }
        if let Some(threads) = self.threads().get_mut(&process) {
            threads.streams += 1;
            return;
        }
        let name = format!("{process}{THREADS_SUFFIX}");
        let file = self.dir().as_ref().map(|dir| {
            match directory::create_file(dir, &name, self.owner) {
                // An earlier process had the same id.
                Err(Errno::EXIST) => self.open_file(dir, &name, OFlags::WRONLY | OFlags::APPEND),
                file => Ok(file?),
            }
        });
        if let Some(Ok(file)) = file {
            self.threads().insert(process, EventThreads::new(file));
        }
    }

    /// Creates the file for the next stream of a process with this content.
    ///
    /// # Errors
    /// Returns an error if the file or the directory cannot be created.
    pub fn create_stream(&self, process: Pid, content: StreamContent) -> io::Result<File> {
        let mut slot = self.dir();
        let dir = match slot.take() {
            Some(dir) => dir,
            None => directory::make(&self.place, self.owner)?,
        };
        let dir = slot.insert(dir);
        for instance in 1..=MAX_LIVES {
            let name = StreamName {
                process,
                instance,
                content,
            };
            match directory::create_file(dir, &format!("{name}{STREAM_SUFFIX}"), self.owner) {
                Err(Errno::EXIST) => {}
                file => return Ok(file?),
            }
        }
        Err(io::Error::other("too many event streams of one process id"))
    }

    /// Returns the streams in the directory, sorted by name. Ignores other files.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn streams(&self) -> io::Result<Vec<StoredStream>> {
        let dir = self.dir();
        let Some(dir) = dir.as_ref() else {
            return Ok(Vec::new());
        };
        let mut names: Vec<StreamName> = Vec::new();
        for entry in Dir::read_from(dir)? {
            let name = stream_name(&entry?.file_name().to_string_lossy());
            names.extend(name.filter(|_| names.len() < MAX_STREAMS));
        }
        names.sort_unstable();
        let names = names.into_iter();
        let streams = names.map(|name| StoredStream {
            name,
            threads: self.threads_of(dir, name.process),
        });
        Ok(streams.collect())
    }

    /// Returns the threads of a process: if its stream has ended, those in its file.
    fn threads_of(&self, dir: &OwnedFd, process: Pid) -> FxHashMap<Tid, Tid> {
        if let Some(threads) = self.threads().get_mut(&process) {
            return threads.look(process).clone();
        }
        let file = self.open_file(dir, &format!("{process}{THREADS_SUFFIX}"), OFlags::RDONLY);
        file.map(event_threads::read).unwrap_or_default()
    }

    /// Opens a regular file that this user owns. The trace contains the file and may be given away.
    fn open_file(&self, dir: &OwnedFd, name: &str, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        match file::is_own_file(&stat, self.owner) {
            true => Ok(file.into()),
            false => Err(io::Error::other("it is not a file of this user")),
        }
    }

    /// Removes the streams and the directory.
    ///
    /// # Errors
    /// Returns an error if the directory contains other files.
    pub fn remove(&self) -> io::Result<()> {
        let dir = self.dir();
        let Some(dir) = dir.as_ref() else {
            return Ok(());
        };
        directory::remove(&self.place, dir, |name| {
            let threads = name.strip_suffix(THREADS_SUFFIX);
            stream_name(name).is_some() || threads.is_some_and(|pid| pid.parse::<i32>().is_ok())
        })
    }
}

impl StreamFiles for EventDirectory {
    fn open(&self, name: StreamName) -> io::Result<File> {
        let dir = self.dir();
        let dir = dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let open = |suffix| self.open_file(dir, &format!("{name}{suffix}"), OFlags::RDONLY);
        match open(STREAM_SUFFIX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => open(PLAIN_STREAM_SUFFIX),
            file => file,
        }
    }
}

impl StreamSink for EventDirectory {
    fn create(&self, process: Pid, content: StreamContent) -> io::Result<File> {
        let stream = self.create_stream(process, content)?;
        if content == StreamContent::Main {
            self.create_threads(process);
        }
        Ok(stream)
    }

    fn on_data(&self, process: Pid) {
        if let Some(threads) = self.threads().get_mut(&process) {
            threads.look(process);
        }
    }

    fn on_end(&self, process: Pid) {
        let mut all = self.threads();
        if let Some(threads) = all.get_mut(&process) {
            threads.look(process);
            threads.streams -= 1;
            if threads.streams == 0 {
                all.remove(&process);
            }
        }
    }
}

/// Returns the stream of a file name.
fn stream_name(file: &str) -> Option<StreamName> {
    let name = file.strip_suffix(STREAM_SUFFIX);
    let name = name.or_else(|| file.strip_suffix(PLAIN_STREAM_SUFFIX));
    name?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn stores_streams_in_hidden_directory() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        assert!(EventDirectory::open(&name).unwrap().is_none());
        let directory = EventDirectory::new(&name).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        directory
            .create_stream(Pid(7), StreamContent::Main)
            .unwrap()
            .write_all(b"one")
            .unwrap();
        directory
            .create_stream(Pid(7), StreamContent::Main)
            .unwrap()
            .write_all(b"two")
            .unwrap();
        std::fs::write(dir.path().join(".x.trace.events/notes"), "").unwrap();
        std::fs::write(dir.path().join(".x.trace.events/9.nettrace"), "old").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(".x.trace.events/8.nettrace"))
            .unwrap();
        drop(directory);

        let directory = EventDirectory::open(&dir.path().join(".x.trace.spool"))
            .unwrap()
            .unwrap();
        let streams = directory.streams().unwrap();
        let read: Vec<_> = streams
            .into_iter()
            .filter_map(|stream| {
                let mut text = String::new();
                let mut file = StreamFiles::open(&directory, stream.name).ok()?;
                file.read_to_string(&mut text).unwrap();
                Some((stream.name.to_string(), text))
            })
            .collect();
        let expected = [("7", "one"), ("7-2", "two"), ("9", "old")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read, expected);
        // `remove` keeps other files, and therefore the directory.
        assert!(directory.remove().is_err());
        std::fs::remove_file(dir.path().join(".x.trace.events/notes")).unwrap();
        directory.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Who owns the directory around it can give another one of root this name.
    #[test]
    fn removes_only_a_directory_that_it_made() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        let stranger = directory_path(&name);
        std::fs::create_dir(&stranger).unwrap();
        std::fs::write(stranger.join("7.nettrace"), "kept").unwrap();
        assert!(matches!(
            EventDirectory::new(&name),
            Err(OutputError::NotMade { .. })
        ));
        assert!(stranger.join("7.nettrace").exists());
        std::fs::remove_dir_all(&stranger).unwrap();
        let made = EventDirectory::new(&name).unwrap();
        made.create_stream(Pid(7), StreamContent::Main).unwrap();
        EventDirectory::new(&name).unwrap();
        assert!(!stranger.exists());
    }

    #[test]
    fn does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        std::os::unix::fs::symlink("/tmp", directory_path(&name)).unwrap();
        assert!(EventDirectory::new(&name).is_err());
        assert!(EventDirectory::open(&name).is_err());
    }
}
