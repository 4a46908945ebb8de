//! The reply to a request for process information.

use super::message::{InfoVersion, string};
use crate::bytes::Bytes;

/// The information that a runtime returns about its process. The strings are untrusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process id in the pid namespace of the process.
    pub pid: u64,
    /// A GUID that identifies this runtime instance.
    pub cookie: [u8; 16],
    /// The command line. It is only the executable while the runtime is suspended at startup.
    pub command_line: String,
    /// The operating system, such as `Linux`.
    pub os: String,
    /// The architecture, such as `x64`.
    pub architecture: String,
    /// The name of the entry assembly. Empty before .NET 6.
    pub entry_assembly: String,
    /// The version of the runtime, such as `8.0.4`. Empty before .NET 6.
    pub runtime_version: String,
}

impl ProcessInfo {
    /// Parses the payload of a reply. Ignores fields of later versions at its end.
    pub(super) fn parse(version: InfoVersion, payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        if version == InfoVersion::Three {
            let _version = bytes.u32()?;
        }
        let mut info = Self {
            pid: bytes.u64()?,
            cookie: bytes.array()?,
            command_line: string(&mut bytes)?,
            os: string(&mut bytes)?,
            architecture: string(&mut bytes)?,
            entry_assembly: String::new(),
            runtime_version: String::new(),
        };
        if version != InfoVersion::One {
            info.entry_assembly = string(&mut bytes)?;
            info.runtime_version = string(&mut bytes)?;
        }
        Some(info)
    }

    /// Parses the payload of a reply to `ProcessInfo3`.
    #[must_use]
    pub fn parse_newest(payload: &[u8]) -> Option<Self> {
        Self::parse(InfoVersion::Three, payload)
    }
}
