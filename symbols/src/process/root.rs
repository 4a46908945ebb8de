//! Opens files below the root directory of a process, without trusting its content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, FileType, FsWord, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;

use super::maps::MapsLine;
use super::reader::Reader;

/// Maximum attempts to resolve a path while files are being renamed.
const MAX_TRIES: usize = 64;
/// OVERLAYFS_SUPER_MAGIC of `linux/magic.h`.
pub(super) const OVERLAY_MAGIC: FsWord = 0x794c_7630;
/// BTRFS_SUPER_MAGIC of `linux/magic.h`.
const BTRFS_MAGIC: FsWord = 0x9123_683e;
/// File systems whose files the kernel makes when they are read, of `linux/magic.h`.
const KERNEL_FILE_SYSTEMS: [u32; 20] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x0765_5821, // resctrl
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x6265_6570, // configfs
    0x6573_5543, // fusectl
    0x4249_4e4d, // binfmt_misc
    0x6e73_6673, // nsfs
    0x6759_6969, // rpc_pipefs
    0x6e66_7364, // nfsd
    0xabba_1974, // xenfs
];
/// Maximum entries read from a directory.
const MAX_DIRECTORY_ENTRIES: usize = 100_000;

/// Root directory of a process or container. An open one outlives the process.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Root {
    /// Opens the root directory of a running process.
    ///
    /// # Errors
    /// The process has ended, or its root directory is not accessible.
    pub fn of(pid: i32) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// Opens a directory as a root directory.
    ///
    /// # Errors
    /// The path is not an accessible directory.
    pub fn at(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(directory, flags, Mode::empty())?))
    }

    /// Duplicates the descriptor of the directory.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Opens the host's root directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn host() -> io::Result<Self> {
        Self::at(Path::new("/"))
    }

    /// Returns the device and inode of the directory.
    ///
    /// # Errors
    /// The kernel cannot stat the directory.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let directory = rustix::fs::fstat(&self.0)?;
        Ok((directory.st_dev, directory.st_ino))
    }

    /// Returns the id of the mount that contains the directory, or `None` before Linux 5.8. A
    /// directory may be seen through several mounts, which have different mounts below them.
    ///
    /// # Errors
    /// The kernel cannot stat the directory.
    pub fn mount_id(&self) -> io::Result<Option<u64>> {
        let (flags, wanted) = (AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let directory = rustix::fs::statx(&self.0, "", flags, wanted)?;
        let has_id = directory.stx_mask & wanted.bits() != 0;
        Ok(has_id.then_some(directory.stx_mnt_id))
    }

    /// Opens a regular file of a disk for reading. Symbolic links cannot lead outside this root.
    ///
    /// # Errors
    /// The path does not lead to a readable regular file, or to one of the kernel, such as those of
    /// /proc, or another process holds a lease on the file.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.open_if(path, |_| Ok(()))
    }

    /// Opens a file as [`Root::open`] does if `check` accepts it.
    ///
    /// # Errors
    /// See [`Root::open`], or `check` returned an error.
    pub fn open_if(
        &self,
        path: &Path,
        check: impl FnOnce(&Stat) -> io::Result<()>,
    ) -> io::Result<File> {
        self.open_found(path, OFlags::PATH, check)
    }

    /// Opens a file that a process uses now as [`Root::open`] does, without waiting for disks,
    /// servers or mounts.
    ///
    /// # Errors
    /// See [`Root::open`], or the kernel does not have the path in memory.
    pub fn open_cached(&self, path: &Path) -> io::Result<File> {
        let cached = ResolveFlags::CACHED;
        let fd = match self.find_with(path, OFlags::PATH, cached) {
            // Before Linux 5.12.
            Err(Errno::INVAL) => self.find(path, OFlags::PATH)?,
            found => found?,
        };
        self.reopen(&fd, path, &rustix::fs::fstat(&fd)?)
    }

    /// Opens a file as [`Root::open_if`] does if the path is not that of a symbolic link.
    ///
    /// # Errors
    /// See [`Root::open_if`].
    pub fn open_no_link(
        &self,
        path: &Path,
        check: impl FnOnce(&Stat) -> io::Result<()>,
    ) -> io::Result<File> {
        self.open_found(path, OFlags::PATH | OFlags::NOFOLLOW, check)
    }

    fn open_found(
        &self,
        path: &Path,
        flags: OFlags,
        check: impl FnOnce(&Stat) -> io::Result<()>,
    ) -> io::Result<File> {
        let fd = self.find(path, flags)?;
        let status = rustix::fs::fstat(&fd)?;
        check(&status)?;
        self.reopen(&fd, path, &status)
    }

    /// Opens the file of a mapping at its path, without following links.
    ///
    /// Device and inode prove that it is the mapped file. On overlayfs and btrfs, a mapping has
    /// another device, and files of several layers or subvolumes have the same inode: `reader`, the
    /// user of the process, must then be able to read the file. Without one, it is rejected.
    ///
    /// # Errors
    /// See [`Root::open`], or another file is at the path.
    pub fn open_mapped(&self, mapping: &MapsLine<'_>, reader: Option<&Reader>) -> io::Result<File> {
        let (fd, status, is_readable) = self.walk(mapping, reader)?;
        let device = (
            rustix::fs::major(status.st_dev),
            rustix::fs::minor(status.st_dev),
        );
        let is_same = status.st_ino == mapping.inode
            && (device == mapping.device || has_other_devices(&fd)? && is_readable);
        self.reopen_if(is_same, &fd, mapping, &status)
    }

    /// Opens a file at the path of a mapping whose build id the caller then compares, without
    /// following links.
    ///
    /// The inode is that of the mapping, or `reader` may read the file: build ids may come from a
    /// program that followed a link.
    ///
    /// # Errors
    /// See [`Root::open`], or another file is at the path.
    pub fn open_build(&self, mapping: &MapsLine<'_>, reader: &Reader) -> io::Result<File> {
        let (fd, status, is_readable) = self.walk(mapping, Some(reader))?;
        let is_same = status.st_ino == mapping.inode || is_readable;
        self.reopen_if(is_same, &fd, mapping, &status)
    }

    /// Finds the file at the path of a mapping without following links. Returns whether `reader`
    /// may read it there.
    fn walk(
        &self,
        mapping: &MapsLine<'_>,
        reader: Option<&Reader>,
    ) -> io::Result<(OwnedFd, Stat, bool)> {
        let mut fd = self.0.try_clone()?;
        let mut status = rustix::fs::fstat(&fd)?;
        let mut is_reachable = true;
        for component in Path::new(OsStr::from_bytes(mapping.path)).components() {
            let name = match component {
                Component::RootDir => continue,
                Component::Normal(name) => name,
                _ => return Err(io::ErrorKind::NotFound.into()),
            };
            is_reachable &= reader.is_some_and(|reader| reader.may_search(&status));
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fd = rustix::fs::openat(&fd, name, flags, Mode::empty())?;
            status = rustix::fs::fstat(&fd)?;
        }
        let is_readable = is_reachable && reader.is_some_and(|reader| reader.may_read(&status));
        Ok((fd, status, is_readable))
    }

    fn reopen_if(
        &self,
        is_same: bool,
        fd: &OwnedFd,
        mapping: &MapsLine<'_>,
        status: &Stat,
    ) -> io::Result<File> {
        let path = Path::new(OsStr::from_bytes(mapping.path));
        match is_same {
            true => self.reopen(fd, path, status),
            false => Err(io::Error::other("another file is now at its path")),
        }
    }

    /// Opens a file that was found and checked.
    fn reopen(&self, fd: &OwnedFd, path: &Path, status: &Stat) -> io::Result<File> {
        match reopen_regular(fd) {
            // Without /proc, as in a minimal root directory, the descriptor cannot be reopened.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.open_unchanged(path, status)
            }
            opened => opened,
        }
    }

    /// Opens the file at a path, unless the path has been replaced since it was found.
    fn open_unchanged(&self, path: &Path, expected: &Stat) -> io::Result<File> {
        // The replacement may be a FIFO.
        let opened = self.find(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let status = rustix::fs::fstat(&opened)?;
        match (status.st_dev, status.st_ino) == (expected.st_dev, expected.st_ino) {
            true => Ok(opened.into()),
            false => Err(io::Error::other(
                "the file was replaced while it was being opened",
            )),
        }
    }

    /// Returns the directory without search permission, if that is why a path cannot be found.
    #[must_use]
    pub fn closed<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        let is_denied = |path: &&Path| {
            let result = self.find(path, OFlags::PATH);
            result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        path.ancestors().take_while(is_denied).last()?.parent()
    }

    /// Finds a socket without connecting to it. `/proc/self/fd/N` of the descriptor is its address.
    ///
    /// # Errors
    /// The path does not lead to a socket.
    pub fn find_socket(&self, path: &Path) -> io::Result<OwnedFd> {
        let fd = self.find(path, OFlags::PATH)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
            FileType::Socket => Ok(fd),
            kind => Err(io::Error::other(format!("not a socket: {kind:?}"))),
        }
    }

    /// Returns the first names in a directory that match, at most `limit`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(
        &self,
        directory: &Path,
        limit: usize,
        is_match: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<OsString>> {
        let fd = self.find(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        // A target may create any number of entries.
        for entry in Dir::new(fd)?.take(MAX_DIRECTORY_ENTRIES) {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if names.len() < limit && is_match(name) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    fn find(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(self.find_with(path, flags, ResolveFlags::empty())?)
    }

    fn find_with(
        &self,
        path: &Path,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = resolve | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MAX_TRIES {
            // AGAIN: a concurrent rename anywhere may have moved the target of a `..` component.
            match rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Returns whether files of a file system have another device in /proc/PID/maps than in `stat`.
fn has_other_devices(fd: &OwnedFd) -> io::Result<bool> {
    let file_system = rustix::fs::fstatfs(fd)?.f_type;
    Ok(matches!(file_system, OVERLAY_MAGIC | BTRFS_MAGIC))
}

/// Opens the executable of a process, even if its path was replaced.
///
/// # Errors
/// The process has ended, or its executable cannot be opened.
pub fn executable(pid: i32) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = rustix::fs::open(format!("/proc/{pid}/exe"), flags, Mode::empty())?;
    reopen_regular(&fd)
}

/// Opens the regular file of an O_PATH descriptor for reading.
///
/// Rejects FIFOs, devices and files of the kernel: opening or reading them may block or have side
/// effects.
pub(super) fn reopen_regular(fd: &OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other(format!("not a regular file: {kind:?}")));
    }
    if KERNEL_FILE_SYSTEMS.contains(&(rustix::fs::fstatfs(fd)?.f_type as u32)) {
        return Err(io::Error::other(
            "not a file of a disk: the kernel makes it",
        ));
    }
    // Without NONBLOCK, opening waits up to 45 s for the holder of a lease (fcntl(2)).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(Errno::AGAIN) => Err(io::Error::other(
            "another process holds a lease on the file",
        )),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read;

    #[test]
    fn follows_links_only_within_root() {
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

    /// The build id may be that of a private file of root, to which another user made a link.
    #[test]
    fn opens_private_file_of_a_build_only_by_its_inode() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("file", directory.path().join("link")).unwrap();
        let inode = rustix::fs::stat(&file).unwrap().st_ino;
        let root = Root::at(directory.path()).unwrap();
        let open = |path: &[u8], inode| {
            let mapping = MapsLine {
                start: 0,
                end: 0,
                file_offset: 0,
                device: (0, 1),
                inode,
                path,
                executable: true,
            };
            root.open_build(&mapping, &Reader::unknown()).is_ok()
        };
        assert!(open(b"/file", inode) && !open(b"/link", inode));
        let chmod = |path: &Path, mode| {
            rustix::fs::chmod(path, Mode::from_raw_mode(mode)).unwrap();
        };
        if rustix::process::geteuid().is_root() {
            // Only root may search the directory.
            chmod(directory.path(), 0o700);
            assert!(!open(b"/file", 1));
            chmod(directory.path(), 0o711);
            chmod(&file, 0o640);
            assert!(!open(b"/file", 1));
        }
        chmod(&file, 0o644);
        assert!(open(b"/file", 1));
    }

    #[test]
    fn rejects_devices() {
        let error = Root::host()
            .unwrap()
            .open(Path::new("/dev/null"))
            .unwrap_err();
        assert!(error.to_string().contains("regular"), "{error}");
    }

    #[test]
    fn rejects_files_that_the_kernel_makes() {
        let root = Root::host().unwrap();
        // Reading the first of them never returns, and takes lines from other readers.
        for path in ["/proc/kmsg", "/proc/self/maps", "/sys/kernel/profiling"] {
            if let Err(error) = root.open(Path::new(path))
                && error.kind() != io::ErrorKind::NotFound
            {
                assert!(error.to_string().contains("the kernel makes it"), "{error}");
            } else {
                assert!(!Path::new(path).exists(), "{path}");
            }
        }
    }

    #[test]
    fn waits_for_no_lease() {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        // It keeps the lease when the kernel asks for it.
        let holder = "import fcntl, os, signal, sys\n\
            signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
            file = os.open(sys.argv[1], os.O_RDWR)\n\
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
            print('held', flush=True)\n\
            sys.stdin.read()\n";
        let started = std::process::Command::new("python3")
            .args(["-c", holder])
            .arg(&file)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut python) = started else {
            return test_skip::skip(test_skip::Missing::Command("python3"));
        };
        let mut stdout = python.stdout.take().unwrap();
        stdout.read_exact(&mut [0; "held\n".len()]).unwrap();
        let error = Root::host().unwrap().open(&file).unwrap_err();
        assert!(error.to_string().contains("lease"), "{error}");
        drop(python.stdin.take());
        python.wait().unwrap();
    }
}
