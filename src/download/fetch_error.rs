//! Errors of a download.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Requests for one file: the first, and those that go on where a connection broke.
pub(super) const MAX_REQUESTS: u32 = 5;
/// Symbol servers redirect once, to their storage.
pub(super) const MAX_REDIRECTS: u32 = 5;

/// A file could not be downloaded.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("not there")]
    Missing,
    #[error("the server answers with status {0}")]
    Status(u16),
    #[error("larger than the limit of {} MiB (-maxsize)", .0 >> 20)]
    TooLarge(u64),
    #[error("no answer within {} s (-timeout)", .0.as_secs_f64())]
    Silent(Duration),
    #[error("less than 64 KiB in {} s (-timeout); run it again to go on at byte {at}", timeout.as_secs_f64())]
    Slow { timeout: Duration, at: u64 },
    #[error("the connection broke {MAX_REQUESTS} times; run it again to go on at byte {at}")]
    Broken { at: u64 },
    #[error("more than {MAX_REDIRECTS} redirects")]
    Redirects,
    #[error("redirected from https to http")]
    Downgrade,
    #[error("redirected to {0:?}, which is no URL of http or https")]
    Elsewhere(String),
    #[error("a part was sent that was not asked for")]
    Part,
    #[error("the head of the answer has more than {0} bytes")]
    Head(usize),
    #[error("the answer is not understood: {0}")]
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
