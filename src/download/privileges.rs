//! Drops the privileges of the worker process.

use rustix::process::{Gid, Signal, Uid};
use rustix::thread::CapabilitySet;

use crate::output::file::FileOwner;

/// Id of `nobody` and `nogroup` on all distributions.
const NOBODY: u32 = 65534;

/// Drops all privileges permanently.
///
/// Root becomes the user who invoked `sudo`, or `nobody`. The process keeps no capability, and no
/// program it executes can regain one. The kernel kills the process when its parent exits. Call
/// this before the process starts a second thread.
///
/// # Errors
/// Returns the error of the kernel. The caller must then exit.
pub(super) fn drop_privileges() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let (uid, gid) = other_user();
    // A user namespace may have no other user. Its root has no privileges outside.
    let is_available = is_mapped("/proc/self/uid_map", uid.as_raw())
        && is_mapped("/proc/self/gid_map", gid.as_raw());
    if rustix::process::geteuid().is_root() && is_available {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        // The kernel clears this setting when the user changes.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = rustix::thread::CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
}

/// Returns the user that root becomes.
fn other_user() -> (Uid, Gid) {
    match FileOwner::invoking_user() {
        Some(FileOwner { uid, gid }) if !uid.is_root() => (uid, gid),
        _ => (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY)),
    }
}

/// Returns whether the user namespace maps an id.
///
/// A line contains the first id inside, the first id outside and the count (user_namespaces(7)).
fn is_mapped(map: &str, id: u32) -> bool {
    // The file does not exist on a kernel without user namespaces.
    let Ok(map) = std::fs::read_to_string(map) else {
        return true;
    };
    map.lines().any(|line| {
        let fields: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(fields[..], [first, _, count] if (first..first.saturating_add(count)).contains(&id.into()))
    })
}
