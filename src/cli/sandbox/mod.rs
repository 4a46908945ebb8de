//! Restrictions of this process while it reads what others wrote.
//!
//! A bug in a parser must not give root's rights to the author of its input. While a capture runs,
//! perfcollect executes nothing and makes none of the system calls that change users, namespaces,
//! mounts, permissions, or the kernel (seccomp). From its end on, moreover, it can write only to
//! the directories of its outputs (Landlock: Linux 5.13), has no network and no sockets, and keeps
//! only the capabilities that opening and writing files take. An older kernel restricts what it
//! can.

mod system_calls;

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::output::file::FileOwner;
use system_calls::Phase;

/// Version of Landlock whose restrictions are requested: that of Linux 6.12.
const LANDLOCK: ABI = ABI::V6;

/// Restricts all threads, for good, to what a capture needs once it has started. Returns how, for
/// the log: without seccomp, the capture still works.
///
/// A child process would inherit this.
#[must_use]
pub(super) fn while_capturing() -> String {
    let calls = system_calls::deny(Phase::Capture, &owners(&[]));
    format!("seccomp {}", status(calls.map(|()| "enforced")))
}

/// Restricts this thread, and all that it starts later, for good. Returns how, for the log.
///
/// It may write below `directories` and those of `outputs`. It can no longer inspect other
/// processes. The other threads can no longer make the system calls that it cannot make.
pub(super) fn enter(outputs: &[&Path], directories: &[&Path]) -> String {
    let of_outputs = outputs.iter().copied().map(directory_of);
    let directories: Vec<&Path> = of_outputs.chain(directories.iter().copied()).collect();
    // Without Landlock, the capture still ends with a trace.
    let files = restrict_files(&directories);
    let capabilities = drop_capabilities();
    let calls = system_calls::deny(Phase::After, &owners(outputs));
    format!(
        "Landlock {}, capabilities {}, seccomp {}",
        status(files.map(|status| format!("{status:?}"))),
        status(capabilities.map(|()| "dropped")),
        status(calls.map(|()| "enforced")),
    )
}

fn status(result: Result<impl Display, impl Display>) -> String {
    match result {
        Ok(status) => status.to_string(),
        Err(error) => format!("failed: {error}"),
    }
}

/// Returns the users who may own an output: this one, who invoked `sudo`, owners of older files.
fn owners(outputs: &[&Path]) -> Vec<u32> {
    let invoking = FileOwner::invoking_user().map(|owner| owner.uid.as_raw());
    let older = outputs
        .iter()
        .filter_map(|path| path.symlink_metadata().ok());
    let own = rustix::process::geteuid().as_raw();
    // The last one leaves the user as it is.
    let own = [own, u32::MAX].into_iter();
    own.chain(invoking)
        .chain(older.map(|status| status.uid()))
        .collect()
}

/// Returns the directory of an output.
pub(super) fn directory_of(output: &Path) -> &Path {
    match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn restrict_files(directories: &[&Path]) -> Result<RulesetStatus, RulesetError> {
    let writes = AccessFs::from_write(LANDLOCK);
    let mut rules = Ruleset::default()
        .handle_access(writes | AccessFs::Execute)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    for directory in directories {
        // Outputs in a directory that cannot be opened fail later, with the reason.
        if let Ok(directory) = PathFd::new(directory) {
            rules = rules.add_rule(PathBeneath::new(directory, writes))?;
        }
    }
    rules.restrict_self().map(|restricted| restricted.ruleset)
}

/// Drops the capabilities that are of no use for files, or to print kernel addresses.
fn drop_capabilities() -> rustix::io::Result<()> {
    let kept = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::CHOWN
        | CapabilitySet::FOWNER
        | CapabilitySet::SYSLOG;
    let own = capabilities(None)?;
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: own.effective & kept,
        permitted: own.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Write};
    use std::os::fd::AsFd;
    use std::process::Command;

    use super::*;
    use crate::output::output_file::OutputFile;

    /// Runs a test in a sandbox: it restricts single threads.
    fn in_sandbox(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn writes_only_outputs_and_executes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let output = directory.path().join("trace");
        let secret = elsewhere.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        in_sandbox(|| {
            let status = restrict_files(&[directory.path()]).unwrap();
            if status == RulesetStatus::NotEnforced {
                return test_skip::skip(test_skip::Missing::Landlock);
            }
            let mut file = OutputFile::create(&output, false).unwrap();
            file.write_all(b"trace").unwrap();
            file.commit().unwrap();
            assert_eq!(std::fs::read(&output).unwrap(), b"trace");
            assert_eq!(std::fs::read(&secret).unwrap(), b"x");
            let refused =
                |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            refused(File::create(elsewhere.path().join("new")).unwrap_err());
            refused(File::options().write(true).open(&secret).unwrap_err());
            refused(std::fs::remove_file(&secret).unwrap_err());
            refused(Command::new("/bin/true").status().unwrap_err());
            if status == RulesetStatus::FullyEnforced {
                let listener = std::net::TcpListener::bind("127.0.0.1:0");
                refused(listener.map(drop).unwrap_err());
            }
        });
    }

    /// Returns whether a system call was refused by the filter, which the kernel may not have.
    fn refused<T>(result: rustix::io::Result<T>) -> bool {
        matches!(result, Err(rustix::io::Errno::PERM))
    }

    #[test]
    fn makes_no_sockets_and_gives_no_file_away() {
        use rustix::fs::{CWD, Mode, Uid, chmodat, chownat, fchmod, fchown};
        use rustix::net::{AddressFamily, SocketType, socket};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let nobody = Uid::from_raw(65534);
        let own = rustix::process::geteuid();
        in_sandbox(|| {
            let program = system_calls::program(Phase::After, &owners(&[&path])).unwrap();
            // The other tests of this process must not be restricted.
            seccompiler::apply_filter(&program).unwrap();
            fchmod(&file, Mode::from_raw_mode(0o644)).unwrap();
            fchown(&file, Some(own), None).unwrap();
            assert!(refused(fchmod(&file, Mode::from_raw_mode(0o666))));
            assert!(refused(fchmod(&file, Mode::from_raw_mode(0o4755))));
            assert!(refused(fchown(&file, Some(nobody), None)));
            let no_flags = rustix::fs::AtFlags::empty();
            assert!(refused(chmodat(
                CWD,
                &path,
                Mode::from_raw_mode(0o600),
                no_flags
            )));
            assert!(refused(chownat(CWD, &path, Some(own), None, no_flags)));
            assert!(refused(socket(
                AddressFamily::UNIX,
                SocketType::STREAM,
                None
            )));
            assert!(refused(rustix::thread::set_thread_res_uid(
                nobody, nobody, nobody
            )));
            assert!(Command::new("/bin/true").status().is_err());
            // Threads start without `clone3`.
            std::thread::spawn(|| ()).join().unwrap();
        });
    }

    #[test]
    fn a_capture_enters_network_namespaces_only() {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        let [network, hosts] =
            ["net", "uts"].map(|name| File::open(format!("/proc/self/ns/{name}")));
        let (network, hosts) = (network.unwrap(), hosts.unwrap());
        let enter =
            |namespace: &File, kind| move_into_link_name_space(namespace.as_fd(), Some(kind));
        let of_network = LinkNameSpaceType::Network;
        if enter(&network, of_network).is_err() {
            // Without the right to, nothing shows what is denied.
            return;
        }
        in_sandbox(|| {
            let program = system_calls::program(Phase::Capture, &owners(&[])).unwrap();
            seccompiler::apply_filter(&program).unwrap();
            enter(&network, of_network).unwrap();
            let of_hosts = LinkNameSpaceType::HostNameAndNISDomainName;
            assert!(refused(enter(&hosts, of_hosts)));
            let program = system_calls::program(Phase::After, &owners(&[])).unwrap();
            seccompiler::apply_filter(&program).unwrap();
            assert!(refused(enter(&network, of_network)));
        });
    }

    #[test]
    fn keeps_only_capabilities_for_files() {
        in_sandbox(|| {
            drop_capabilities().unwrap();
            let left = capabilities(None).unwrap();
            let dropped =
                CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE | CapabilitySet::SETUID;
            assert!(!left.permitted.intersects(dropped) && !left.effective.intersects(dropped));
        });
    }
}
