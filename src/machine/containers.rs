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
struct Identity {
    namespace: u64,
    device: u64,
    inode: u64,
    /// Id of the mount; `None` if the kernel does not report it.
    mount: Option<u64>,
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
    /// Returns the root directory of a process in a container.
    ///
    /// Returns `None` if it is the host's root directory, or if the process has ended.
    pub(super) fn of(&mut self, pid: Pid) -> Option<Arc<Root>> {
        let host = match self.host {
            Some(host) => host,
            None => identity(&Root::host().ok()?, std::process::id() as i32).ok()?,
        };
        self.host = Some(host);
        let (identity, root) = open(pid).ok()?;
        (identity != host).then(|| self.share(identity, root))
    }

    /// Returns the root directory of a process.
    pub(super) fn root(&mut self, pid: Pid) -> io::Result<Arc<Root>> {
        let (identity, root) = open(pid)?;
        Ok(match identity.mount {
            Some(_) => self.share(identity, root),
            None => Arc::new(root),
        })
    }

    /// Returns the open directory with this identity, `root` if there is none.
    fn share(&mut self, identity: Identity, root: Root) -> Arc<Root> {
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

/// Opens the root directory of a running process.
fn open(pid: Pid) -> io::Result<(Identity, Root)> {
    let root = Root::of(pid.0)?;
    Ok((identity(&root, pid.0)?, root))
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
