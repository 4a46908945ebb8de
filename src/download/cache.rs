//! Files on their way into a cache: partial under a name of their own, then whole under theirs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// Why there is no room for a file in a cache.
#[derive(Debug, Error)]
pub enum CacheError {
    /// There is no home.
    #[error("there is no place for a cache: set HOME, or XDG_CACHE_HOME")]
    Nowhere,
    /// Another user could put a link where root writes.
    #[error("{} belongs to another user: as root set XDG_CACHE_HOME to a directory of root's", .0.display())]
    Foreign(PathBuf),
    /// Another process gets the same file.
    #[error("another perfcollect is just getting it")]
    Busy,
    /// Something else is where the file goes, or on the way there.
    #[error("cannot write {}: {source}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The cache itself.
    #[error("cannot write to the cache {}: {source}; XDG_CACHE_HOME, DEBUGINFOD_CACHE_PATH and _NT_SYMBOL_PATH say where caches are", path.display())]
    Write {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A file that is not whole yet.
#[derive(Debug)]
pub(super) struct Partial {
    directory: OwnedFd,
    name: OsString,
    partial: OsString,
    pub(super) file: File,
    /// Where it will be.
    pub(super) path: PathBuf,
}

impl Partial {
    /// Opens what there is of `path` below `cache` from `url`: other servers may have it in another form.
    pub(super) fn open(cache: &Path, path: &Path, url: &str) -> Result<Self, CacheError> {
        let whole = cache.join(path);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(entry_error(&whole, Errno::INVAL));
        };
        let mut directory = open_cache(cache)?;
        for part in parent {
            directory = open_below(&directory, part).map_err(|errno| entry_error(&whole, errno))?;
        }
        let there = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode).is_dir()) {
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
        // Who had the lock may have given the file its name meanwhile.
        let there = rustix::fs::statat(&directory, &partial, AtFlags::SYMLINK_NOFOLLOW);
        if !there.is_ok_and(|there| there.st_ino == metadata.st_ino) {
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

    /// It is whole: gives it its name. The file there, if any, was not of use.
    pub(super) fn commit(&self) -> Result<(), CacheError> {
        let Self {
            directory, name, ..
        } = self;
        rustix::fs::fdatasync(&self.file)
            .and_then(|()| rustix::fs::renameat(directory, &self.partial, directory, name))
            .map_err(|errno| entry_error(&self.path, errno))
    }

    /// It is of no use.
    pub(super) fn discard(&self) {
        // What stays is begun anew, or replaced, the next time.
        let _ = rustix::fs::unlinkat(&self.directory, &self.partial, AtFlags::empty());
        // Only empty directories can be removed.
        for directory in self.path.ancestors().skip(1).take(2) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Opens the directory of a cache, made if need be. Root does so only where no other user can put a link.
fn open_cache(path: &Path) -> Result<OwnedFd, CacheError> {
    let metadata = path
        .ancestors()
        .find_map(|path| std::fs::metadata(path).ok());
    let me = rustix::process::geteuid();
    if me.is_root() && metadata.is_some_and(|there| there.uid() != me.as_raw()) {
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
