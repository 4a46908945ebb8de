//! Restrictions of this process while it reads what others wrote.
//!
//! A bug in a parser must not give root's rights to the author of its input. From the end of a
//! capture on, perfcollect can write only to the directories of its outputs, execute nothing, and
//! use no TCP (Landlock: Linux 5.13, for TCP 6.7). It keeps only the capabilities that
//! opening and writing files take. An older kernel restricts what it can.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Version of Landlock whose restrictions are requested: that of Linux 6.12.
const LANDLOCK: ABI = ABI::V6;

/// Restricts this thread, and all that it starts later, for good.
///
/// It may write below `directories`. It can no longer inspect other processes.
pub(super) fn enter(directories: &[&Path]) {
    // Without Landlock, the capture still ends with a trace.
    let _ = restrict_files(directories);
    let _ = drop_capabilities();
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

    #[test]
    fn keeps_only_capabilities_for_files() {
        in_sandbox(|| {
            enter(&[]);
            let left = capabilities(None).unwrap();
            let dropped =
                CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE | CapabilitySet::SETUID;
            assert!(!left.permitted.intersects(dropped) && !left.effective.intersects(dropped));
        });
    }
}
