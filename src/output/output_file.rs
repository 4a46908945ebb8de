//! A new file of a trace, which gets its name when it is complete.
//!
//! Until then it has no name in its directory (`O_TMPFILE`), so that a killed process leaves
//! nothing. File systems without such files, such as NFS, get a hidden file that is renamed.

use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::file::{
    FileOwner, OutputError, PathAt, check_open, check_own, create_error, not_replaceable,
    write_error,
};

/// What may be at the name of a new file.
enum Older {
    None,
    /// A file of this user.
    Own,
    /// This file.
    This(OwnedFd),
}

/// A new output file. A file that is not committed is removed on drop.
pub struct OutputFile {
    path: PathBuf,
    place: PathAt,
    older: Older,
    file: std::fs::File,
    /// Hidden name of the incomplete file; `None` if it has no name.
    partial: Option<PathAt>,
}

impl OutputFile {
    /// Creates a file for `path`. With `force`, it may replace a regular file of this user.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn create(path: &Path, force: bool) -> Result<Self, OutputError> {
        Self::create_for(path, force, FileOwner::invoking_user())
    }

    fn create_for(path: &Path, force: bool, owner: Option<FileOwner>) -> Result<Self, OutputError> {
        let place = PathAt::open(path)?;
        let older = match exists(&place, path, force, owner)? {
            true => Older::Own,
            false => Older::None,
        };
        let file = Self::new(path, place, older, |place| place.nameable_file(owner))?;
        if let Some(owner) = owner {
            owner
                .chown(&file.file)
                .map_err(|errno| file.explain(errno.into()))?;
        }
        Ok(file)
    }

    fn new(
        path: &Path,
        place: PathAt,
        older: Older,
        unnamed: impl FnOnce(&PathAt) -> Option<std::fs::File>,
    ) -> Result<Self, OutputError> {
        let (file, partial) = match unnamed(&place) {
            Some(file) => (file, None),
            None => {
                let named = place.create_partial();
                let (partial, file) = named.map_err(|errno| create_error(path, errno))?;
                (file.into(), Some(partial))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            place,
            older,
            file,
            partial,
        })
    }

    /// Creates a file that replaces an open one, with its owner and permissions.
    ///
    /// The open file must be at `path`, now and when the new file is committed.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn replace(path: &Path, older: &std::fs::File) -> Result<Self, OutputError> {
        let place = PathAt::open(path)?;
        let failed = |errno: Errno| write_error(path, errno.into());
        let status = check_open(older, path)?;
        if !place.holds(older) {
            return Err(not_replaceable(path));
        }
        let older = older.as_fd().try_clone_to_owned();
        let older = Older::This(older.map_err(|error| write_error(path, error))?);
        let (uid, gid) = (Uid::from_raw(status.st_uid), Gid::from_raw(status.st_gid));
        let owner = FileOwner { uid, gid };
        let file = Self::new(path, place, older, |place| place.nameable_file(Some(owner)))?;
        let mode = match rustix::fs::fchown(&file.file, Some(uid), Some(gid)) {
            // The sandbox denies files that all users can write.
            Ok(()) => status.st_mode & 0o775,
            // The permissions of a group must not go to another one.
            Err(_) => status.st_mode & 0o700,
        };
        rustix::fs::fchmod(&file.file, Mode::from_raw_mode(mode)).map_err(failed)?;
        Ok(file)
    }

    /// Checks whether an existing file at `path` would make [`OutputFile::create`] fail.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn check(path: &Path, force: bool) -> Result<(), OutputError> {
        let place = PathAt::open(path)?;
        exists(&place, path, force, FileOwner::invoking_user()).map(drop)
    }

    /// Removes the file at `path`, if there is one: only one that [`OutputFile::create`] with `force` would replace.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn remove_older(path: &Path) -> Result<(), OutputError> {
        let place = PathAt::open(path)?;
        if exists(&place, path, true, FileOwner::invoking_user())? {
            let removed = rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::empty());
            removed.map_err(|errno| write_error(path, errno.into()))?;
        }
        Ok(())
    }

    /// Makes the file readable for all users.
    ///
    /// # Errors
    /// Returns [`OutputError::Write`] if the mode cannot be changed.
    pub fn make_world_readable(&self) -> Result<(), OutputError> {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::fchmod(&self.file, mode).map_err(|errno| self.explain(errno.into()))
    }

    /// Converts an error of a write to this file.
    #[must_use]
    pub fn explain(&self, error: io::Error) -> OutputError {
        write_error(&self.path, error)
    }

    /// Writes the content to disk, and gives the file its name.
    ///
    /// # Errors
    /// Returns [`OutputError::Full`] or [`OutputError::Write`], or [`OutputError::Exists`] if the
    /// name was taken in the meantime, and removes the file.
    pub fn commit(self) -> Result<(), OutputError> {
        Self::commit_all([self])
    }

    /// Commits files that belong together: none gets its name before all are on the disk.
    ///
    /// # Errors
    /// See [`OutputFile::commit`]. None of the files remains, except those that replaced another.
    pub fn commit_all(files: impl IntoIterator<Item = Self>) -> Result<(), OutputError> {
        let mut files: Vec<_> = files.into_iter().collect();
        files.iter().try_for_each(Self::sync)?;
        for at in 0..files.len() {
            let published = files[at].publish();
            if let Err(error) = published {
                for earlier in &files[..at] {
                    earlier.withdraw();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the content to disk. Some file systems report only then that they are full.
    fn sync(&self) -> Result<(), OutputError> {
        match rustix::fs::fdatasync(&self.file) {
            // Some file systems, such as some FUSE ones, do not support fdatasync.
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.explain(errno.into())),
        }
    }

    /// Gives the file its name.
    fn publish(&mut self) -> Result<(), OutputError> {
        if let Older::This(older) = &self.older
            && !self.place.holds(older)
        {
            return Err(not_replaceable(&self.path));
        }
        let named = match (&self.older, self.partial.take()) {
            (Older::None, None) => link(&self.file, &self.place),
            (Older::None, Some(partial)) => {
                let moved = partial.move_to_new(&self.place);
                self.partial = moved.is_err().then_some(partial);
                moved
            }
            (_, partial) => self.replace_older(partial),
        };
        named.map_err(|errno| match errno {
            Errno::EXIST => create_error(&self.path, errno),
            errno => self.explain(errno.into()),
        })
    }

    fn replace_older(&mut self, partial: Option<PathAt>) -> rustix::io::Result<()> {
        let partial = match partial {
            Some(partial) => partial,
            // Only a file with a name can replace another.
            None => {
                let name = |partial: &PathAt| link(&self.file, partial);
                self.place.with_partial(name)?.0
            }
        };
        let moved = rustix::fs::renameat(
            &partial.dir,
            &partial.name,
            &self.place.dir,
            &self.place.name,
        );
        self.partial = moved.is_err().then_some(partial);
        moved
    }

    /// Takes the name from a new file again.
    fn withdraw(&self) {
        if let Older::None = self.older {
            // The error that made it necessary is reported.
            let _ = self.place.remove(&self.file);
        }
    }
}

impl PathAt {
    /// Creates a file without a name in this directory that can get one, also if it belongs to `owner`.
    ///
    /// Tries it with another file: a file system may have no hard links, a minimal root directory no
    /// /proc, and `protected_hardlinks` forbids links to files of others (proc_sys_fs(5)).
    fn nameable_file(&self, owner: Option<FileOwner>) -> Option<std::fs::File> {
        let probe = self.unnamed(OFlags::empty())?;
        // If this fails, the file stays this user's.
        let _ = owner.map(|owner| owner.chown(&probe));
        let (name, ()) = self.with_partial(|partial| link(&probe, partial)).ok()?;
        name.remove(&probe).ok()?;
        self.unnamed(OFlags::empty())
    }

    /// Creates a hidden file that will get this name.
    fn create_partial(&self) -> rustix::io::Result<(Self, OwnedFd)> {
        self.with_partial(|partial| partial.create(OFlags::WRONLY))
    }

    /// Renames this file, unless the new name is taken.
    fn move_to_new(&self, new: &Self) -> rustix::io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.dir, &self.name, &new.dir, &new.name, flags) {
            // NFS, and Linux before 3.15.
            Err(Errno::INVAL | Errno::NOSYS) => self.move_by_link(new),
            moved => moved,
        }
    }

    /// Does the same without this flag.
    fn move_by_link(&self, new: &Self) -> rustix::io::Result<()> {
        let flags = AtFlags::empty();
        match rustix::fs::linkat(&self.dir, &self.name, &new.dir, &new.name, flags) {
            Ok(()) => rustix::fs::unlinkat(&self.dir, &self.name, flags),
            Err(Errno::EXIST) => Err(Errno::EXIST),
            // Without hard links: the empty file is replaced at once.
            Err(_) => {
                let empty = new.create(OFlags::WRONLY)?;
                let moved = rustix::fs::renameat(&self.dir, &self.name, &new.dir, &new.name);
                moved.inspect_err(|_| {
                    let _ = new.remove(&empty);
                })
            }
        }
    }
}

/// Gives a file without a name this one, unless the name is taken.
fn link(file: &std::fs::File, place: &PathAt) -> rustix::io::Result<()> {
    let file = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, file, &place.dir, &place.name, AtFlags::SYMLINK_FOLLOW)
}

/// Returns whether a file exists that may be replaced.
fn exists(
    place: &PathAt,
    path: &Path,
    force: bool,
    owner: Option<FileOwner>,
) -> Result<bool, OutputError> {
    match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) if force => check_own(place, owner, path).map(|()| true),
        Ok(_) => Err(create_error(path, Errno::EXIST)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(write_error(path, errno.into())),
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // `drop` cannot return the error.
            let _ = partial.remove(&self.file);
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for OutputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
#[path = "output_file_tests.rs"]
mod tests;
