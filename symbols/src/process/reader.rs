//! The user of a process, as far as permissions of files are concerned.

use std::fmt::Display;

use rustix::fs::{Mode, Stat};
use rustix::process::geteuid;

use super::status::field;

/// A user id that no user has.
const NO_USER: u32 = u32::MAX;

/// The user whose permissions decide whether a process may read a file.
#[derive(Debug)]
pub struct Reader {
    uid: u32,
    groups: Vec<u32>,
}

impl Reader {
    /// Returns the user of a running process, or `None` if it has ended.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Self::of_status(pid)
    }

    /// Returns the user of a process that has ended or may not be inspected: the current one, or
    /// instead of root one who may read what all users may.
    #[must_use]
    pub fn unknown() -> Self {
        let own = (!geteuid().is_root()).then(|| Self::of_status("self"));
        own.flatten().unwrap_or(Self {
            uid: NO_USER,
            groups: Vec::new(),
        })
    }

    fn of_status(process: impl Display + Copy) -> Option<Self> {
        let numbers = |name| -> Option<Vec<u32>> {
            let words = field(process, name)?;
            words
                .split_ascii_whitespace()
                .map(|word| word.parse().ok())
                .collect()
        };
        // Real, effective, saved and that of the file system.
        let (uids, gids) = (numbers("Uid:")?, numbers("Gid:")?);
        let mut groups = numbers("Groups:")?;
        groups.push(*gids.get(3)?);
        Some(Self {
            uid: *uids.get(3)?,
            groups,
        })
    }

    /// Returns whether the user may read a file.
    #[must_use]
    pub fn may_read(&self, file: &Stat) -> bool {
        self.has(file, Mode::ROTH)
    }

    /// Returns whether the user may open files of a directory.
    #[must_use]
    pub fn may_search(&self, directory: &Stat) -> bool {
        self.has(directory, Mode::XOTH)
    }

    fn has(&self, file: &Stat, permission: Mode) -> bool {
        let shift = match file {
            _ if self.uid == 0 => return true,
            _ if self.uid == file.st_uid => 6,
            _ if self.groups.contains(&file.st_gid) => 3,
            _ => 0,
        };
        Mode::from_raw_mode(file.st_mode >> shift).contains(permission)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn applies_the_permissions_of_one_class() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut stat = rustix::fs::stat(file.path()).unwrap();
        (stat.st_uid, stat.st_gid) = (7, 8);
        let may_read = |mode, uid, groups: &[u32]| {
            let mut stat = stat;
            stat.st_mode = mode;
            let groups = groups.to_vec();
            Reader { uid, groups }.may_read(&stat)
        };
        assert!(may_read(0o400, 7, &[]) && !may_read(0o400, 6, &[8]));
        assert!(may_read(0o040, 6, &[5, 8]) && !may_read(0o004, 6, &[5, 8]));
        assert!(may_read(0o004, 6, &[5]) && !may_read(0o044, 7, &[8]));
        assert!(may_read(0, 0, &[]) && !may_read(0o700, NO_USER, &[]));
    }

    #[test]
    fn knows_the_current_user() {
        let reader = Reader::of(std::process::id() as i32).unwrap();
        assert_eq!(reader.uid, geteuid().as_raw());
        assert!(Reader::of(i32::MAX).is_none());
        assert_ne!(Reader::unknown().uid, 0);
    }
}
