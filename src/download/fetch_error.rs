//! Errors of a download.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Maximum number of requests for one file: the first one, and those that resume the download.
pub(super) const MAX_REQUESTS: u32 = 5;
/// Maximum number of redirects. Symbol servers redirect once, to their storage.
pub(super) const MAX_REDIRECTS: u32 = 5;

/// Error of a download from one URL.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("not found")]
    Missing,
    #[error("the server returned status {0}")]
    Status(u16),
    #[error("larger than the limit of {} MiB (-maxsize)", .0 >> 20)]
    TooLarge(u64),
    #[error("no response within {} s (-timeout)", .0.as_secs_f64())]
    Silent(Duration),
    #[error("less than 64 KiB in {} s (-timeout); run the command again to resume at byte {at}", timeout.as_secs_f64())]
    Slow { timeout: Duration, at: u64 },
    #[error(
        "the connection was closed {MAX_REQUESTS} times; run the command again to resume at byte {at}"
    )]
    Broken { at: u64 },
    #[error("more than {MAX_REDIRECTS} redirects")]
    Redirects,
    #[error("redirected from https to http")]
    Downgrade,
    #[error("redirected to {0:?}, which is not an http or https URL")]
    Elsewhere(String),
    #[error("the server sent a range that was not requested")]
    Part,
    #[error("the response headers exceed {0} bytes")]
    Head(usize),
    #[error("cannot parse the response: {0}")]
    Answer(String),
    #[error("the server cannot be reached: {0}")]
    Unreachable(io::Error),
    #[error("{0}")]
    Proxy(String),
    #[error("cannot write to the cache: {0}")]
    Write(io::Error),
    #[error("{0}")]
    Http(Box<ureq::Error>),
}
