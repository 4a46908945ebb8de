//! The kernel's tracepoints, as tracefs describes them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use thiserror::Error;

/// Where tracefs is mounted.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Maximum length of a format, in bytes: those of the kernel have a few KB.
const MAX_FORMAT_BYTES: u64 = 256 << 10;

/// The format of a tracepoint cannot be read.
#[derive(Debug, Error)]
pub enum TracefsError {
    /// tracefs is not mounted here, as in a container, and the kernel or the container refuses a mount.
    #[error("tracefs is not mounted, and a private mount was refused: {0}")]
    NotMounted(io::Error),
    /// tracefs may not be read, or lacks the tracepoint.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file or directory.
        path: String,
        /// Cause.
        source: io::Error,
    },
}

/// The tracepoints of tracefs.
pub struct Tracefs {
    events: OwnedFd,
    path: String,
}

impl Tracefs {
    /// Opens tracefs where it is mounted, or else mounts it privately: no other process sees that mount, and it
    /// ends with this value.
    ///
    /// # Errors
    /// tracefs may not be read, or is not mounted and may not be mounted.
    pub fn open() -> Result<Self, TracefsError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open =
            |directory: &OwnedFd| rustix::fs::openat(directory, "events", flags, Mode::empty());
        let mut refused = None;
        for mount in MOUNTS {
            let path = format!("{mount}/events");
            match rustix::fs::openat(CWD, &path, flags, Mode::empty()) {
                Ok(events) => return Ok(Self { events, path }),
                Err(Errno::NOENT) => {}
                Err(errno) => refused = refused.or(Some((path, errno))),
            }
        }
        match (mount().and_then(|root| open(&root)), refused) {
            (Ok(events), _) => Ok(Self {
                events,
                path: "tracefs: events".into(),
            }),
            (Err(_), Some((path, errno))) => Err(TracefsError::Read {
                path,
                source: errno.into(),
            }),
            (Err(errno), None) => Err(TracefsError::NotMounted(errno.into())),
        }
    }

    /// Reads the format of a tracepoint, such as `block/block_rq_issue`.
    ///
    /// # Errors
    /// tracefs may not be read, or has no such tracepoint.
    pub fn format(&self, name: &str) -> Result<String, TracefsError> {
        let failed = |source| TracefsError::Read {
            path: format!("{}/{name}/format", self.path),
            source,
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.events, format!("{name}/format"), flags, Mode::empty());
        let file = File::from(file.map_err(|errno| failed(errno.into()))?);
        let mut text = String::new();
        let read = file.take(MAX_FORMAT_BYTES).read_to_string(&mut text);
        read.map_err(failed)?;
        Ok(text)
    }
}

/// Mounts tracefs nowhere: its root is the descriptor. Linux 5.2.
fn mount() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // No option: the file system is the same one for all mounts, and would keep it.
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
