//! The directory of symbol files: created new, and removed on drop unless it was committed.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::output::directory;
use crate::output::file::{self, FileOwner, OutputError, PathAt};

/// A new directory of symbol files. `commit` replaces an older directory.
pub struct SymbolDirectory {
    path: PathBuf,
    /// Hidden name until the directory is complete.
    place: PathAt,
    /// Whether there is an older directory.
    replaces: bool,
    dir: OwnedFd,
    owner: Option<FileOwner>,
    committed: bool,
}

impl SymbolDirectory {
    /// Creates the directory at `path`.
    ///
    /// With `force`, it may replace a directory of this user that has no subdirectories.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn create(path: &Path, force: bool) -> Result<Self, OutputError> {
        let replaces = Self::in_the_way(path, force)?;
        let owner = FileOwner::invoking_user();
        let make = |partial: &PathAt| directory::make(partial, owner);
        let made = PathAt::open(path)?.with_partial(make);
        let (place, dir) = made.map_err(|errno| file::create_error(path, errno))?;
        Ok(Self {
            path: path.to_owned(),
            place,
            replaces,
            dir,
            owner,
            committed: false,
        })
    }

    /// Returns whether a replaceable directory exists at `path`.
    ///
    /// # Errors
    /// Returns an error if the existing file or directory must not be replaced.
    pub fn in_the_way(path: &Path, force: bool) -> Result<bool, OutputError> {
        let place = PathAt::open(path)?;
        let stat = rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW);
        match stat {
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(file::write_error(path, errno.into())),
            Ok(_) if !force => Err(file::create_error(path, Errno::EXIST)),
            Ok(stat) => {
                let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                if !is_directory || !file::is_own(&stat, FileOwner::invoking_user()) {
                    return Err(file::not_replaceable(path));
                }
                Self::open(&place, path).map(|_| true)
            }
        }
    }

    /// Opens an older directory, which perfcollect made.
    fn open(place: &PathAt, path: &Path) -> Result<OwnedFd, OutputError> {
        let owner = FileOwner::invoking_user();
        let dir = directory::open(place).map_err(|errno| file::write_error(path, errno.into()))?;
        match directory::is_made(&dir, owner) && directory::is_flat(&dir) {
            true => Ok(dir),
            false => Err(OutputError::NotMade {
                path: path.to_owned(),
            }),
        }
    }

    /// Returns the absolute path of the committed directory.
    ///
    /// # Errors
    /// Returns an error if the current directory does not exist.
    pub fn absolute(&self) -> io::Result<PathBuf> {
        std::path::absolute(&self.path)
    }

    /// Writes a file in the directory.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created or written.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        directory::create_file(&self.dir, name, self.owner)?.write_all(content)
    }

    /// Gives the directory its name, unless there is something else by now: only an empty directory
    /// can be replaced. It is still removed on drop, unless [`SymbolDirectory::commit`] follows.
    ///
    /// # Errors
    /// Returns [`OutputError::Write`] if the older directory cannot be replaced.
    pub fn publish(&mut self) -> Result<(), OutputError> {
        let place = PathAt::open(&self.path)?;
        self.move_to(&place)?;
        self.place = place;
        Ok(())
    }

    fn move_to(&self, place: &PathAt) -> Result<(), OutputError> {
        let failed = |error| file::write_error(&self.path, error);
        if self.replaces {
            let older = Self::open(place, &self.path)?;
            directory::remove(place, &older, |_| true).map_err(failed)?;
        }
        let PathAt { dir, name } = &self.place;
        let renamed = rustix::fs::renameat(dir, name, &place.dir, &place.name);
        renamed.map_err(|errno| failed(errno.into()))
    }

    /// Keeps the published directory.
    pub fn commit(mut self) {
        self.committed = true;
    }
}

impl Drop for SymbolDirectory {
    fn drop(&mut self) {
        if !self.committed {
            // `drop` cannot return the error.
            let _ = directory::remove(&self.place, &self.dir, |_| true);
        }
    }
}
