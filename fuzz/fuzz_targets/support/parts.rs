//! Several files in one input.

use std::fs::File;
use std::io::Write;

/// The first part, which has its length in two bytes in front, and the rest.
pub fn counted(data: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = data.split_first_chunk().unwrap_or((&[0; 2], data));
    let length = usize::from(u16::from_le_bytes(*length));
    rest.split_at_checked(length).unwrap_or((rest, &[]))
}

/// A file of these bytes.
#[allow(dead_code)] // Not every target that includes this module needs one.
pub fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("there is room");
    file
}
