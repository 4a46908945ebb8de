//! The kernel's tracepoints, as tracefs describes them.

use std::fs::File;
use std::io::{self, Read};

/// Where tracefs is mounted.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Maximum length of a format, in bytes: those of the kernel have a few KB.
const MAX_FORMAT_BYTES: u64 = 256 << 10;

/// Reads the format of a tracepoint, such as `block/block_rq_issue`.
///
/// # Errors
/// tracefs is not mounted, may not be read, or has no such tracepoint.
pub fn tracepoint_format(name: &str) -> io::Result<String> {
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for mount in MOUNTS {
        match File::open(format!("{mount}/events/{name}/format")) {
            Ok(file) => {
                let mut text = String::new();
                file.take(MAX_FORMAT_BYTES).read_to_string(&mut text)?;
                return Ok(text);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
