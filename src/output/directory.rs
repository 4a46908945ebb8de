//! Directories that perfcollect creates next to a trace, with the rules of [`super::file`].

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::file::{self, FileOwner, PathAt};

/// Name of the empty file by which a directory of perfcollect is recognized. Who owns the directory around it
/// could give its name to another one of root.
const MARKER: &str = ".perfcollect";

/// Opens an existing directory. Does not follow links.
pub(super) fn open(place: &PathAt) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty())
}

/// Creates and opens a directory.
pub(super) fn make(place: &PathAt, owner: Option<FileOwner>) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(&place.dir, &place.name, Mode::RWXU)?;
    let dir = open(place)?;
    if let Some(owner) = owner {
        owner.chown(&dir)?;
    }
    create_file(&dir, MARKER, owner)?;
    Ok(dir)
}

/// Returns whether [`make`] created a directory, for this user.
pub(super) fn is_made(dir: &OwnedFd, owner: Option<FileOwner>) -> bool {
    let marker = rustix::fs::statat(dir, MARKER, AtFlags::SYMLINK_NOFOLLOW);
    marker.is_ok_and(|marker| file::is_own_file(&marker, owner))
}

/// Creates a new file in a directory.
pub(super) fn create_file(
    dir: &OwnedFd,
    name: &str,
    owner: Option<FileOwner>,
) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    if let Some(owner) = owner {
        owner.chown(&file)?;
    }
    Ok(file.into())
}

/// Returns whether a directory has no subdirectories.
pub(super) fn is_flat(dir: &OwnedFd) -> bool {
    let is_other = |name: &[u8]| name != b"." && name != b"..";
    Dir::read_from(dir).is_ok_and(|mut entries| {
        entries.all(|entry| {
            entry.is_ok_and(|entry| {
                entry.file_type() != FileType::Directory || !is_other(entry.file_name().to_bytes())
            })
        })
    })
}

/// Removes the files that `is_ours` accepts and the marker, then the directory.
///
/// # Errors
/// Returns an error if other files remain in the directory.
pub(super) fn remove(
    place: &PathAt,
    dir: &OwnedFd,
    is_ours: impl Fn(&str) -> bool,
) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = name.to_bytes() == MARKER.as_bytes() || is_ours(&name.to_string_lossy());
        if entry.file_type() != FileType::Directory && is_ours {
            rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
        }
    }
    if place.holds(dir) {
        rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}
