//! Getting one file over HTTP, within limits. What a server says is believed only where nothing depends on it.

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

/// Bytes that must come within [`Limits::timeout`], at least.
const MIN_BYTES_PER_TIMEOUT: u64 = 64 << 10;

/// What a server may cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Size of a file, in bytes.
    pub max_bytes: u64,
    /// The longest wait for a connection, for an answer, and for the next 64 KiB of a file.
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

/// Gets `url` into `file`; what is in it already is its beginning. Tells of each 64 KiB: bytes there, and in all.
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
        let response = ask(&uri, have, limits)?;
        let at = match response.status().as_u16() {
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
        file.set_len(at).map_err(FetchError::Write)?;
        if receive(response, file, at, limits, progress)? {
            return Ok(());
        }
    }
    let at = file.metadata().map_err(FetchError::Write)?.len();
    Err(FetchError::Broken { at })
}

/// Asks for a file from byte `have` on, of whom the server sends us to.
fn ask(uri: &Uri, have: u64, limits: Limits) -> Result<Response<Body>, FetchError> {
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
        // Each place has its own proxy.
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A server may close a connection just when it is used again.
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

/// The machine's certificates, which may include a proxy's; a container without any gets Mozilla's.
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

/// Writes a body from offset `at` on; false if it broke off after some bytes, so that it is worth to go on.
fn receive(
    response: Response<Body>,
    file: &File,
    mut at: u64,
    limits: Limits,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<bool, FetchError> {
    let begin = at;
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
            return match at > begin {
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

/// First byte of `Content-Range: bytes FIRST-LAST/TOTAL`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (first, _) = range.strip_prefix("bytes ")?.split_once('-')?;
    first.parse().ok()
}

fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_)))
}

/// There was a connection.
fn broke_off(error: &io::Error) -> bool {
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
            FetchError::Unreachable(io::Error::other("its name is not found"))
        }
        ureq::Error::Io(error) if !broke_off(&error) => FetchError::Unreachable(error),
        other => FetchError::Http(Box::new(other)),
    }
}
