//! Downloads one file over HTTP, within limits.
//!
//! Servers are untrusted: the limits apply to the received bytes, not only to declared sizes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, Response, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::fetch_error::{FetchError, MAX_REDIRECTS, MAX_REQUESTS};
use super::{proxy, redirect};

/// Minimum number of bytes that must arrive within [`Limits::timeout`].
const MIN_BYTES_PER_TIMEOUT: u64 = 64 << 10;

/// Limits of one download.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum size of a file, in bytes.
    pub max_bytes: u64,
    /// Maximum wait for a connection, for a response, and for the next 64 KiB of a file.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 2 << 30,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Downloads `url` into `file` and resumes after its current content.
///
/// Calls `progress` for each 64 KiB, with the received bytes and the total size if it is known.
pub(super) fn get(
    url: &str,
    file: &File,
    limits: Limits,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(), FetchError> {
    let uri: Uri = url
        .parse()
        .map_err(|_| FetchError::Http(Box::new(ureq::Error::BadUri(url.into()))))?;
    for _ in 0..MAX_REQUESTS {
        let have = file.metadata().map_err(FetchError::Write)?.len();
        let response = request(&uri, have, limits)?;
        let offset = match response.status().as_u16() {
            200 => 0,
            206 if range_start(response.headers()) == Some(have) => have,
            206 if have == 0 => return Err(FetchError::Part),
            206 | 416 if have > 0 => {
                file.set_len(0).map_err(FetchError::Write)?;
                continue;
            }
            404 | 410 => return Err(FetchError::Missing),
            status => return Err(FetchError::Status(status)),
        };
        file.set_len(offset).map_err(FetchError::Write)?;
        if receive(response, file, offset, limits, progress)? {
            return Ok(());
        }
    }
    let at = file.metadata().map_err(FetchError::Write)?.len();
    Err(FetchError::Broken { at })
}

/// Requests a file from byte `have` on, and follows redirects.
fn request(uri: &Uri, have: u64, limits: Limits) -> Result<Response<Body>, FetchError> {
    let mut uri = uri.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut request = agent(&uri, limits)?.get(&uri);
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let response = request.call().map_err(|error| explain(error, limits))?;
        let location = response.headers().get(header::LOCATION);
        uri = match (response.status().as_u16(), location) {
            (301..=303 | 307 | 308, Some(location)) => {
                redirect::target(&uri, &String::from_utf8_lossy(location.as_bytes()))?
            }
            _ => return Ok(response),
        };
    }
    Err(FetchError::Redirects)
}

fn agent(uri: &Uri, limits: Limits) -> Result<Agent, FetchError> {
    let wait = Some(limits.timeout);
    let is_https = uri.scheme_str() == Some("https");
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(proxy::of(uri).map_err(FetchError::Proxy)?)
        // `request` follows redirects: each host may have another proxy.
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A server may close an idle connection at the moment of its next use.
        .max_idle_connections(0)
        .user_agent(concat!("perfcollect/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(wait)
        .timeout_connect(wait)
        .timeout_send_request(wait)
        .timeout_recv_response(wait)
        .timeout_per_read(wait);
    if is_https {
        config = config.tls_config(TlsConfig::builder().root_certs(root_certs()).build());
    }
    Ok(config.build().new_agent())
}

/// Returns the certificates of the host, which may include one of a proxy.
///
/// Returns Mozilla's in a container without certificates.
fn root_certs() -> RootCerts {
    let native = rustls_native_certs::load_native_certs().certs;
    let certs: Vec<_> = native
        .iter()
        .map(|cert| Certificate::from_der(cert).to_owned())
        .collect();
    match certs.is_empty() {
        true => RootCerts::WebPki,
        false => RootCerts::from(certs),
    }
}

/// Writes a body to the file, from offset `at` on.
///
/// Returns `false` if the connection was closed after some bytes: the caller then resumes.
fn receive(
    response: Response<Body>,
    file: &File,
    mut at: u64,
    limits: Limits,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<bool, FetchError> {
    let start = at;
    let total = length(response.headers()).map(|rest| rest.saturating_add(at));
    if total.is_some_and(|total| total > limits.max_bytes) {
        return Err(FetchError::TooLarge(limits.max_bytes));
    }
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 64 << 10];
    let mut window = (Instant::now(), at);
    loop {
        let read = match body.read(&mut buffer) {
            Ok(0) if total.is_none_or(|total| total <= at) => return Ok(true),
            Ok(read) => read,
            Err(error) if is_timeout(&error) => {
                let timeout = limits.timeout;
                return Err(FetchError::Slow { timeout, at });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        if read == 0 {
            return match at > start {
                true => Ok(false),
                false => Err(FetchError::Broken { at }),
            };
        }
        if at + read as u64 > limits.max_bytes {
            return Err(FetchError::TooLarge(limits.max_bytes));
        }
        file.write_all_at(&buffer[..read], at)
            .map_err(FetchError::Write)?;
        at += read as u64;
        let (since, from) = window;
        if at - from >= MIN_BYTES_PER_TIMEOUT {
            window = (Instant::now(), at);
            progress(at, total);
        } else if since.elapsed() > limits.timeout {
            let timeout = limits.timeout;
            return Err(FetchError::Slow { timeout, at });
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Returns FIRST of `Content-Range: bytes FIRST-LAST/TOTAL`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (first, _) = range.strip_prefix("bytes ")?.split_once('-')?;
    first.parse().ok()
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

/// Returns whether an error ended an established connection.
fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

fn explain(error: ureq::Error, limits: Limits) -> FetchError {
    match error {
        ureq::Error::Timeout(_) => FetchError::Silent(limits.timeout),
        ureq::Error::LargeResponseHeader(_, limit) => FetchError::Head(limit),
        ureq::Error::Protocol(error) => FetchError::Answer(error.to_string()),
        ureq::Error::HostNotFound => {
            FetchError::Unreachable(io::Error::other("host name not found"))
        }
        ureq::Error::Io(error) if !is_disconnect(&error) => FetchError::Unreachable(error),
        other => FetchError::Http(Box::new(other)),
    }
}
