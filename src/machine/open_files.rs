//! The open files with code: each once, and of one user no more than leaves room for others.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use perfcollect_symbols::process::{MapsLine, open_mapped_file};
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::content::identity;

/// Limit of open files that is enough for a busy system.
///
/// It has some hundred files with code, and each .NET process needs four descriptors.
pub const ENOUGH_OPEN_FILES: u64 = 1 << 16;

/// The user of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum User {
    /// Root of the host, or the user of perfcollect: may have any number of open files.
    Trusted,
    Other(u32),
    /// The process has ended.
    Unknown,
}

/// The open files with code, by device and inode.
///
/// A process can map one file by any number of paths, and in any number of mount namespaces.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: FxHashMap<(u64, u64), Arc<File>>,
    quotas: Quotas,
}

impl OpenFiles {
    /// Opens the file of a mapping. `user` returns the user of the process.
    ///
    /// # Errors
    /// See [`open_mapped_file`], or the user has too many open files.
    pub(super) fn open(
        &mut self,
        pid: i32,
        mapping: &MapsLine<'_>,
        user: impl FnOnce() -> User,
    ) -> io::Result<Arc<File>> {
        let opened = match open_mapped_file(pid, mapping) {
            Ok(file) => file,
            // The process has ended, but others have the same file mapped.
            Err(error) => return self.same(mapping).ok_or(error),
        };
        let identity = identity(&opened)?;
        let key = (identity.device, identity.inode);
        if let Some(file) = self.files.get(&key) {
            return Ok(file.clone());
        }
        self.quotas.take(user(), &opened)?;
        let file = Arc::new(opened);
        self.files.insert(key, file.clone());
        Ok(file)
    }

    /// Returns the file of a mapping if it is open. An open file keeps its inode.
    fn same(&self, mapping: &MapsLine<'_>) -> Option<Arc<File>> {
        let (major, minor) = mapping.device;
        let key = (rustix::fs::makedev(major, minor), mapping.inode);
        self.files.get(&key).cloned()
    }

    /// Counts another descriptor of a user.
    ///
    /// # Errors
    /// The user has too many.
    pub(super) fn take(&mut self, user: User, descriptor: &impl AsFd) -> io::Result<()> {
        self.quotas.take(user, descriptor)
    }
}

/// Number of descriptors for each user.
#[derive(Debug, Default)]
struct Quotas(FxHashMap<User, u64>);

impl Quotas {
    /// Counts a new descriptor of a user, who may have as many as are left for others.
    fn take(&mut self, user: User, descriptor: &impl AsFd) -> io::Result<()> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        self.take_of(limit, user, descriptor.as_fd().as_raw_fd() as u64)
    }

    /// The kernel assigns the lowest free number, so no lower one is left.
    fn take_of(&mut self, limit: u64, user: User, number: u64) -> io::Result<()> {
        if user == User::Trusted {
            return Ok(());
        }
        let taken = self.0.entry(user).or_default();
        if *taken < limit.saturating_sub(number) {
            *taken += 1;
            return Ok(());
        }
        // A higher limit helps, unless the user wants to have all descriptors.
        if limit < ENOUGH_OPEN_FILES {
            return Err(Errno::MFILE.into());
        }
        let who = match user {
            User::Other(uid) => format!("user {uid} has"),
            _ => "processes that have ended had".to_owned(),
        };
        let why = format!("{who} {taken} files with code; perfcollect opens no more of them");
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_descriptors_for_other_users() {
        let mut quotas = Quotas::default();
        let limit = ENOUGH_OPEN_FILES;
        let mut number = 10;
        let mut fill = |user| {
            let mut taken = 0_u64;
            while quotas.take_of(limit, user, number).is_ok() {
                (number, taken) = (number + 1, taken + 1);
            }
            taken
        };
        let first = fill(User::Other(7));
        assert!(first.abs_diff(limit / 2) < 10, "{first}");
        assert_eq!(fill(User::Other(7)), 0);
        assert!(fill(User::Other(8)).abs_diff(limit / 4) < 10);
        assert!(fill(User::Unknown).abs_diff(limit / 8) < 10);
        let error = quotas.take_of(limit, User::Other(7), number).unwrap_err();
        assert!(error.to_string().starts_with("user 7 has"), "{error}");
        let error = quotas.take_of(1024, User::Other(7), 1000).unwrap_err();
        assert!(crate::trace::lacks_descriptors(&error));
        assert!(quotas.take_of(limit, User::Trusted, limit - 1).is_ok());
    }
}
