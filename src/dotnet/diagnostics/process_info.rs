//! The reply to a request for process information.

use super::error::DiagnosticsError;
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
    ///
    /// # Errors
    /// The payload ends before or within a field.
    pub(super) fn parse(version: InfoVersion, payload: &[u8]) -> Result<Self, DiagnosticsError> {
        let mut bytes = Bytes(payload);
        let truncated = DiagnosticsError::Malformed;
        if version == InfoVersion::Three {
            bytes.u32().ok_or(truncated("no version"))?;
        }
        let mut info = Self {
            pid: bytes.u64().ok_or(truncated("no process id"))?,
            cookie: bytes.array().ok_or(truncated("no GUID of the runtime"))?,
            command_line: string(&mut bytes).ok_or(truncated("truncated command line"))?,
            os: string(&mut bytes).ok_or(truncated("truncated operating system"))?,
            architecture: string(&mut bytes).ok_or(truncated("truncated architecture"))?,
            entry_assembly: String::new(),
            runtime_version: String::new(),
        };
        if version != InfoVersion::One {
            info.entry_assembly =
                string(&mut bytes).ok_or(truncated("truncated entry assembly"))?;
            info.runtime_version =
                string(&mut bytes).ok_or(truncated("truncated runtime version"))?;
        }
        Ok(info)
    }

    /// Parses the payload of a reply to `ProcessInfo3`.
    ///
    /// # Errors
    /// The payload ends before or within a field.
    pub fn parse_newest(payload: &[u8]) -> Result<Self, DiagnosticsError> {
        Self::parse(InfoVersion::Three, payload)
    }
}
