//! Root directories of processes in containers, each opened once.

use std::io;
use std::sync::Arc;

use perfcollect_symbols::process::{Root, mount_namespace};
use rustc_hash::FxHashMap;

use crate::trace::Pid;

/// Identity of a root directory: mount namespace, device and inode.
type Identity = (u64, u64, u64);

/// Open root directories of containers.
#[derive(Debug, Default)]
pub(super) struct Containers(FxHashMap<Identity, Arc<Root>>);

impl Containers {
    /// Returns the root directory of a process in a container.
    ///
    /// Returns `None` if it is the host's root directory, or if the process has ended.
    pub(super) fn of(&mut self, pid: Pid) -> Option<Arc<Root>> {
        let root = Root::of(pid.0).ok()?;
        let identity = identity(&root, pid.0).ok()?;
        if identity == self::identity(&Root::host().ok()?, std::process::id() as i32).ok()? {
            return None;
        }
        Some(Arc::clone(
            self.0.entry(identity).or_insert_with(|| Arc::new(root)),
        ))
    }
}

fn identity(root: &Root, process: i32) -> io::Result<Identity> {
    let namespace = mount_namespace(process)?;
    let (device, inode) = root.identity()?;
    Ok((namespace, device, inode))
}
