//! Cache files: written under a hidden partial name, then renamed when complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// A file cannot be written to a cache.
#[derive(Debug, Error)]
pub enum CacheError {
    /// No variable of the environment locates a cache.
    #[error("cannot locate the cache directory: set HOME or XDG_CACHE_HOME")]
    Nowhere,
    /// Another user owns the directory and could place a link where root writes.
    #[error("{} belongs to another user: set XDG_CACHE_HOME to a directory that root owns", .0.display())]
    Foreign(PathBuf),
    /// Another process downloads the same file.
    #[error("another perfcollect process is downloading this file: try again later")]
    Busy,
    /// The path of the file, or of one of its directories, is occupied or cannot be opened.
    #[error("cannot write {}: {source}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The directory of the cache cannot be created or opened.
    #[error("cannot write to the cache {}: {source}; choose another one with XDG_CACHE_HOME, DEBUGINFOD_CACHE_PATH or _NT_SYMBOL_PATH", path.display())]
    Write {
        /// The directory.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// An incomplete file in a cache, locked by this process.
#[derive(Debug)]
pub(super) struct Partial {
    directory: OwnedFd,
    name: OsString,
    partial: OsString,
    pub(super) file: File,
    /// Path of the complete file.
    pub(super) path: PathBuf,
}

impl Partial {
    /// Opens or creates the partial file for `path` below `cache`. Its name contains a hash of
    /// `url`, because other servers may have the file in another form.
    pub(super) fn open(cache: &Path, path: &Path, url: &str) -> Result<Self, CacheError> {
        let whole = cache.join(path);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(entry_error(&whole, Errno::INVAL));
        };
        let mut directory = open_cache(cache)?;
        for part in parent {
            directory = open_below(&directory, part).map_err(|errno| entry_error(&whole, errno))?;
        }
        let existing = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if existing.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()) {
            return Err(entry_error(&whole, Errno::ISDIR));
        }
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".{:08x}.partial", crc32fast::hash(url.as_bytes())));
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file: File = rustix::fs::openat(&directory, &partial, flags, mode)
            .map_err(|errno| entry_error(&whole, errno))?
            .into();
        let metadata = rustix::fs::fstat(&file).map_err(|errno| entry_error(&whole, errno))?;
        let is_file = FileType::from_raw_mode(metadata.st_mode).is_file();
        if !is_file || metadata.st_uid != rustix::process::geteuid().as_raw() {
            return Err(CacheError::Foreign(whole));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(CacheError::Busy),
            Err(errno) => return Err(entry_error(&whole, errno)),
        }
        // The previous owner of the lock may have renamed the file in the meantime.
        let current = rustix::fs::statat(&directory, &partial, AtFlags::SYMLINK_NOFOLLOW);
        if !current.is_ok_and(|stat| stat.st_ino == metadata.st_ino) {
            return Err(CacheError::Busy);
        }
        Ok(Self {
            directory,
            name: name.to_owned(),
            partial,
            file,
            path: whole,
        })
    }

    /// Renames the complete file to its path. Replaces an existing file, which was rejected before.
    pub(super) fn commit(&self) -> Result<(), CacheError> {
        let Self {
            directory, name, ..
        } = self;
        rustix::fs::fdatasync(&self.file)
            .and_then(|()| rustix::fs::renameat(directory, &self.partial, directory, name))
            .map_err(|errno| entry_error(&self.path, errno))
    }

    /// Removes the partial file, and its directories if they are empty.
    pub(super) fn discard(&self) {
        // The next download checks or replaces a file that cannot be removed.
        let _ = rustix::fs::unlinkat(&self.directory, &self.partial, AtFlags::empty());
        // `remove_dir` fails for directories that are not empty.
        for directory in self.path.ancestors().skip(1).take(2) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Opens the directory of a cache. Creates the directory if it does not exist.
///
/// As root, fails if the closest existing directory belongs to another user, who could place a link
/// there.
fn open_cache(path: &Path) -> Result<OwnedFd, CacheError> {
    let metadata = path
        .ancestors()
        .find_map(|path| std::fs::metadata(path).ok());
    let euid = rustix::process::geteuid();
    if euid.is_root() && metadata.is_some_and(|metadata| metadata.uid() != euid.as_raw()) {
        return Err(CacheError::Foreign(path.to_owned()));
    }
    std::fs::create_dir_all(path).map_err(|error| write_error(path, error))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| write_error(path, errno.into()))
}

fn open_below(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(directory, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn entry_error(path: &Path, errno: Errno) -> CacheError {
    CacheError::Entry {
        path: path.to_owned(),
        source: errno.into(),
    }
}

fn write_error(path: &Path, source: io::Error) -> CacheError {
    CacheError::Write {
        path: path.to_owned(),
        source,
    }
}
