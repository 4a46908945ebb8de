//! What a runtime says of its process.

use super::message::{InfoVersion, text};
use crate::bytes::Bytes;

/// What a runtime says of its process. Texts are its own, and may be any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its id in its own pid namespace.
    pub pid: u64,
    /// Names this run of the runtime.
    pub cookie: [u8; 16],
    /// How it was started; only the executable while it is suspended at startup.
    pub command_line: String,
    /// Such as `Linux`.
    pub os: String,
    /// Such as `x64`.
    pub architecture: String,
    /// The name of the program; empty before .NET 6.
    pub entry_assembly: String,
    /// The version of the runtime, such as `8.0.4`; empty before .NET 6.
    pub runtime_version: String,
}

impl ProcessInfo {
    /// The payload of a reply. What follows the known parts is of a later version.
    pub(super) fn parse(version: InfoVersion, payload: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(payload);
        if version == InfoVersion::Three {
            let _version = bytes.u32()?;
        }
        let mut info = Self {
            pid: bytes.u64()?,
            cookie: bytes.array()?,
            command_line: text(&mut bytes)?,
            os: text(&mut bytes)?,
            architecture: text(&mut bytes)?,
            entry_assembly: String::new(),
            runtime_version: String::new(),
        };
        if version != InfoVersion::One {
            info.entry_assembly = text(&mut bytes)?;
            info.runtime_version = text(&mut bytes)?;
        }
        Some(info)
    }

    /// The payload of a reply to `ProcessInfo3`.
    #[must_use]
    pub fn parse_newest(payload: &[u8]) -> Option<Self> {
        Self::parse(InfoVersion::Three, payload)
    }
}
