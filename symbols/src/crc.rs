//! The CRC-32 of `.gnu_debuglink`: that of zlib and ISO 3309.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crc32fast::Hasher;

/// Limit of a file for the CRC: one second.
pub(crate) const MAX_CRC_FILE_BYTES: u64 = 2 << 30;

/// Computes the checksum of a file.
///
/// The file may grow meanwhile, so at most [`MAX_CRC_FILE_BYTES`] are read.
///
/// # Errors
/// Reading fails.
pub(crate) fn crc32(file: &File) -> io::Result<u32> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    let mut offset = 0;
    while offset <= MAX_CRC_FILE_BYTES {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(buffer.get(..read).unwrap_or_default());
                offset = offset.saturating_add(read as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.finalize())
}
