//! The spool file: hidden in the directory of its trace, and locked while its capture runs.
//!
//! The file exists until the trace is complete.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::file::{self, FileOwner, OutputError, PathAt};
use super::sanitize::shell_word;
use crate::trace::Header;

const SUFFIX: &str = ".trace.spool";

/// A spool file cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum SpoolFileError {
    /// The file cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An earlier capture with this name was killed.
    #[error("found {} of a killed capture: create its trace with `{recover}`, or discard it with -force", path.display())]
    Left {
        /// The spool.
        path: PathBuf,
        /// The command that creates the trace.
        recover: String,
    },
    /// A capture with this name is running.
    #[error("a capture of this name is running{}: stop it and create its trace with `{}` ({})",
        collector.map_or_else(String::new, |pid| format!(" (process {pid})")),
        command("stop", &capture_of(path).unwrap_or_default()), path.display())]
    Running {
        /// The spool.
        path: PathBuf,
        /// The id of its process, as recorded in the spool.
        collector: Option<i32>,
    },
    /// There is no spool.
    #[error("no capture of this name is running or was killed: {} does not exist; give the name as a path, relative to the current directory",
        path.display())]
    Missing {
        /// The spool.
        path: PathBuf,
    },
    /// The file belongs to another user, or is not a regular file.
    #[error("cannot use {}: it is not a regular file or belongs to another user", path.display())]
    NotOwn {
        /// The spool.
        path: PathBuf,
    },
    /// The file exists but cannot be opened.
    #[error("cannot open {}: {errno}", path.display())]
    Open {
        /// The spool.
        path: PathBuf,
        /// The error of the kernel.
        errno: Errno,
    },
}

/// Returns the spool path of a capture name. Returns `name` if it already is a spool path.
#[must_use]
pub fn spool_path(name: &Path) -> PathBuf {
    if capture_of(name).is_some() {
        return name.to_owned();
    }
    file::hidden_path(name, SUFFIX)
}

/// Returns the capture name of a spool path.
#[must_use]
pub fn capture_of(spool: &Path) -> Option<PathBuf> {
    let name = spool.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(SUFFIX)?;
    Some(spool.with_file_name(name))
}

/// Returns the command that creates the trace of a killed capture.
#[must_use]
pub fn recover_command(name: &Path) -> String {
    command("recover", name)
}

fn command(action: &str, name: &Path) -> String {
    format!(
        "perfcollect {action} {}",
        shell_word(&name.to_string_lossy())
    )
}

/// An open spool. Dropping it keeps the file.
pub struct SpoolFile {
    path: PathBuf,
    place: PathAt,
    file: File,
}

impl SpoolFile {
    /// Creates the spool of a capture name. With `force`, replaces the spool of a killed capture.
    ///
    /// # Errors
    /// See [`SpoolFileError`].
    pub fn create(name: &Path, force: bool) -> Result<Self, SpoolFileError> {
        let path = spool_path(name);
        let place = PathAt::open(&path)?;
        let file = match place.create(OFlags::RDWR) {
            Err(Errno::EXIST) => {
                let left = Self::open(name)?;
                if !force {
                    return Err(SpoolFileError::Left {
                        path,
                        recover: recover_command(name),
                    });
                }
                left.remove()
                    .map_err(|error| file::write_error(&path, error))?;
                place.create(OFlags::RDWR)
            }
            other => other,
        };
        let file = file.map_err(|errno| file::create_error(&path, errno))?;
        let spool = Self {
            path,
            place,
            file: file.into(),
        };
        spool.lock()?;
        if let Some(owner) = FileOwner::invoking_user()
            && let Err(errno) = owner.chown(&spool.file)
        {
            // The file is empty.
            let _ = spool.remove();
            return Err(file::write_error(&spool.path, errno.into()).into());
        }
        Ok(spool)
    }

    /// Opens the spool of a killed capture with this name.
    ///
    /// # Errors
    /// See [`SpoolFileError`].
    pub fn open(name: &Path) -> Result<Self, SpoolFileError> {
        let path = spool_path(name);
        let place = PathAt::open(&path)?;
        let missing = || SpoolFileError::Missing { path: path.clone() };
        match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => {}
            Err(Errno::NOENT) => return Err(missing()),
            Err(errno) => return Err(SpoolFileError::Open { path, errno }),
        }
        // Another user could make perfcollect, which often runs as root, read a file of their
        // choice.
        if let Err(error) = file::check_own(&place, FileOwner::invoking_user(), &path) {
            return Err(match error {
                OutputError::NotReplaceable { path } => SpoolFileError::NotOwn { path },
                other => other.into(),
            });
        }
        // Another process may have placed a FIFO here since the check: `open` must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(errno) => return Err(SpoolFileError::Open { path, errno }),
        };
        file::check_open(&file, &path)?;
        let spool = Self { path, place, file };
        spool.lock()?;
        // Another process may have recovered the spool and removed it in the meantime.
        if spool.place.holds(&spool.file) {
            Ok(spool)
        } else {
            Err(SpoolFileError::Missing { path: spool.path })
        }
    }

    /// Locks the file. The kernel releases the lock when the process is killed, with the open file.
    fn lock(&self) -> Result<(), SpoolFileError> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(SpoolFileError::Running {
                path: self.path.clone(),
                collector: Header::read(&self.file).ok().map(|header| header.collector),
            }),
            // Some file systems have no locks: perfcollect captures without one.
            _ => Ok(()),
        }
    }

    /// Returns the file. The spool of a killed capture is at offset 0.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file for temporary data in the same directory, see [`file::unnamed_file`].
    #[must_use]
    pub fn unnamed_file(&self) -> Option<File> {
        self.place.unnamed_file()
    }

    /// Appends blocks that could not be written before, for lack of space.
    ///
    /// # Errors
    /// Returns an error if the space is still missing.
    pub fn append(&self, blocks: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::End(0))?;
        file.write_all(blocks)
    }

    /// Removes the file. Call this when the trace is complete or the spool is empty.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        Ok(self.place.remove(&self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn spool_is_hidden_in_directory_of_trace() {
        for (name, path) in [
            ("app", ".app.trace.spool"),
            ("dir/app.v1", "dir/.app.v1.trace.spool"),
            ("/d/app.trace.zip", "/d/.app.trace.spool"),
            ("/d/.app.trace.spool", "/d/.app.trace.spool"),
        ] {
            assert_eq!(spool_path(Path::new(name)), Path::new(path));
        }
        let name = capture_of(Path::new("/d/.app.trace.spool"));
        assert_eq!(name.unwrap(), Path::new("/d/app"));
    }

    #[test]
    fn quotes_recover_command_for_shell() {
        let command = |name: &str| recover_command(Path::new(name));
        assert_eq!(command("a/b-1"), "perfcollect recover a/b-1");
        assert_eq!(command("it's"), r"perfcollect recover 'it'\''s'");
    }

    #[test]
    fn locks_running_spool_and_finds_stale_one() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        assert!(matches!(
            SpoolFile::open(&name),
            Err(SpoolFileError::Missing { .. })
        ));
        let spool = SpoolFile::create(&name, false).unwrap();
        let mode = spool.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for force in [false, true] {
            let second = SpoolFile::create(&name, force);
            assert!(matches!(second, Err(SpoolFileError::Running { .. })));
        }
        assert!(matches!(
            SpoolFile::open(&name),
            Err(SpoolFileError::Running { .. })
        ));
        drop(spool);
        let error = SpoolFile::create(&name, false).err().unwrap().to_string();
        assert!(error.contains("perfcollect recover"), "{error}");
        assert!(SpoolFile::open(&name).is_ok());
        let spool = SpoolFile::create(&name, true).unwrap();
        spool.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        std::fs::write(dir.path().join("victim"), "precious").unwrap();
        symlink(dir.path().join("victim"), spool_path(&name)).unwrap();
        assert!(matches!(
            SpoolFile::open(&name),
            Err(SpoolFileError::NotOwn { .. })
        ));
        assert!(SpoolFile::create(&name, true).is_err());
        assert!(spool_path(&name).is_symlink());
    }
}
