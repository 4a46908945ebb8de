//! The file of a spool: hidden beside the trace it will become, locked while its capture runs, and there until the
//! trace is complete.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::file::{self, FileOwner, OutputError, PathAt};
use super::sanitize::shell_word;
use crate::trace::Header;

const SUFFIX: &str = ".trace.spool";

/// Why there is no spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolFileError {
    /// The file cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An earlier capture of this name died.
    #[error("{} was left by a capture that was killed: `{recover}` makes its trace, -force discards it", path.display())]
    Left {
        /// The spool.
        path: PathBuf,
        /// The command.
        recover: String,
    },
    /// A capture of this name runs.
    #[error("a capture of this name still runs{}: `{}` ends it and makes its trace ({})",
        collector.map_or_else(String::new, |pid| format!(" (process {pid})")),
        command("stop", &capture_of(path).unwrap_or_default()), path.display())]
    Running {
        /// The spool.
        path: PathBuf,
        /// Its process, as the spool tells it.
        collector: Option<i32>,
    },
    /// There is no spool.
    #[error("no capture of this name runs or was killed: there is no {} (a name is a path, from the current directory)",
        path.display())]
    Missing {
        /// The spool.
        path: PathBuf,
    },
    /// Somebody else's file, or no plain file.
    #[error("{} is not a file of yours and is not used", path.display())]
    NotOwn {
        /// The spool.
        path: PathBuf,
    },
    /// It is there but cannot be opened.
    #[error("cannot open {}: {errno}", path.display())]
    Open {
        /// The spool.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
}

/// The spool of a capture name; the name may be that of the spool itself.
#[must_use]
pub fn spool_path(name: &Path) -> PathBuf {
    if capture_of(name).is_some() {
        return name.to_owned();
    }
    let trace = file::trace_path(name);
    let mut spool = OsString::from(".");
    spool.push(file::capture_name(&trace));
    spool.push(SUFFIX);
    trace.with_file_name(spool)
}

/// The capture name of a spool's path.
#[must_use]
pub fn capture_of(spool: &Path) -> Option<PathBuf> {
    let name = spool.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(SUFFIX)?;
    Some(spool.with_file_name(name))
}

/// The command that makes the trace of a killed capture.
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

/// An open spool. Dropping it leaves the file alone.
pub struct SpoolFile {
    path: PathBuf,
    place: PathAt,
    file: File,
}

impl SpoolFile {
    /// Creates the spool of a capture name; with `force`, in place of one that was left.
    ///
    /// # Errors
    /// See [`SpoolFileError`].
    pub fn create(name: &Path, force: bool) -> Result<Self, SpoolFileError> {
        let path = spool_path(name);
        let place = PathAt::of(&path)?;
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
            && let Err(errno) = owner.take(&spool.file)
        {
            // It is empty; nobody misses it.
            let _ = spool.remove();
            return Err(file::write_error(&spool.path, errno.into()).into());
        }
        Ok(spool)
    }

    /// Opens the spool that a capture of this name has left.
    ///
    /// # Errors
    /// See [`SpoolFileError`].
    pub fn open(name: &Path) -> Result<Self, SpoolFileError> {
        let path = spool_path(name);
        let place = PathAt::of(&path)?;
        let missing = || SpoolFileError::Missing { path: path.clone() };
        match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => {}
            Err(Errno::NOENT) => return Err(missing()),
            Err(errno) => return Err(SpoolFileError::Open { path, errno }),
        }
        // What somebody else put there would make us, often root, read files of his choice.
        if let Err(error) = file::check_own(&place, FileOwner::invoking_user(), &path) {
            return Err(match error {
                OutputError::NotReplaceable { path } => SpoolFileError::NotOwn { path },
                other => other.into(),
            });
        }
        // A FIFO put there since would make us wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(errno) => return Err(SpoolFileError::Open { path, errno }),
        };
        file::check_own(&place, FileOwner::invoking_user(), &path)?;
        let spool = Self { path, place, file };
        spool.lock()?;
        // Somebody who recovered it may have removed it just now.
        if spool.place.holds(&spool.file) {
            Ok(spool)
        } else {
            Err(SpoolFileError::Missing { path: spool.path })
        }
    }

    /// The lock lives as long as the open file, so the kernel takes it back from a collector that was killed.
    fn lock(&self) -> Result<(), SpoolFileError> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(SpoolFileError::Running {
                path: self.path.clone(),
                collector: Header::read(&self.file).ok().map(|header| header.collector),
            }),
            // On a file system without locks a capture is better than none.
            _ => Ok(()),
        }
    }

    /// The file, at its beginning if it was left by another capture.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds blocks that there was no room for before.
    ///
    /// # Errors
    /// If there still is none.
    pub fn append(&self, blocks: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::End(0))?;
        file.write_all(blocks)
    }

    /// Removes it: the trace is complete, or nothing is in it.
    ///
    /// # Errors
    /// If the file stays there.
    pub fn remove(&self) -> io::Result<()> {
        Ok(self.place.remove(&self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_spool_stands_hidden_beside_its_trace() {
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
    fn the_command_can_be_pasted() {
        let command = |name: &str| recover_command(Path::new(name));
        assert_eq!(command("a/b-1"), "perfcollect recover a/b-1");
        assert_eq!(command("it's"), r"perfcollect recover 'it'\''s'");
    }

    #[test]
    fn a_running_spool_is_locked_and_a_left_one_is_found() {
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
    fn a_link_is_not_followed() {
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
