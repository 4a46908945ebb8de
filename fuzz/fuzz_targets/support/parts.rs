//! Several files in one input.

use std::fs::File;
use std::io::Write;

/// Returns the first part and the rest. Two bytes of length precede the part.
pub fn counted(data: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = data.split_first_chunk().unwrap_or((&[0; 2], data));
    let length = usize::from(u16::from_le_bytes(*length));
    rest.split_at_checked(length).unwrap_or((rest, &[]))
}

/// Returns a file with these bytes.
#[allow(dead_code)] // Some targets that include this module do not use it.
pub fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file can be created");
    file.write_all(bytes).expect("the disk is not full");
    file
}
