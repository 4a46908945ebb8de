//! The folder of the event streams: hidden beside the trace it will become, one file for each process, as received, and
//! one for the threads of a process in a container. It stays until the trace is complete.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::event_threads::{self, EventThreads};
use super::file::{self, FileOwner, OutputError, PathAt};
use super::folder;
use super::spool_file;
use crate::dotnet::StreamSink;
use crate::machine;
use crate::trace::{Pid, Tid};

const SUFFIX: &str = ".trace.events";
/// End of a stream's name; before it is the process id, and `-2` for the second stream of one id.
const STREAM_SUFFIX: &str = ".nettrace";
/// End of the name of what tells of the threads; before it is the process id.
const THREADS_SUFFIX: &str = ".threads";
/// Most streams of one process id: each exec of a .NET program begins one.
const MAX_LIVES: u32 = 1000;
/// Most streams that are taken from a folder.
const MAX_STREAMS: usize = 100_000;

/// A stream that a capture has left.
#[derive(Debug)]
pub struct StreamFile {
    /// Whose events it holds.
    pub process: Pid,
    /// Its name without `.nettrace`.
    pub name: String,
    /// Its threads in our pid namespace by those in its own, if it has one: those that were seen while it came, or are there yet.
    pub threads: FxHashMap<Tid, Tid>,
    /// The stream, at its beginning.
    pub file: File,
}

/// The folder, once there is something to keep. Dropping it leaves the files alone.
#[derive(Debug)]
pub struct EventFolder {
    place: PathAt,
    dir: Mutex<Option<OwnedFd>>,
    owner: Option<FileOwner>,
    /// Of processes with a pid namespace of their own.
    threads: Mutex<FxHashMap<Pid, EventThreads>>,
}

/// The folder of a capture name; the name may be that of the spool.
fn folder_path(name: &Path) -> PathBuf {
    let capture = spool_file::capture_of(name);
    let trace = file::trace_path(capture.as_deref().unwrap_or(name));
    let mut folder = OsString::from(".");
    folder.push(file::capture_name(&trace));
    folder.push(SUFFIX);
    trace.with_file_name(folder)
}

impl EventFolder {
    /// The folder of a capture name, which is made with the first stream. One that was left is removed: the spool, which is
    /// made before, says whether it still matters.
    ///
    /// # Errors
    /// Something of somebody else is there, or the directory cannot be used.
    pub fn new(name: &Path) -> Result<Self, OutputError> {
        let path = folder_path(name);
        if let Some(left) = Self::open(name)? {
            left.remove()
                .map_err(|error| file::write_error(&path, error))?;
        }
        Ok(Self {
            place: PathAt::of(&path)?,
            dir: Mutex::default(),
            owner: FileOwner::invoking_user(),
            threads: Mutex::default(),
        })
    }

    /// The folder that a capture of this name has left, if it had one.
    ///
    /// # Errors
    /// It is somebody else's, or cannot be opened.
    pub fn open(name: &Path) -> Result<Option<Self>, OutputError> {
        let path = folder_path(name);
        let place = PathAt::of(&path)?;
        let owner = FileOwner::invoking_user();
        let failed = |errno: Errno| file::write_error(&path, errno.into());
        match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
            Ok(_) => {}
        }
        let dir = folder::open(&place).map_err(failed)?;
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

    /// Begins to tell of the threads of a process, if others number them otherwise.
    fn create_threads(&self, process: Pid) {
        if machine::namespace_pid(process).is_none_or(|inside| inside == process) {
            return;
        }
        let name = format!("{process}{THREADS_SUFFIX}");
        let made = self
            .dir()
            .as_ref()
            .map(|dir| folder::create_file(dir, &name, self.owner));
        // Another life of the process id has one.
        if let Some(Ok(file)) = made {
            self.threads().insert(process, EventThreads::new(file));
        }
    }

    /// Makes the file for a stream of a process.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn create_stream(&self, process: Pid) -> io::Result<File> {
        let mut made = self.dir();
        let dir = match made.take() {
            Some(dir) => dir,
            None => folder::make(&self.place, self.owner)?,
        };
        let dir = made.insert(dir);
        for life in 1..=MAX_LIVES {
            let name = match life {
                1 => format!("{process}{STREAM_SUFFIX}"),
                life => format!("{process}-{life}{STREAM_SUFFIX}"),
            };
            match folder::create_file(dir, &name, self.owner) {
                Err(Errno::EXIST) => {}
                file => return Ok(file?),
            }
        }
        Err(io::Error::other("too many programs had its process id"))
    }

    /// The streams that are there, by name. What else is there is left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn streams(&self) -> io::Result<Vec<StreamFile>> {
        let dir = self.dir();
        let Some(dir) = dir.as_ref() else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> = Vec::new();
        for entry in Dir::read_from(dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if names.len() < MAX_STREAMS && process_of(&name).is_some() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names
            .iter()
            .filter_map(|name| {
                let process = process_of(name)?;
                Some(StreamFile {
                    process,
                    threads: self.threads_of(dir, process),
                    name: name.strip_suffix(STREAM_SUFFIX)?.to_owned(),
                    file: self.open_stream(dir, name)?,
                })
            })
            .collect())
    }

    /// The threads of a process, those included that are there now, or those that a capture has left.
    fn threads_of(&self, dir: &OwnedFd, process: Pid) -> FxHashMap<Tid, Tid> {
        if let Some(threads) = self.threads().get_mut(&process) {
            return threads.look(process).clone();
        }
        let left = self.open_stream(dir, &format!("{process}{THREADS_SUFFIX}"));
        left.map(event_threads::read).unwrap_or_default()
    }

    /// Only a plain file of ours: it becomes part of a trace that may be given away.
    fn open_stream(&self, dir: &OwnedFd, name: &str) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (is_plain && file::is_own(&stat, self.owner)).then(|| file.into())
    }

    /// Removes the streams and the folder, unless something else is in it.
    ///
    /// # Errors
    /// The folder stays there.
    pub fn remove(&self) -> io::Result<()> {
        let dir = self.dir();
        let Some(dir) = dir.as_ref() else {
            return Ok(());
        };
        folder::remove(&self.place, dir, |name| {
            let threads = name.strip_suffix(THREADS_SUFFIX);
            process_of(name).is_some() || threads.is_some_and(|pid| pid.parse::<i32>().is_ok())
        })
    }
}

impl StreamSink for EventFolder {
    fn create(&self, process: Pid) -> io::Result<File> {
        let stream = self.create_stream(process)?;
        self.create_threads(process);
        Ok(stream)
    }

    fn on_data(&self, process: Pid) {
        if let Some(threads) = self.threads().get_mut(&process) {
            threads.look(process);
        }
    }
}

/// The process of a stream's name.
fn process_of(name: &str) -> Option<Pid> {
    let stem = name.strip_suffix(STREAM_SUFFIX)?;
    let (pid, life) = stem.split_once('-').unwrap_or((stem, "1"));
    let pid: i32 = pid.parse().ok().filter(|pid| *pid > 0)?;
    life.parse::<u32>().is_ok().then_some(Pid(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn streams_stand_in_a_hidden_folder() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        assert!(EventFolder::open(&name).unwrap().is_none());
        let folder = EventFolder::new(&name).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        folder
            .create_stream(Pid(7))
            .unwrap()
            .write_all(b"one")
            .unwrap();
        folder
            .create_stream(Pid(7))
            .unwrap()
            .write_all(b"two")
            .unwrap();
        std::fs::write(dir.path().join(".x.trace.events/notes"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(".x.trace.events/8.nettrace"))
            .unwrap();
        drop(folder);

        let folder = EventFolder::open(&dir.path().join(".x.trace.spool"))
            .unwrap()
            .unwrap();
        let streams = folder.streams().unwrap();
        let read: Vec<_> = streams
            .into_iter()
            .map(|mut stream| {
                let mut text = String::new();
                stream.file.read_to_string(&mut text).unwrap();
                (stream.process, stream.name, text)
            })
            .collect();
        let expected = [("7-2", "two"), ("7", "one")];
        assert_eq!(
            read,
            expected.map(|(name, text)| (Pid(7), name.to_owned(), text.to_owned()))
        );
        // What is not ours is not removed, so the folder stays.
        assert!(folder.remove().is_err());
        std::fs::remove_file(dir.path().join(".x.trace.events/notes")).unwrap();
        folder.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        std::os::unix::fs::symlink("/tmp", folder_path(&name)).unwrap();
        assert!(EventFolder::new(&name).is_err());
        assert!(EventFolder::open(&name).is_err());
    }
}
