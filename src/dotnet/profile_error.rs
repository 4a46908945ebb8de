//! Errors of event requests.

use thiserror::Error;

/// An invalid event request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// Unknown event group of the perfcollect script.
    #[error("unknown event group {name:?}; valid groups: {valid}")]
    Group {
        /// The requested name.
        name: String,
        /// The valid names.
        valid: String,
    },
    /// Unknown keyword of dotnet-trace.
    #[error("unknown runtime keyword {name:?}; valid keywords: {valid}")]
    Keyword {
        /// The requested name.
        name: String,
        /// The valid names.
        valid: String,
    },
    /// Unknown level.
    #[error(
        "unknown level {0:?}; valid levels: 0 to 5, \
         logalways, critical, error, warning, informational, verbose"
    )]
    Level(String),
    /// Unknown profile of dotnet-trace.
    #[error("unknown profile {0:?}; valid profiles: {PROFILES}")]
    Profile(String),
    /// Invalid syntax of a provider.
    #[error(
        "invalid provider {0:?}; expected NAME[:KEYWORDS[:LEVEL[:KEY=VALUE;...]]], KEYWORDS in hexadecimal"
    )]
    Provider(String),
}

const PROFILES: &str =
    "dotnet-common, dotnet-sampled-thread-time, gc-verbose, gc-collect, database, cpu-sampling";
