//! The root directories of processes in containers, each held once.

use std::io;
use std::os::linux::fs::MetadataExt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::root::Root;
use crate::trace::Pid;

/// What tells root directories apart: the mount namespace, device and inode.
type Identity = (u64, u64, u64);

/// Those that were seen.
#[derive(Debug, Default)]
pub(super) struct Containers(FxHashMap<Identity, Arc<Root>>);

impl Containers {
    /// That of a process; `None`: it is ours, or the process has ended.
    pub(super) fn of(&mut self, pid: Pid) -> Option<Arc<Root>> {
        let root = Root::of(pid).ok()?;
        let identity = identity(&root, &pid.to_string()).ok()?;
        if identity == self::identity(&Root::host().ok()?, "self").ok()? {
            return None;
        }
        Some(Arc::clone(
            self.0.entry(identity).or_insert_with(|| Arc::new(root)),
        ))
    }
}

fn identity(root: &Root, process: &str) -> io::Result<Identity> {
    let namespace = std::fs::metadata(format!("/proc/{process}/ns/mnt"))?.st_ino();
    let (device, inode) = root.identity()?;
    Ok((namespace, device, inode))
}
