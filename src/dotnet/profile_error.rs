//! What is wrong with a wish for events.

use thiserror::Error;

/// What cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// A group of the original.
    #[error("there is no group of events {name:?}; there are {known}")]
    Group {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A keyword of dotnet-trace.
    #[error("there is no keyword {name:?} of the runtime's events; there are {known}")]
    Keyword {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A level.
    #[error("{0:?} is no level: 0 to 5, or critical, error, warning, informational, verbose")]
    Level(String),
    /// A profile of dotnet-trace.
    #[error("there is no profile {0:?}; there are {PROFILES}")]
    Profile(String),
    /// A provider.
    #[error(
        "{0:?} is no provider: NAME[:KEYWORDS[:LEVEL[:KEY=VALUE;...]]] is needed, KEYWORDS in hexadecimal"
    )]
    Provider(String),
}

const PROFILES: &str =
    "dotnet-common, dotnet-sampled-thread-time, gc-verbose, gc-collect, database, cpu-sampling";
