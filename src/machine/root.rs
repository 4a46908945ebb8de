//! Opening files as a process sees them, without trusting what it has put there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::trace::Pid;

/// How often a path is tried while files are renamed.
const MAX_TRIES: usize = 64;
/// Entries of a directory that are looked at.
const MAX_DIRECTORY_ENTRIES: usize = 100_000;

/// The root directory of a process: its container's, if it is in one. Held, it outlives the process.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// The root directory of a running process.
    pub fn of(pid: Pid) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// A directory that stands for a root directory.
    pub fn at(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(directory, flags, Mode::empty())?))
    }

    /// The same directory once more.
    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Our own root directory.
    pub fn host() -> io::Result<Self> {
        Self::at(Path::new("/"))
    }

    /// Device and inode.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        let directory = rustix::fs::fstat(&self.0)?;
        Ok((directory.st_dev, directory.st_ino))
    }

    /// Opens a regular file for reading. Symbolic links are followed inside this root only.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.open_if(path, |_| Ok(()))
    }

    /// The same, if `check` finds the file to be the right one.
    pub fn open_if(
        &self,
        path: &Path,
        check: impl FnOnce(&Stat) -> io::Result<()>,
    ) -> io::Result<File> {
        let found = self.find(path, OFlags::PATH)?;
        let status = rustix::fs::fstat(&found)?;
        check(&status)?;
        match reopen_regular(&found) {
            // There is no /proc, as in a root directory that has nothing else than we need.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.open_again(path, &status),
            opened => opened,
        }
    }

    /// Opens a file that was found at a path, unless another stands there now.
    fn open_again(&self, path: &Path, found: &Stat) -> io::Result<File> {
        // That could be a FIFO.
        let opened = self.find(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let status = rustix::fs::fstat(&opened)?;
        match (status.st_dev, status.st_ino) == (found.st_dev, found.st_ino) {
            true => Ok(opened.into()),
            false => Err(io::Error::other("another file stands there now")),
        }
    }

    /// The directory that may not be searched, if that is why nothing is found at a path.
    pub fn closed<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        let is_denied = |path: &&Path| {
            let found = self.find(path, OFlags::PATH);
            found.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        path.ancestors().take_while(is_denied).last()?.parent()
    }

    /// Finds a socket. The descriptor stands for it and opens nothing; `/proc/self/fd/N` is its address.
    pub fn find_socket(&self, path: &Path) -> io::Result<OwnedFd> {
        let found = self.find(path, OFlags::PATH)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::Socket => Ok(found),
            kind => Err(io::Error::other(format!("not a socket: {kind:?}"))),
        }
    }

    /// The first names in a directory that are wanted, at most `most`.
    pub fn names(
        &self,
        directory: &Path,
        most: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<OsString>> {
        let found = self.find(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        // A target may fill its directory.
        for entry in Dir::new(found)?.take(MAX_DIRECTORY_ENTRIES) {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if names.len() < most && wanted(name) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    fn find(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_TRIES {
            // Something was renamed meanwhile, anywhere: a link with `..` could have led elsewhere.
            match rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                found => return Ok(found?),
            }
        }
        Err(Errno::AGAIN.into())
    }
}

/// The file a process runs, whatever stands at its path now.
pub fn executable(pid: Pid) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(format!("/proc/{pid}/exe"), flags, Mode::empty())?;
    reopen_regular(&found)
}

/// Opens for reading what an O_PATH descriptor stands for: never a FIFO or a device, whose opening may block or act.
pub(super) fn reopen_regular(found: &OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other(format!("not a regular file: {kind:?}")));
    }
    File::open(format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), directory.path().join("out")).unwrap();
        std::os::unix::fs::symlink("/in", directory.path().join("link")).unwrap();
        std::fs::write(directory.path().join("in"), "x").unwrap();
        let root = Root::at(directory.path()).unwrap();
        assert!(root.open(Path::new("/out")).is_err());
        assert!(root.open(Path::new("/../../in")).is_ok());
        assert!(root.open(Path::new("/link")).is_ok());
    }

    #[test]
    fn a_device_is_not_opened() {
        let error = Root::host()
            .unwrap()
            .open(Path::new("/dev/null"))
            .unwrap_err();
        assert!(error.to_string().contains("regular"), "{error}");
    }
}
