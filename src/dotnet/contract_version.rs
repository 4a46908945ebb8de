//! Versions of data contracts.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// Length limit of a version that is a name. A longer one is truncated, and not supported.
const MAX_NAME_BYTES: usize = 8;

/// Version of a data contract: a number up to .NET 10, a name such as `c1` since .NET 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractVersion {
    /// A number.
    Number(u64),
    /// A name, padded with zeros.
    Name([u8; MAX_NAME_BYTES]),
}

impl ContractVersion {
    /// Creates the version with this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut bytes = [0; MAX_NAME_BYTES];
        for (byte, letter) in bytes.iter_mut().zip(name.bytes()) {
            *byte = letter;
        }
        Self::Name(bytes)
    }
}

impl<'de> Deserialize<'de> for ContractVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Version {
            Number(u64),
            Name(String),
        }
        Ok(match Version::deserialize(deserializer)? {
            Version::Number(number) => Self::Number(number),
            Version::Name(name) => Self::named(&name),
        })
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => {
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                write!(f, "{}", name.escape_ascii())
            }
        }
    }
}
