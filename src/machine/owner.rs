//! Users whom perfcollect does not trust with its time.

use std::io;
use std::os::unix::fs::MetadataExt;

use perfcollect_symbols::process::Root;
use rustix::process::geteuid;

use super::{CodeFile, Content};

/// The user of a file that cannot be examined: nobody has this id.
const UNKNOWN_USER: u32 = u32::MAX;

/// A user in a root directory, as each container has different users, whose files are read for a
/// bounded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The user id.
    pub uid: u32,
    root: (u64, u64),
}

impl Owner {
    /// Creates the owner of what a user has below a root directory.
    ///
    /// Returns `None` for users of the host who need no bound: root, that of this process, and
    /// `invoking_user`, the one of `sudo`. A root directory that cannot be examined is not the host's.
    #[must_use]
    pub fn bounded(uid: u32, root: &Root, invoking_user: Option<u32>) -> Option<Self> {
        let identity = root.identity().ok();
        let is_host = || -> io::Result<bool> {
            let host = Root::host()?;
            Ok(Some(host.identity()?) == identity && host.mount_id()? == root.mount_id()?)
        };
        let is_trusted = is_trusted(uid, invoking_user) && is_host().is_ok_and(|is_host| is_host);
        let owner = Self {
            uid,
            root: identity.unwrap_or_default(),
        };
        (!is_trusted).then_some(owner)
    }

    /// Returns the owner of a mapped file as [`Owner::bounded`] does.
    #[must_use]
    pub fn of_file(file: &CodeFile, invoking_user: Option<u32>) -> Option<Self> {
        let Content::File(content) = &file.content else {
            return None;
        };
        let uid = content.metadata().map_or(UNKNOWN_USER, |file| file.uid());
        if let Some(root) = &file.container {
            return Self::bounded(uid, root, invoking_user);
        }
        let root = || Root::host()?.identity();
        let owner = || Self {
            uid,
            root: root().unwrap_or_default(),
        };
        (!is_trusted(uid, invoking_user)).then(owner)
    }

    /// Creates an owner without a root directory.
    #[cfg(test)]
    pub(crate) fn of_test(uid: u32) -> Self {
        Self { uid, root: (1, 2) }
    }
}

fn is_trusted(uid: u32, invoking_user: Option<u32>) -> bool {
    uid == 0 || uid == geteuid().as_raw() || invoking_user == Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_users_of_the_host_have_no_bound() {
        let host = Root::host().unwrap();
        for trusted in [0, 9, geteuid().as_raw()] {
            assert_eq!(Owner::bounded(trusted, &host, Some(9)), None);
        }
        assert!(Owner::bounded(4321, &host, Some(9)).is_some());
        let directory = tempfile::tempdir().unwrap();
        let container = Root::at(directory.path()).unwrap();
        for uid in [0, 9] {
            assert!(Owner::bounded(uid, &container, Some(9)).is_some());
        }
    }
}
