//! Files perfcollect creates. It often runs as root and in directories others can write to, so a file is always new
//! (never written through a link or into an existing file), private, and belongs to the user behind `sudo`. A file
//! that is not committed is removed: an unfinished trace helps nobody.

use std::ffi::{OsStr, OsString};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

const SUFFIX: &str = ".trace.zip";

/// Why an output file cannot be created or finished.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path names a directory or nothing.
    #[error("{} is not a file name: name the trace to write, such as ./app", path.display())]
    NoFileName {
        /// The path.
        path: PathBuf,
    },
    /// There is something at the path already.
    #[error("{} already exists: choose another name, or replace it with -force", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// What is there is not a plain file of this user.
    #[error("{} is not a file of yours, so -force does not replace it: choose another name", path.display())]
    NotReplaceable {
        /// The path.
        path: PathBuf,
    },
    /// The directory is missing or cannot be used.
    #[error("cannot write to directory {}: {errno}; name the trace with a directory you can write to", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// The file system is full.
    #[error("no space left for {}: free some, or name the trace with a directory on another disk", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The file name of a trace: NAME, with `.trace.zip` unless it is there already.
#[must_use]
pub fn trace_path(name: &Path) -> PathBuf {
    let has_suffix = name
        .to_string_lossy()
        .to_ascii_lowercase()
        .ends_with(SUFFIX);
    if has_suffix || name.file_name().is_none() {
        return name.to_owned();
    }
    let mut path = OsString::from(name);
    path.push(SUFFIX);
    PathBuf::from(path)
}

/// The capture's name: the file name of a trace without directory and `.trace.zip`.
#[must_use]
pub fn capture_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem_len = name.len().saturating_sub(SUFFIX.len());
    match name.get(stem_len..) {
        Some(end) if end.eq_ignore_ascii_case(SUFFIX) => name[..stem_len].to_owned(),
        _ => name.into_owned(),
    }
}

/// Who gets the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileOwner {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

impl FileOwner {
    /// The user who called `sudo`, if root runs on behalf of one.
    pub(crate) fn invoking_user() -> Option<Self> {
        // -1 stands for "leave it" and is no id.
        let id = |name| {
            let id = std::env::var(name).ok()?.parse().ok();
            id.filter(|id| *id != u32::MAX)
        };
        rustix::process::geteuid().is_root().then_some(())?;
        Some(Self {
            uid: Uid::from_raw(id("SUDO_UID")?),
            gid: Gid::from_raw(id("SUDO_GID")?),
        })
    }

    /// Gives a new file away.
    pub(super) fn take(self, file: impl AsFd) -> rustix::io::Result<()> {
        rustix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }
}

/// A name in a directory. The directory is held: renaming it while we write must not make us remove a file elsewhere.
#[derive(Debug)]
pub(super) struct PathAt {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

impl PathAt {
    pub(super) fn of(path: &Path) -> Result<Self, OutputError> {
        let is_dir = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let Some(name) = path.file_name().filter(|_| !is_dir) else {
            return Err(OutputError::NoFileName {
                path: path.to_owned(),
            });
        };
        let parent = parent(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty());
        Ok(Self {
            dir: dir.map_err(|errno| OutputError::Directory {
                path: parent.to_owned(),
                errno,
            })?,
            name: name.to_owned(),
        })
    }

    /// Creates the file; never an existing one, never through a link.
    pub(super) fn create(&self, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, &self.name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Whether this open file still stands here.
    pub(super) fn holds(&self, file: impl AsFd) -> bool {
        let ours = rustix::fs::fstat(file);
        let there = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        matches!((ours, there), (Ok(ours), Ok(there))
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino))
    }

    /// Removes this open file, if it still stands here: somebody may have put another one there since.
    pub(super) fn remove(&self, file: impl AsFd) -> rustix::io::Result<()> {
        if !self.holds(file) {
            return Ok(());
        }
        rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty())
    }
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// What it means that a file could not be created.
pub(super) fn create_error(path: &Path, errno: Errno) -> OutputError {
    match errno {
        Errno::EXIST => OutputError::Exists {
            path: path.to_owned(),
        },
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT => OutputError::Directory {
            path: parent(path).to_owned(),
            errno,
        },
        errno => write_error(path, errno.into()),
    }
}

/// A new file, removed when dropped unless it was committed.
pub struct OutputFile {
    path: PathBuf,
    place: PathAt,
    /// The older file whose place it takes when it is committed, not before: a failed capture must not cost it.
    replaces: Option<OsString>,
    file: std::fs::File,
    committed: bool,
}

impl OutputFile {
    /// Creates the file at `path`; with `force`, in place of a plain file of this user.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn create(path: &Path, force: bool) -> Result<Self, OutputError> {
        Self::create_for(path, force, FileOwner::invoking_user())
    }

    fn create_for(path: &Path, force: bool, owner: Option<FileOwner>) -> Result<Self, OutputError> {
        let mut place = PathAt::of(path)?;
        let mut replaces = None;
        let file = match place.create(OFlags::WRONLY) {
            Err(Errno::EXIST) if force => {
                check_own(&place, owner, path)?;
                let partial = partial_name(&place.name);
                replaces = Some(std::mem::replace(&mut place.name, partial));
                place.create(OFlags::WRONLY)
            }
            other => other,
        };
        let file = Self {
            file: file.map_err(|errno| create_error(path, errno))?.into(),
            path: path.to_owned(),
            place,
            replaces,
            committed: false,
        };
        if let Some(owner) = owner {
            owner
                .take(&file.file)
                .map_err(|errno| file.explain(errno.into()))?;
        }
        Ok(file)
    }

    /// Whether [`OutputFile::create`] would be let down by what stands at `path`.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn check(path: &Path, force: bool) -> Result<(), OutputError> {
        let place = PathAt::of(path)?;
        match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if force => check_own(&place, FileOwner::invoking_user(), path),
            Ok(_) => Err(create_error(path, Errno::EXIST)),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(write_error(path, errno.into())),
        }
    }

    /// Lets everybody read the file.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn make_world_readable(&self) -> Result<(), OutputError> {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::fchmod(&self.file, mode).map_err(|errno| self.explain(errno.into()))
    }

    /// What an error of writing this file means for the user.
    #[must_use]
    pub fn explain(&self, error: io::Error) -> OutputError {
        write_error(&self.path, error)
    }

    /// Keeps the file, once its content is on the disk: some file systems tell only then that they are full.
    ///
    /// # Errors
    /// [`OutputError::Full`] or [`OutputError::Write`]; the file is removed.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let synced = match rustix::fs::fdatasync(&self.file) {
            // Not a file that can be synced, such as on some FUSE file systems.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(()),
            other => other,
        };
        synced
            .and_then(|()| match &self.replaces {
                Some(older) => {
                    let PathAt { dir, name } = &self.place;
                    rustix::fs::renameat(dir, name, dir, older)
                }
                None => Ok(()),
            })
            .map_err(|errno| self.explain(errno.into()))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // There is nobody left to tell.
        let _ = self.place.remove(&self.file);
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for OutputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Where a file is written that takes another's place.
pub(super) fn partial_name(name: &OsStr) -> OsString {
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(format!(".{}.partial", std::process::id()));
    partial
}

/// Only a plain file of this user, or of the one behind sudo, is replaced. A link is not followed.
pub(super) fn check_own(
    place: &PathAt,
    owner: Option<FileOwner>,
    path: &Path,
) -> Result<(), OutputError> {
    let error = |errno: Errno| write_error(path, errno.into());
    let there = rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW);
    let there = there.map_err(error)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile || !is_own(&there, owner) {
        return Err(OutputError::NotReplaceable {
            path: path.to_owned(),
        });
    }
    Ok(())
}

/// Whether something belongs to this user, or to the one behind sudo.
pub(super) fn is_own(there: &Stat, owner: Option<FileOwner>) -> bool {
    let uids = [
        Some(rustix::process::geteuid()),
        owner.map(|owner| owner.uid),
    ];
    uids.into_iter()
        .flatten()
        .any(|uid| uid.as_raw() == there.st_uid)
}

pub(super) fn write_error(path: &Path, source: io::Error) -> OutputError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OutputError::Full { path },
        _ => OutputError::Write { path, source },
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
