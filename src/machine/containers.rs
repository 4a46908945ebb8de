//! Root directories of processes, each opened once.

use std::io;
use std::sync::{Arc, Weak};

use perfcollect_symbols::process::{Root, mount_namespace};
use rustc_hash::FxHashMap;

use crate::trace::Pid;

/// Identity of a root directory.
///
/// A process chooses the mount through which it sees its root directory, and so what is mounted
/// below it, also in the mount namespace of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    namespace: u64,
    device: u64,
    inode: u64,
    /// Id of the mount; `None` if the kernel does not report it.
    mount: Option<u64>,
}

/// The file system that a process sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Home {
    /// That of the host.
    Host,
    /// That of a container, or of a process in another mount namespace or root directory.
    Container(Identity),
    /// The process has ended, or may not be inspected.
    Unknown,
}

/// Open root directories. Each is closed when nothing refers to it.
#[derive(Debug, Default)]
pub(super) struct Containers {
    roots: FxHashMap<Identity, Weak<Root>>,
    /// Number of roots at which closed ones are removed.
    sweep_at: usize,
    host: Option<Identity>,
}

impl Containers {
    /// Returns the root directory of a running process, and whose it is.
    ///
    /// # Errors
    /// The process has ended, or may not be inspected.
    pub(super) fn of(&mut self, pid: Pid) -> io::Result<(Home, Arc<Root>)> {
        let host = match self.host {
            Some(host) => host,
            None => identity(&Root::host()?, std::process::id() as i32)?,
        };
        self.host = Some(host);
        let root = Root::of(pid.0)?;
        let identity = identity(&root, pid.0)?;
        let home = match identity == host {
            true => Home::Host,
            false => Home::Container(identity),
        };
        Ok((home, self.share(identity, root)))
    }

    /// Returns the open directory with this identity, `root` if there is none.
    ///
    /// Without the id of the mount, two directories may only seem to be one.
    fn share(&mut self, identity: Identity, root: Root) -> Arc<Root> {
        if identity.mount.is_none() {
            return Arc::new(root);
        }
        if let Some(open) = self.roots.get(&identity).and_then(Weak::upgrade) {
            return open;
        }
        if self.roots.len() >= self.sweep_at {
            self.roots.retain(|_, root| root.strong_count() > 0);
            self.sweep_at = 2 * self.roots.len() + 64;
        }
        let root = Arc::new(root);
        self.roots.insert(identity, Arc::downgrade(&root));
        root
    }
}

fn identity(root: &Root, process: i32) -> io::Result<Identity> {
    let namespace = mount_namespace(process)?;
    let (device, inode) = root.identity()?;
    Ok(Identity {
        namespace,
        device,
        inode,
        mount: root.mount_id().unwrap_or_default(),
    })
}
