//! The folder of the files that name functions: a new one, removed when dropped unless it was committed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::output::file::{self, FileOwner, OutputError, PathAt};
use crate::output::folder;

/// The folder and the older one whose place it takes when it is committed, not before.
pub struct SymbolFolder {
    path: PathBuf,
    place: PathAt,
    replaces: Option<OsString>,
    dir: OwnedFd,
    owner: Option<FileOwner>,
    committed: bool,
}

impl SymbolFolder {
    /// Makes the folder at `path`; with `force`, in place of one of this user that holds nothing but files.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn create(path: &Path, force: bool) -> Result<Self, OutputError> {
        let replaces = Self::in_the_way(path, force)?;
        let mut place = PathAt::of(path)?;
        let replaces = replaces.then(|| {
            let partial = file::partial_name(&place.name);
            std::mem::replace(&mut place.name, partial)
        });
        let owner = FileOwner::invoking_user();
        let dir = folder::make(&place, owner).map_err(|errno| file::create_error(path, errno))?;
        Ok(Self {
            path: path.to_owned(),
            place,
            replaces,
            dir,
            owner,
            committed: false,
        })
    }

    /// Whether there is a folder in the way, which may be replaced.
    ///
    /// # Errors
    /// It may not.
    pub fn in_the_way(path: &Path, force: bool) -> Result<bool, OutputError> {
        let place = PathAt::of(path)?;
        let there = rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW);
        match there {
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(file::write_error(path, errno.into())),
            Ok(_) if !force => Err(file::create_error(path, Errno::EXIST)),
            Ok(there) => {
                let is_folder = FileType::from_raw_mode(there.st_mode) == FileType::Directory;
                let is_ours = is_folder && file::is_own(&there, FileOwner::invoking_user());
                match is_ours && folder::open(&place).is_ok_and(|dir| folder::is_flat(&dir)) {
                    true => Ok(true),
                    false => Err(OutputError::NotReplaceable {
                        path: path.to_owned(),
                    }),
                }
            }
        }
    }

    /// Where it will be, whatever the current directory.
    ///
    /// # Errors
    /// There is no current directory.
    pub fn absolute(&self) -> io::Result<PathBuf> {
        std::path::absolute(&self.path)
    }

    /// Puts a file into it.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        folder::create_file(&self.dir, name, self.owner)?.write_all(content)
    }

    /// Keeps the folder.
    ///
    /// # Errors
    /// [`OutputError::Write`]: the older one cannot be removed.
    pub fn commit(mut self) -> Result<(), OutputError> {
        if let Some(name) = self.replaces.take() {
            self.replace(name)
                .map_err(|error| file::write_error(&self.path, error))?;
        }
        self.committed = true;
        Ok(())
    }

    fn replace(&self, name: OsString) -> io::Result<()> {
        let older = PathAt::of(&self.path).map_err(io::Error::other)?;
        folder::remove(&older, &folder::open(&older)?, |_| true)?;
        let PathAt { dir, name: partial } = &self.place;
        Ok(rustix::fs::renameat(dir, partial, dir, name)?)
    }
}

impl Drop for SymbolFolder {
    fn drop(&mut self) {
        if !self.committed {
            // There is nobody left to tell.
            let _ = folder::remove(&self.place, &self.dir, |_| true);
        }
    }
}
