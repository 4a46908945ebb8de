//! Names of output files, which are created new, private, and owned by the user who invoked `sudo`.
//!
//! perfcollect often runs as root in directories that other users can write to. It therefore never
//! writes through a link or into an existing file.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

const SUFFIX: &str = ".trace.zip";

/// An output file cannot be created or completed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path is a directory or has no file name.
    #[error("{} is not a file name: give a name for the trace, such as ./app", path.display())]
    NoFileName {
        /// The path.
        path: PathBuf,
    },
    /// The path already exists.
    #[error("{} already exists: choose another name, or replace it with -force", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The existing file is of another type or belongs to another user.
    #[error("cannot replace {}: it is not of the expected type or belongs to another user; choose another name", path.display())]
    NotReplaceable {
        /// The path.
        path: PathBuf,
    },
    /// The existing directory is not one that perfcollect made.
    #[error("cannot replace {}: perfcollect did not make this directory; move it away, or choose another name", path.display())]
    NotMade {
        /// The path.
        path: PathBuf,
    },
    /// The directory does not exist or cannot be used.
    #[error("cannot write to directory {}: {errno}; {}", path.display(), remedy(path))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the kernel.
        errno: Errno,
    },
    /// The file system is full.
    #[error("no space left for {}: free some space or choose a directory on another disk", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Any other error of the file system.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

fn remedy(directory: &Path) -> &'static str {
    match directory.try_exists() {
        Ok(false) => "create it, or choose another one",
        _ => "choose a directory that you can write to",
    }
}

/// Checks that files of a trace can have the name: it is neither a directory nor a device.
///
/// # Errors
/// Returns [`OutputError::NoFileName`].
pub fn check_name(name: &Path) -> Result<(), OutputError> {
    let is_device = |metadata: Metadata| {
        let kind = metadata.file_type();
        kind.is_char_device() || kind.is_block_device()
    };
    let is_directory = name.as_os_str().as_bytes().ends_with(b"/");
    // Others can place anything but devices at the name, which itself is never used.
    if is_directory || name.symlink_metadata().is_ok_and(is_device) {
        return Err(OutputError::NoFileName {
            path: name.to_owned(),
        });
    }
    Ok(())
}

/// Returns whether a file name is that of a trace.
#[must_use]
pub fn is_trace(name: &Path) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    name.ends_with(SUFFIX)
}

/// Returns the file name of a trace: `name` with the suffix `.trace.zip`, added if it is missing.
#[must_use]
pub fn trace_path(name: &Path) -> PathBuf {
    if is_trace(name) || name.file_name().is_none() {
        return name.to_owned();
    }
    let mut path = OsString::from(name);
    path.push(SUFFIX);
    PathBuf::from(path)
}

/// Returns the name of a capture: the file name of its trace without directory and `.trace.zip`.
#[must_use]
pub fn capture_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem_len = name.len().saturating_sub(SUFFIX.len());
    match name.get(stem_len..) {
        Some(end) if end.eq_ignore_ascii_case(SUFFIX) => name[..stem_len].to_owned(),
        _ => name.into_owned(),
    }
}

/// Returns the path of a hidden file beside the trace of a capture name, such as
/// `.NAME.trace.spool`.
pub(super) fn hidden_path(name: &Path, suffix: &str) -> PathBuf {
    let trace = trace_path(name);
    let hidden = format!(".{}{suffix}", capture_name(&trace));
    trace.with_file_name(hidden)
}

/// User and group that own a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileOwner {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

impl FileOwner {
    /// Returns the user who invoked `sudo`, if the process runs as root through `sudo`.
    pub(crate) fn invoking_user() -> Option<Self> {
        // chown(2) leaves the owner unchanged for -1.
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

    /// Changes the owner of a new file.
    pub(super) fn chown(self, file: impl AsFd) -> rustix::io::Result<()> {
        rustix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }
}

/// A file name in an open directory.
///
/// The directory stays open: if another process renames it, perfcollect must not remove a file
/// elsewhere.
#[derive(Debug)]
pub(super) struct PathAt {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

impl PathAt {
    /// Opens the directory of `path`.
    pub(super) fn open(path: &Path) -> Result<Self, OutputError> {
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

    /// Creates the file. Fails if it exists, and does not follow links.
    pub(super) fn create(&self, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, &self.name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Creates a file without a name in this directory; see [`unnamed_file`].
    pub(super) fn unnamed_file(&self) -> Option<std::fs::File> {
        self.unnamed(OFlags::EXCL)
    }

    /// Creates a file without a name. With [`OFlags::EXCL`], it can never get one.
    pub(super) fn unnamed(&self, flags: OFlags) -> Option<std::fs::File> {
        let flags = flags | OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.dir, ".", flags, mode);
        file.ok().map(Into::into)
    }

    /// Runs `make` with hidden names for a file that will get this name, until one is free.
    ///
    /// Files that killed processes left are in the way only if there are many.
    pub(super) fn with_partial<T>(
        &self,
        make: impl Fn(&Self) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<(Self, T)> {
        const MAX_LEFT: u32 = 100;
        for number in 0..MAX_LEFT {
            let partial = Self {
                dir: rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?,
                name: partial_name(&self.name, number),
            };
            match make(&partial) {
                Err(Errno::EXIST) => {}
                made => return made.map(|made| (partial, made)),
            }
        }
        Err(Errno::EXIST)
    }

    /// Returns whether the name still refers to this open file.
    pub(super) fn holds(&self, file: impl AsFd) -> bool {
        let open = rustix::fs::fstat(file);
        let current = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        matches!((open, current), (Ok(open), Ok(current))
            if (open.st_dev, open.st_ino) == (current.st_dev, current.st_ino))
    }

    /// Removes this open file, unless another process has replaced it.
    pub(super) fn remove(&self, file: impl AsFd) -> rustix::io::Result<()> {
        if !self.holds(file) {
            return Ok(());
        }
        rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty())
    }
}

/// Creates a file for temporary data on the disk of `path`, which the kernel removes when it is closed.
///
/// Returns `None` if the directory cannot be written, or if its file system has no such files.
#[must_use]
pub fn unnamed_file(path: &Path) -> Option<std::fs::File> {
    PathAt::open(path).ok()?.unnamed_file()
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Converts the error of a failed file creation.
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

pub(super) fn not_replaceable(path: &Path) -> OutputError {
    OutputError::NotReplaceable {
        path: path.to_owned(),
    }
}

/// Returns the hidden name of an incomplete file that will get `name`. It is never too long.
pub(super) fn partial_name(name: &OsStr, number: u32) -> OsString {
    const MAX_START: usize = 200;
    let bytes = name.as_bytes();
    let mut partial = OsString::from(".");
    partial.push(OsStr::from_bytes(&bytes[..bytes.len().min(MAX_START)]));
    partial.push(format!(".{}-{number}.partial", std::process::id()));
    partial
}

/// Checks that an existing file is a regular file of this user or of the user who invoked `sudo`.
///
/// Does not follow links.
pub(super) fn check_own(
    place: &PathAt,
    owner: Option<FileOwner>,
    path: &Path,
) -> Result<(), OutputError> {
    let error = |errno: Errno| write_error(path, errno.into());
    let stat = rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW);
    match is_own_file(&stat.map_err(error)?, owner) {
        true => Ok(()),
        false => Err(not_replaceable(path)),
    }
}

/// Checks the same of an open file, and returns its status.
pub(super) fn check_open(file: impl AsFd, path: &Path) -> Result<Stat, OutputError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| write_error(path, errno.into()))?;
    match is_own_file(&stat, FileOwner::invoking_user()) {
        true => Ok(stat),
        false => Err(not_replaceable(path)),
    }
}

/// Returns whether a file is a regular file of this user or of `owner`.
pub(super) fn is_own_file(stat: &Stat, owner: Option<FileOwner>) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && is_own(stat, owner)
}

/// Returns whether a file belongs to this user or to `owner`.
pub(super) fn is_own(stat: &Stat, owner: Option<FileOwner>) -> bool {
    let uids = [
        Some(rustix::process::geteuid()),
        owner.map(|owner| owner.uid),
    ];
    uids.into_iter()
        .flatten()
        .any(|uid| uid.as_raw() == stat.st_uid)
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
