//! Giving up what a process is not to have.

use rustix::process::{Gid, Signal, Uid};
use rustix::thread::CapabilitySet;

use crate::output::file::FileOwner;

/// `nobody` and `nogroup`, on all distributions.
const NOBODY: u32 = 65534;

/// Gives up all privileges, for good: root becomes the user behind sudo, or nobody; no capability is left and no program
/// can give any back. Ends with the parent. To be called before there is a second thread.
///
/// # Errors
/// What the kernel refused; then the process must do nothing more.
pub(super) fn drop_privileges() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let (uid, gid) = other_user();
    // In a user namespace there may be no other user; root is nobody special outside of it.
    let is_known = is_mapped("/proc/self/uid_map", uid.as_raw())
        && is_mapped("/proc/self/gid_map", gid.as_raw());
    if rustix::process::geteuid().is_root() && is_known {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        // The change of user has cleared it.
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

/// Whom root becomes.
fn other_user() -> (Uid, Gid) {
    match FileOwner::invoking_user() {
        Some(FileOwner { uid, gid }) if !uid.is_root() => (uid, gid),
        _ => (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY)),
    }
}

/// Whether the user namespace knows an id: a line has its first id, that outside, and how many follow (user_namespaces(7)).
fn is_mapped(map: &str, id: u32) -> bool {
    // Without the file there are no user namespaces.
    let Ok(map) = std::fs::read_to_string(map) else {
        return true;
    };
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first.saturating_add(count)).contains(&id.into()))
    })
}
