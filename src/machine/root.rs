//! Opening files as a process sees them, without trusting what it has put there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::trace::Pid;

/// The root directory of a process: its container's, if it is in one. Held, it outlives the process.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// The root directory of a running process.
    pub fn of(pid: Pid) -> io::Result<Self> {
        Self::open_directory(&format!("/proc/{pid}/root"))
    }

    /// Our own root directory.
    pub fn host() -> io::Result<Self> {
        Self::open_directory("/")
    }

    /// Device and inode.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        let directory = rustix::fs::fstat(&self.0)?;
        Ok((directory.st_dev, directory.st_ino))
    }

    fn open_directory(path: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
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
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve)?;
        check(&rustix::fs::fstat(&found)?)?;
        reopen_regular(&found)
    }
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
        let root = Root::open_directory(directory.path().to_str().unwrap()).unwrap();
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
